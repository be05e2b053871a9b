"""The prolog of a document: encoding, XML declaration and document type."""

from __future__ import annotations

import codecs
from contextlib import suppress
from functools import cache
from xml.parsers import expat

from sapwood.errors import RecordError
from sapwood.records.markup import DECLARED_ENCODING

Declarations = dict[bytes, bytes]
"""`xmlns` or `xmlns:prefix` → its value as written, with quotes"""

_EBCDIC = b"\x4c\x6f\xa7\x94"  # `<?xm` in EBCDIC


def check_width(head: bytes) -> None:
    """Raise a RecordError if the first four bytes of a file show an encoding that does not extend ASCII."""
    if head.startswith(_EBCDIC):
        encoding = "IBM037"
    elif head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) or head.count(0) == 3:
        encoding = "UTF-32"
    elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 0 in head[:2]:
        encoding = "UTF-16"
    else:
        return
    raise RecordError(f"records cannot be split in the encoding {encoding}", 0, _conversion_hint(encoding))


def declared_encoding(declaration: bytes, offset: int) -> str:
    """Return the encoding in an XML declaration, or UTF-8; raise RecordError if it does not extend ASCII."""
    found = DECLARED_ENCODING.search(declaration)
    if not found:
        return "utf-8"
    name = found[1].decode("ascii", "replace")
    try:
        if extends_ascii(name):
            return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise RecordError(f"the encoding {name!r} is unknown", offset, _conversion_hint(name)) from None
    raise RecordError(f"records cannot be split in the encoding {name!r}", offset, _conversion_hint(name))


def _conversion_hint(encoding: str) -> str:
    return f"convert the file first: iconv -f {encoding} -t UTF-8 (and correct the declared encoding)"


@cache
def extends_ascii(encoding: str) -> bool:
    """Return whether an ASCII byte is that character at any position.

    In Shift-JIS, for example, `]` may be the second half of a character; in UTF-7, `+` is not a plus.
    """
    ascii_bytes = [bytes([byte]) for byte in range(128)]
    try:
        if any(byte.decode(encoding) != byte.decode("ascii") for byte in ascii_bytes):
            return False
    except UnicodeDecodeError:
        return False
    leads = [bytes([byte]) for byte in range(128, 256)]
    after = b"  "  # so that a character of three bytes is not truncated
    pairs = ((lead, byte + after) for lead in leads for byte in ascii_bytes)
    return all((lead + rest).decode(encoding, "replace")[-3:] == rest.decode() for lead, rest in pairs)


def default_declarations(doctype: bytes, encoding: str) -> dict[bytes, Declarations]:
    """Return the namespaces that a document type declares by default, by element (as that of XHTML does)."""
    found: dict[bytes, Declarations] = {}
    if b"ATTLIST" not in doctype or b"xmlns" not in doctype:
        return found

    def attribute(element: str, name: str, kind: str, default: str | None, required: bool) -> None:
        if default is not None and (name == "xmlns" or name.startswith("xmlns:")):
            # Of several declarations of an attribute, the first is binding.
            found.setdefault(element.encode(encoding), {}).setdefault(name.encode(encoding), _quoted(default))

    parser = expat.ParserCreate("utf-8")
    parser.AttlistDeclHandler = attribute
    with suppress(expat.ExpatError):  # each message with this document type is rejected then
        parser.Parse(doctype.decode(encoding, "replace").encode() + b"<_/>", True)
    parser.AttlistDeclHandler = None
    return found


def _quoted(value: str) -> bytes:
    escaped = value.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return b'"' + escaped.encode("ascii", "xmlcharrefreplace") + b'"'
