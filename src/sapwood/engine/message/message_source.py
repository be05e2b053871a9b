"""The forms in which a message is passed: bytes, text, a file's path, or an lxml tree."""

from __future__ import annotations

from os import fspath
from pathlib import Path

from lxml import etree

from sapwood.errors import MessageError

Source = bytes | bytearray | memoryview | str | Path | etree._Element | etree._ElementTree


def content(source: Source) -> tuple[bytes, str | None]:
    """Return the bytes of a message, and the encoding that overrides what they declare, if any.

    A str is always a message, never the name of a file: messages must not name files to read. Of an element,
    the message is that element, with the namespaces in scope; of a tree, all of it.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), None
    if isinstance(source, str):
        return source.encode("utf-8", "surrogatepass"), "utf-8"
    if isinstance(source, Path):
        return _read(source), None
    if isinstance(source, etree._Element | etree._ElementTree):
        return _serialized(source), "utf-8"
    raise TypeError(
        f"a message is bytes, str, a pathlib.Path, or an element or tree of lxml, not {_described(source)}"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MessageError(f"there is no file {fspath(path)!r}") from None
    except (OSError, ValueError) as error:  # the latter for a name with a zero in it
        reason = getattr(error, "strerror", None) or str(error)
        raise MessageError(f"{fspath(path)!r} cannot be read: {reason}") from None


def _serialized(tree: etree._Element | etree._ElementTree) -> bytes:
    if isinstance(tree, etree._ElementTree) and tree.getroot() is None:
        raise MessageError("the tree has no root element")
    data: bytes = etree.tostring(tree, encoding="utf-8", xml_declaration=False, with_tail=False)
    return data


def _described(source: object) -> str:
    kind = type(source)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
