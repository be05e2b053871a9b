"""The writer of results: templates filled with nodes, the last step of every transformation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sapwood.engine.message.document import ContextNode, Document, LeafNode
from sapwood.lang.fwr.model import TemplateHole, Transformation
from sapwood.lang.literals import escaping
from sapwood.lang.namespaces import XML_NAMESPACE
from sapwood.transform.source_fragments import SourceFragments


@dataclass(frozen=True, slots=True)
class LxmlItem:
    """An item of lxml that is no node of the document."""

    kind: str
    """`attribute`, `text`, `markup` (a comment or processing instruction) or `value`"""
    value: str
    name: str = ""
    """of an attribute, as the message reader spells it"""
    xml: str = ""
    """of markup"""


Item = ContextNode | LxmlItem


@dataclass(frozen=True, slots=True)
class ResultTemplate:
    """A template with its constants as bytes."""

    before: bytes
    parts: tuple[bytes | TemplateHole, ...]
    after: bytes
    spaced: bool

    @staticmethod
    def of(transformation: Transformation) -> ResultTemplate:
        parts = [
            part if isinstance(part, TemplateHole) else part.encode() for part in transformation.template
        ]
        before, after = transformation.before.encode(), transformation.after.encode()
        return ResultTemplate(before, tuple(parts), after, transformation.spaced)

    def alone(self, group: bytes) -> bytes:
        """Return the result of one group."""
        return b"%b%b%b" % (self.before, group, self.after) if self.before or self.after else group

    def body(self, groups: Iterable[bytes]) -> bytes:
        """Return the result of several groups."""
        return b"%b%b%b" % (self.before, (b" " if self.spaced else b"").join(groups), self.after)


class ResultWriter:
    """Fills templates with the nodes of one message."""

    def __init__(self, document: Document, fragments: SourceFragments) -> None:
        self._document = document
        self._fragments = fragments

    def group(self, template: ResultTemplate, lists: Sequence[Sequence[Item]]) -> bytes:
        """Write the template once, each hole filled with its list."""
        return fill_template(template.parts, ((self, items) for items in lists))

    def fill(self, hole: TemplateHole, items: Sequence[Item], taken: set[str]) -> Iterable[bytes]:
        """Fill a hole with a list; `taken` are the names of the attributes before it in the start tag."""
        if hole.standing == "attributes":
            return (self._attributes(items, taken).encode(),)
        if hole.kind == "nodes" and hole.standing == "content":
            element = self._fragments.element
            return [
                element(item, hole.default_namespace) if isinstance(item, int) else self._content(item)
                for item in items
            ]
        value = self._value(hole, items)
        in_tag = hole.standing == "attribute value"
        return ((escaping.escape_attribute(value) if in_tag else escaping.escape_content(value)).encode(),)

    def _content(self, item: LeafNode | LxmlItem) -> bytes:
        markup = isinstance(item, LxmlItem) and item.xml
        return (markup or escaping.escape_content(self._string(item))).encode()

    def _value(self, hole: TemplateHole, items: Sequence[Item]) -> str:
        if hole.kind == "count":
            return str(len(items))
        if hole.kind == "nodes":
            return " ".join(map(self._string, items))
        return self._string(items[0]) if items else ""

    def _string(self, item: Item) -> str:
        return item.value if isinstance(item, LxmlItem) else self._document.string_value(item)

    def _attributes(self, items: Sequence[Item], taken: set[str]) -> str:
        """Write attributes of a start tag; of several with one name, the first."""
        pieces: list[str] = []
        for item in items:
            name, value = self._attribute(item)
            if name not in taken:
                taken.add(name)
                pieces.append(_attribute(name, value, len(taken)))
        return "".join(pieces)

    def _attribute(self, item: Item) -> tuple[str, str]:
        if isinstance(item, LxmlItem):
            return item.name, item.value
        assert isinstance(item, LeafNode)
        return self._document.attributes[item.element][2 * item.number], self._string(item)


def fill_template(
    parts: Sequence[bytes | TemplateHole], lists: Iterable[tuple[ResultWriter, Sequence[Item]]]
) -> bytes:
    """Write a template once, each hole filled with the next list, by the writer of the list's message."""
    pieces: list[bytes] = []
    filled = iter(lists)
    taken: set[str] | None = None
    for part in parts:
        if isinstance(part, bytes):
            pieces.append(part)
            taken = None
            continue
        taken = set(part.taken) if taken is None else taken
        writer, items = next(filled)
        pieces += writer.fill(part, items, taken)
    return b"".join(pieces)


def _attribute(name: str, value: str, number: int) -> str:
    """Write an attribute for a start tag, with a prefix of its own if it is in a namespace."""
    uri, _, local = name.rpartition("}")
    written = f'="{escaping.escape_attribute(value)}"'
    if not uri:
        return f" {local}{written}"
    if uri == XML_NAMESPACE:
        return f" xml:{local}{written}"
    prefix = f"sapwood{number}"  # which no constructor may declare
    return f' xmlns:{prefix}="{escaping.escape_attribute(uri)}" {prefix}:{local}{written}'
