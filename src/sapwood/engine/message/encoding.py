"""Bytes of an XML message → text, by byte order mark, declaration, or UTF-8."""

from __future__ import annotations

import codecs
import re

from sapwood.errors import MessageError

_DECLARED = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z0-9._\-]+)["']""")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ALL_BYTES = bytes(range(256))
BYTE_ORDER_MARKS = tuple(mark for mark, _ in _MARKS)


def decode_message(data: bytes, encoding: str | None = None) -> str:
    """Return the text of a message; its XML declaration, which would now be wrong, is left in place."""
    try:
        return data.decode(encoding or _encoding_of(data))
    except (UnicodeDecodeError, LookupError) as error:
        raise MessageError(f"the encoding cannot be read: {error}") from None


def transcoded(data: bytes, encoding: str | None = None) -> bytes | None:
    """Return a message in UTF-8, if its encoding is one that expat reads: UTF-16 or a single-byte one."""
    name = encoding or _encoding_of(data)
    try:
        if name.lower().startswith(("utf-16", "utf_16")):
            return data.decode(name).encode("utf-8", "surrogatepass")
        table = _ALL_BYTES.decode(name, "replace")
        if len(table) == 256:
            # Byte by byte, as expat does it: some codecs, `raw_unicode_escape` for one, read more into bytes.
            undefined = table.replace("\ufffd", "\ufffe")
            return codecs.charmap_decode(data, "strict", undefined)[0].encode("utf-8", "surrogatepass")
    except (ValueError, LookupError):
        pass
    return None


def utf8(data: bytes, encoding: str | None = None) -> bytes:
    """Return a message that expat has read in UTF-8."""
    if is_utf8(data, encoding):
        return data
    changed = transcoded(data, encoding)
    return data if changed is None else changed


def is_utf8(data: bytes, encoding: str | None = None) -> bool:
    """Return whether a message is in UTF-8 already, as most are."""
    return (encoding or _encoding_of(data)).lower() in ("utf-8", "utf8", "utf-8-sig", "us-ascii", "ascii")


def _encoding_of(data: bytes) -> str:
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    if data.startswith((b"<\x00", b"\x00<")):
        return "utf-16-le" if data[0] else "utf-16-be"
    declared = _DECLARED.match(data)
    return declared[1].decode("ascii") if declared else "utf-8"
