"""A compiled matcher or broker as bytes: what took seconds to compile loads in a fraction of one.

    SAPWOOD-INDEX  format  checksum  \n  pickle

The format number changes whenever a class that is pickled changes its fields, its name or its module, so that
a pack of another version is refused instead of misread. The checksum detects damage: a pickle with a changed
byte may well load, and answer wrongly.
"""

from __future__ import annotations

import logging
import pickle
import zlib
from typing import TypeVar

from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.errors import SapwoodError

T = TypeVar("T")

_log = logging.getLogger(__name__)
_MAGIC = b"SAPWOOD-INDEX "
_FORMAT = b"7"
_REMEDY = "make the pack again from the queries"


class PackError(SapwoodError):
    """Raised for bytes that are no packed matcher, or one of another version: make the pack again."""


def pack(matcher: object) -> bytes:
    """Return a matcher or broker as bytes."""
    content = pickle.dumps(matcher, protocol=5)
    _log.debug("packed a %s into %d bytes", type(matcher).__name__, len(content))
    return b"%b%b %08x\n%b" % (_MAGIC, _FORMAT, zlib.crc32(content), content)


def unpack(data: bytes, kind: type[T]) -> T:
    """Return what was packed, which must be of that kind; raise PackError if it cannot be loaded."""
    with pause_garbage_collection():
        found = _load(data)
    _log.debug("unpacked a %s from %d bytes", type(found).__name__, len(data))
    if not isinstance(found, kind):
        other = type(found).__name__
        raise PackError(f"these bytes are no packed {kind.__name__}: {other}.unpack reads them")
    return found


def _load(data: bytes) -> object:
    head, newline, _ = data[:64].partition(b"\n")
    if not (newline and head.startswith(_MAGIC)):
        raise PackError(f"these bytes are no packed matcher; {_REMEDY}")
    format, _, checksum = head.removeprefix(_MAGIC).partition(b" ")
    if format != _FORMAT:
        found = format.decode("ascii", "replace")
        raise PackError(
            f"the matcher was packed in format {found}, this version of Sapwood reads {_FORMAT.decode()}; "
            f"{_REMEDY}"
        )
    content = memoryview(data)[len(head) + 1 :]
    if checksum != b"%08x" % zlib.crc32(content):
        raise PackError(f"the packed matcher is damaged or cut off; {_REMEDY}")
    try:
        return pickle.loads(content)
    except Exception as error:  # classes that have changed since may raise anything
        raise PackError(
            f"the matcher was packed by another version of Sapwood or of a library it uses ({error}); "
            f"{_REMEDY}"
        ) from None
