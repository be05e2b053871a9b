"""Messages as streams of elements, from which their text comes back byte for byte.

    <a x="1"><b>two</b>      start a, 1 attribute, x, '1'; start b; text 'two'; end

Only tags in their usual form become items: one space before each attribute, double quotes, an end tag with
the name of its start tag. Everything else (comments, CDATA, document types, other quotes and blanks, bytes in
any encoding) is literal text, so that the stream of any bytes is these bytes again.

Names are written out, or are numbers in a list of names that both sides have. An item of a stream is

    bytes                     literal text
    0                         an end tag
    number > 0                a start tag: 1 + 4 × name + 2 if it has attributes + 1 if it is empty
    number < 0                the same, negated, with name 0: the name follows, in bytes

and behind a start tag with attributes come their number and, of each, the name (its number, or bytes) and
the value as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]

_TOKEN = re.compile(
    rb"""<([^\s<>/!?="']+)((?:\ [^\s<>/="']+="[^"<]*")*)(/?)>   # 1 name, 2 attributes, 3 empty
    | </([^\s<>/!?="']+)>                                        # 4 name
    """,
    re.VERBOSE,
)
_ATTRIBUTE = re.compile(rb' ([^\s<>/="\']+)="([^"<]*)"')
_END = 0
_EMPTY, _HAS_ATTRIBUTES = 1, 2

MOST_TEXT = 256 * 2**20
NO_NAMES: Mapping[bytes, int] = {}


class ElementStreamError(ValueError):
    """Raised for bytes that are no stream of elements."""


def encode_elements(text: bytes, numbers: Mapping[bytes, int] = NO_NAMES) -> bytes:
    """Return a text as a stream of elements; names that have a number are written as that."""
    items: list[Any] = []
    add, number_of = items.append, numbers.get
    names: list[bytes] = []
    at = 0
    for token in _TOKEN.finditer(text):
        start = token.start()
        name, attributes, empty, closed = token.groups()
        if closed is not None:
            if not names or names[-1] != closed:
                continue  # which makes it literal text
            names.pop()
            if start > at:
                add(text[at:start])
            add(_END)
            at = token.end()
            continue
        if start > at:
            add(text[at:start])
        at = token.end()
        if empty:
            kind = 1 + _EMPTY
        else:
            kind = 1
            names.append(name)
        if attributes:
            kind += _HAS_ATTRIBUTES
        number = number_of(name)
        if number is None:
            add(-kind)
            add(name)
        else:
            add(kind + 4 * number)
        if attributes:
            pairs = _ATTRIBUTE.findall(attributes)
            add(len(pairs))
            for key, value in pairs:
                add(number_of(key, key))
                add(value)
    if at < len(text):
        add(text[at:])
    encoded: bytes = msgpack.packb(items)
    return encoded


def decode_elements(stream: bytes, names: Sequence[bytes] = (), most: int = MOST_TEXT) -> bytes:
    """Return the text of a stream; ElementStreamError if it is none, its names are not these, or the text has
    more bytes than `most`."""
    try:
        unpacker = msgpack.Unpacker(max_buffer_size=len(stream) + 1, max_map_len=0, max_ext_len=0)
        unpacker.feed(stream)
        count = unpacker.read_array_header()
        if count > len(stream):
            raise ValueError("more items than bytes")
        return b"".join(_write_items(_read_items(unpacker, count), names, most))
    except (
        ValueError,
        TypeError,
        IndexError,
        StopIteration,
        RuntimeError,
        msgpack.UnpackException,
    ) as error:
        raise ElementStreamError(f"{len(stream):,} bytes are no stream of elements: {error}") from error


def _read_items(unpacker: Any, count: int) -> Iterator[Any]:
    for _ in range(count):
        item = unpacker.unpack()
        if type(item) not in (int, bytes):  # a list of lists takes a hundred times its bytes
            raise TypeError("an item that is neither a number nor bytes")
        yield item
    if any(True for _ in unpacker):
        raise ValueError("more bytes behind its end")


def _write_items(items: Iterator[Any], names: Sequence[bytes], most: int) -> list[bytes]:
    parts: list[bytes] = []
    size = 0

    def add(part: bytes) -> None:
        nonlocal size
        size += len(part)
        if size > most:
            raise ValueError(f"a text of more than {most:,} bytes")
        parts.append(part)

    opened: list[bytes] = []
    for item in items:
        if isinstance(item, bytes):
            add(item)
        elif item == _END:
            add(b"</%b>" % opened.pop())
        else:
            kind = abs(item) - 1
            name = next(items) if item < 0 else names[kind >> 2]
            add(b"<" + name)
            if kind & _HAS_ATTRIBUTES:
                for _ in range(next(items)):
                    key = next(items)
                    add(b' %b="%b"' % (key if isinstance(key, bytes) else names[key], next(items)))
            if kind & _EMPTY:
                add(b"/>")
            else:
                add(b">")
                opened.append(name)
    return parts
