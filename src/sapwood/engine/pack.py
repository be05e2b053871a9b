"""A matcher as bytes: what was compiled in seconds is ready again in a fraction of one.

    SAPWOOD-INDEX  format  \n  pickle

The format number changes whenever anything that is packed changes its shape, so that an index from another
version is told apart instead of being misread.
"""

from __future__ import annotations

import pickle

from sapwood.errors import SapwoodError

_MAGIC = b"SAPWOOD-INDEX "
_FORMAT = b"1"


class PackError(SapwoodError):
    """Bytes that are no packed matcher, or one of another version; compile the queries instead."""


def pack(matcher: object) -> bytes:
    return _MAGIC + _FORMAT + b"\n" + pickle.dumps(matcher, protocol=5)


def unpack(data: bytes) -> object:
    head, newline, _ = data[:64].partition(b"\n")
    if not (newline and head.startswith(_MAGIC)):
        raise PackError("these bytes are no packed matcher; compile the queries anew")
    if head != _MAGIC + _FORMAT:
        found = head.removeprefix(_MAGIC).decode("ascii", "replace")
        raise PackError(
            f"the matcher was packed in format {found}, this version of Sapwood reads {_FORMAT.decode()}; "
            "compile the queries anew"
        )
    try:
        return pickle.loads(memoryview(data)[len(head) + 1 :])
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError) as error:
        raise PackError(f"the packed matcher is damaged ({error}); compile the queries anew") from None
