"""What stands before a document's root: encoding, XML declaration, document type."""

from __future__ import annotations

import codecs
from contextlib import suppress
from functools import cache
from xml.parsers import expat

from sapwood.errors import RecordError
from sapwood.records.markup import DECLARED_ENCODING

Declarations = dict[bytes, bytes]
"""`xmlns` or `xmlns:prefix` → its value as written, with quotes"""

_EBCDIC = b"\x4c\x6f\xa7\x94"  # `<?xm` there


def check_width(head: bytes) -> None:
    """Raises a RecordError if the file's first four bytes are of an encoding in which ASCII is not ASCII."""
    if head.startswith(_EBCDIC):
        encoding = "IBM037"
    elif head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) or head.count(0) == 3:
        encoding = "UTF-32"
    elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 0 in head[:2]:
        encoding = "UTF-16"
    else:
        return
    raise RecordError(f"records are not looked for in {encoding}", 0, _convert(encoding))


def declared_encoding(declaration: bytes, offset: int) -> str:
    """The encoding that an XML declaration states, or UTF-8; a RecordError if it cannot be read as bytes."""
    found = DECLARED_ENCODING.search(declaration)
    if not found:
        return "utf-8"
    name = found[1].decode("ascii", "replace")
    try:
        if extends_ascii(name):
            return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise RecordError(f"the encoding {name!r} is not known", offset, _convert(name)) from None
    raise RecordError(f"records are not looked for in the encoding {name!r}", offset, _convert(name))


def _convert(encoding: str) -> str:
    return f"convert the file first: iconv -f {encoding} -t UTF-8 (and correct the encoding it declares)"


@cache
def extends_ascii(encoding: str) -> bool:
    """Whether an ASCII byte is that character wherever it stands.

    In Shift-JIS, for one, `]` may be the second half of a character; in UTF-7, `+` is not a plus.
    """
    ascii_bytes = [bytes([byte]) for byte in range(128)]
    try:
        if any(byte.decode(encoding) != byte.decode("ascii") for byte in ascii_bytes):
            return False
    except UnicodeDecodeError:
        return False
    leads = [bytes([byte]) for byte in range(128, 256)]
    after = b"  "  # or a character of three bytes would only be cut
    pairs = ((lead, byte + after) for lead in leads for byte in ascii_bytes)
    return all((lead + rest).decode(encoding, "replace")[-3:] == rest.decode() for lead, rest in pairs)


def default_declarations(doctype: bytes, encoding: str) -> dict[bytes, Declarations]:
    """Element → namespaces that the document type declares on it by default (as that of XHTML does)."""
    found: dict[bytes, Declarations] = {}
    if b"ATTLIST" not in doctype or b"xmlns" not in doctype:
        return found

    def attribute(element: str, name: str, kind: str, default: str | None, required: bool) -> None:
        if default is not None and (name == "xmlns" or name.startswith("xmlns:")):
            # The first declaration of an attribute is the one that counts.
            found.setdefault(element.encode(encoding), {}).setdefault(name.encode(encoding), _quoted(default))

    parser = expat.ParserCreate("utf-8")
    parser.AttlistDeclHandler = attribute
    with suppress(expat.ExpatError):  # if any, every message with this document type says so
        parser.Parse(doctype.decode(encoding, "replace").encode() + b"<_/>", True)
    parser.AttlistDeclHandler = None
    return found


def _quoted(value: str) -> bytes:
    escaped = value.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return b'"' + escaped.encode("ascii", "xmlcharrefreplace") + b'"'
