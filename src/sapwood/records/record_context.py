"""What a record needs from outside itself, and a record as a message of its own."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.records.markup import ATTRIBUTE
from sapwood.records.prolog import Declarations


@dataclass(frozen=True, slots=True)
class Context:
    """What must be put around a record; the same object for neighbours that need the same."""

    prolog: bytes
    """XML declaration and document type, as far as the file has them"""
    element: bytes
    """the record's name as written"""
    namespaces: tuple[tuple[bytes, bytes], ...]
    """`xmlns` or `xmlns:prefix`, and its value with quotes, for each namespace in scope outside the record"""


def message(context: Context, body: bytes) -> bytes:
    """A record's bytes as a message: with the prolog, and in its start tag the namespaces in scope.

    A namespace that the start tag declares itself is left as it is. Of a record that is not complete, this
    is a message that is not well-formed.
    """
    if not context.namespaces:
        return context.prolog + body
    name_end = 1 + len(context.element)
    own = declarations(body, name_end)
    added = b"".join(b" %b=%b" % pair for pair in context.namespaces if pair[0] not in own)
    return b"".join((context.prolog, body[:name_end], added, body[name_end:]))


def declarations(data: bytes, name_end: int) -> Declarations:
    """The namespaces that a start tag declares; the tag's name ends at that place."""
    found: Declarations = {}
    at = name_end
    if data.find(b"xmlns", at, _rough_end(data, at)) < 0:
        return found
    while attribute := ATTRIBUTE.match(data, _after_space(data, at)):
        name, value = attribute.groups()
        if name == b"xmlns" or name.startswith(b"xmlns:"):
            found[name] = value
        at = attribute.end()
    return found


def _rough_end(data: bytes, at: int) -> int:
    """Where the next tag begins, which is after the end of this one."""
    end = data.find(b"<", at)
    return end if end >= 0 else len(data)


def _after_space(data: bytes, at: int) -> int:
    while data[at : at + 1] in (b" ", b"\t", b"\r", b"\n"):
        at += 1
    return at


class Scope:
    """The namespaces in scope within the elements that are open around a place of the file."""

    __slots__ = ("_count", "_defaults", "_names", "_outer", "namespaces")

    def __init__(self, defaults: dict[bytes, Declarations]) -> None:
        self.namespaces: Declarations = {}  # replaced, never changed
        self._defaults = defaults
        self._names: list[bytes] = []
        self._outer: list[Declarations] = []  # for each open element: what is in scope around it
        self._count: dict[bytes, int] = {}  # open elements by name

    def __len__(self) -> int:
        return len(self._names)

    def open(self, name: bytes, data: bytes, name_end: int) -> None:
        """Enters an element whose start tag's name ends at that place of the data."""
        self._names.append(name)
        self._outer.append(self.namespaces)
        self._count[name] = self._count.get(name, 0) + 1
        made = {**self._defaults.get(name, {}), **declarations(data, name_end)}
        if made:
            in_scope = {**self.namespaces, **made}
            self.namespaces = {name: value for name, value in in_scope.items() if len(value) > len('""')}

    def close(self, name: bytes) -> None:
        """Leaves the innermost open element of that name, and all within it; passes over a name not open."""
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
