"""A matcher as bytes: what was compiled in seconds is ready again in a fraction of one.

    SAPWOOD-INDEX  format  checksum  \n  pickle

The format number changes whenever anything that is packed changes its shape, so that an index from another
version is told apart instead of being misread. The checksum tells damage: a pickle with a changed byte may
well load, and answer wrongly.
"""

from __future__ import annotations

import pickle
import zlib
from typing import TypeVar

from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.errors import SapwoodError

T = TypeVar("T")

_MAGIC = b"SAPWOOD-INDEX "
_FORMAT = b"3"


class PackError(SapwoodError):
    """Bytes that are no packed matcher, or one of another version; compile the queries instead."""


def pack(matcher: object) -> bytes:
    content = pickle.dumps(matcher, protocol=5)
    return b"%b%b %08x\n%b" % (_MAGIC, _FORMAT, zlib.crc32(content), content)


def unpack(data: bytes, kind: type[T]) -> T:
    """What was packed, which must be of that kind."""
    with pause_garbage_collection(lambda: False):
        found = _loaded(data)
    if not isinstance(found, kind):
        other = type(found).__name__
        raise PackError(f"these bytes are no packed {kind.__name__}: {other}.unpack reads them")
    return found


def _loaded(data: bytes) -> object:
    head, newline, _ = data[:64].partition(b"\n")
    if not (newline and head.startswith(_MAGIC)):
        raise PackError("these bytes are no packed matcher; compile the queries anew")
    format, _, checksum = head.removeprefix(_MAGIC).partition(b" ")
    if format != _FORMAT:
        found = format.decode("ascii", "replace")
        raise PackError(
            f"the matcher was packed in format {found}, this version of Sapwood reads {_FORMAT.decode()}; "
            "compile the queries anew"
        )
    content = memoryview(data)[len(head) + 1 :]
    if checksum != b"%08x" % zlib.crc32(content):
        raise PackError("the packed matcher is damaged or cut off; compile the queries anew")
    try:
        return pickle.loads(content)
    except Exception as error:  # whatever classes that have changed since may raise
        raise PackError(
            f"the matcher was packed by another version of Sapwood or of a library it uses ({error}); "
            "compile the queries anew"
        ) from None
