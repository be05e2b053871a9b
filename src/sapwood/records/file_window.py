"""A sliding window over a file that is read forward."""

from __future__ import annotations

from typing import BinaryIO

from sapwood.errors import RecordError

LONGEST_MARKUP = 16 * 1024 * 1024
"""The longest tag or document type in bytes, which has to fit in memory; a longer one fits in no message."""


class Window:
    """Consecutive bytes of a file, and a position in them, before which the bytes may be dropped."""

    __slots__ = ("_base", "_file", "_step", "data", "pos")

    def __init__(self, file: BinaryIO, step: int) -> None:
        self.data = b""
        self.pos = 0
        self._base = 0  # offset of `data` in the file
        self._file = file
        self._step = step

    @property
    def offset(self) -> int:
        """The offset of the position in the file."""
        return self._base + self.pos

    def offset_of(self, index: int) -> int:
        """Return the offset in the file of an index in `data`."""
        return self._base + index

    def more(self) -> bool:
        """Drop the bytes before the position and read more; return False, and change nothing, at the end."""
        # As much again as remains: the bytes that are searched again add up to at most twice their number.
        read = self._file.read(max(self._step, len(self.data) - self.pos))
        if not read:
            return False
        self.data = self.data[self.pos :] + read
        self._base += self.pos
        self.pos = 0
        return True

    def more_of(self, what: str) -> bool:
        """Read more of a piece of markup; raise RecordError if it is too long."""
        if len(self.data) - self.pos > LONGEST_MARKUP:
            hint = "is a quote or a bracket missing?"
            raise RecordError(f"{what} of more than {LONGEST_MARKUP:,} bytes", self.offset, hint)
        return self.more()

    def ahead(self, count: int) -> bytes:
        """Return the next `count` bytes, or fewer at the end of the file."""
        while len(self.data) - self.pos < count and self.more():
            pass
        return self.data[self.pos : self.pos + count]

    def skip_to(self, wanted: bytes) -> bool:
        """Move to the next occurrence; return False, at the end of the file, if there is none."""
        while (found := self.data.find(wanted, self.pos)) < 0:
            # Its first bytes may be in the window already.
            self.pos = max(self.pos, len(self.data) - len(wanted) + 1)
            if not self.more():
                self.pos = len(self.data)
                return False
        self.pos = found
        return True

    def skip_past(self, wanted: bytes) -> bool:
        """Move behind the next occurrence; return False, at the end of the file, if there is none."""
        found = self.skip_to(wanted)
        if found:
            self.pos += len(wanted)
        return found
