"""The checksum of the kernel's C files, by which a compiled module is known to belong to them.

A number that is raised by hand would be forgotten, and then an old module matches with the rules of old
sources. The build compiles this checksum into the module; the loader compares it where the C files are
there, which is in a source tree. The build runs this file by its path: it may import no other one.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32


def source_checksum(folder: Path) -> int:
    """The CRC-32 of names and bytes of the C files below a folder; 0 if there are none."""
    checksum = 0
    for file in sorted(folder.rglob("*.[ch]")):
        checksum = crc32(file.read_bytes(), crc32(file.relative_to(folder).as_posix().encode(), checksum))
    return checksum
