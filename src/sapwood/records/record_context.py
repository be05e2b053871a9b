"""The context of a record in its file, and the message that is made of both."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.records.markup import ATTRIBUTE
from sapwood.records.prolog import Declarations


@dataclass(frozen=True, slots=True)
class Context:
    """The context that a record needs as a message; neighbours with an equal context share the object."""

    prolog: bytes
    """XML declaration and document type, if the file has them"""
    element: bytes
    """the name of the record as written"""
    namespaces: tuple[tuple[bytes, bytes], ...]
    """`xmlns` or `xmlns:prefix`, and its value with quotes, for each namespace in scope outside the record"""


def message(context: Context, body: bytes) -> bytes:
    """Return a record as a message: with the prolog, and with the namespaces in scope in its start tag.

    Namespaces that the start tag declares itself are not replaced. An incomplete record gives a message that
    is not well-formed.
    """
    if not context.namespaces:
        return context.prolog + body
    name_end = 1 + len(context.element)
    own = parse_declarations(body, name_end)
    added = b"".join(b" %b=%b" % pair for pair in context.namespaces if pair[0] not in own)
    return b"".join((context.prolog, body[:name_end], added, body[name_end:]))


def parse_declarations(data: bytes, name_end: int) -> Declarations:
    """Return the namespaces that a start tag declares, whose name ends at that index."""
    found: Declarations = {}
    at = name_end
    if data.find(b"xmlns", at, _next_tag(data, at)) < 0:
        return found
    while attribute := ATTRIBUTE.match(data, _skip_space(data, at)):
        name, value = attribute.groups()
        if name == b"xmlns" or name.startswith(b"xmlns:"):
            found[name] = value
        at = attribute.end()
    return found


def _next_tag(data: bytes, at: int) -> int:
    """Return the index of the next tag, which is after the end of this one."""
    end = data.find(b"<", at)
    return end if end >= 0 else len(data)


def _skip_space(data: bytes, at: int) -> int:
    while data[at : at + 1] in (b" ", b"\t", b"\r", b"\n"):
        at += 1
    return at


class Scope:
    """The open elements at a position of the file, and the namespaces in scope there."""

    __slots__ = ("_count", "_defaults", "_names", "_outer", "namespaces")

    def __init__(self, defaults: dict[bytes, Declarations]) -> None:
        self.namespaces: Declarations = {}  # replaced, never changed
        self._defaults = defaults
        self._names: list[bytes] = []
        self._outer: list[Declarations] = []  # for each open element: the namespaces in scope around it
        self._count: dict[bytes, int] = {}  # open elements by name

    def __len__(self) -> int:
        return len(self._names)

    def open(self, name: bytes, data: bytes, name_end: int) -> None:
        """Enter an element, whose name in the start tag ends at that index of the data."""
        self._names.append(name)
        self._outer.append(self.namespaces)
        self._count[name] = self._count.get(name, 0) + 1
        declared = {**self._defaults.get(name, {}), **parse_declarations(data, name_end)}
        if declared:
            in_scope = {**self.namespaces, **declared}
            self.namespaces = {name: value for name, value in in_scope.items() if len(value) > len('""')}

    def close(self, name: bytes) -> None:
        """Leave the innermost open element of that name, and all in it; ignore a name that is not open."""
        if name not in self._count:
            return
        closed = b""
        while closed != name:
            closed = self._names.pop()
            self.namespaces = self._outer.pop()
            if self._count[closed] == 1:
                del self._count[closed]
            else:
                self._count[closed] -= 1
