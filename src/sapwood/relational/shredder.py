"""Messages as rows: what they say that somebody wants to know.

Nodes are numbered in document order, attributes and text nodes among them. A row has the numbers from the
root element down to the value, where branching points ask for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pyarrow as pa

from sapwood.engine.limits import Limits
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message, read_document
from sapwood.errors import MessageError
from sapwood.lang.literals.numbers import to_number
from sapwood.relational.paths.linear_path import TagPath
from sapwood.relational.paths.path_catalog import Uses
from sapwood.relational.paths.tag_tree import TagNode, TagTree
from sapwood.relational.rules.comparisons import number_key, text_key

_AT_ONCE = 64
_BYTES_AT_ONCE = 4 * 1024 * 1024
"""Messages read before what is new in them is found out; their nodes are in memory meanwhile."""

_PRESENCE, _TEXT, _TEXT_KEY = int(Uses.PRESENCE), int(Uses.TEXT), int(Uses.TEXT_KEY)
_NUMBER, _NUMBER_KEY, _NODES = int(Uses.NUMBER), int(Uses.NUMBER_KEY), int(Uses.NODES)
_VALUED = _TEXT | _TEXT_KEY | _NUMBER | _NUMBER_KEY

VALUE = pa.schema(
    [
        ("msg", pa.int32()),
        ("tag", pa.int32()),
        ("text", pa.string()),
        ("number", pa.float64()),
        ("text_key", pa.int64()),
        ("number_key", pa.int64()),
        ("nodes", pa.list_(pa.int32())),
    ]
)
MESSAGE = pa.schema([("msg", pa.int32())])

_MOST_COPIES = 8
"""How many times its text the string-values of a message may come to, if that is more than `Limits.bytes`."""

_MOST_TEXTS = 100_000
"""converted texts that are remembered"""


@dataclass(slots=True)
class ShreddedBatch:
    """What a batch says: its rows, and why some messages could not be read, by their numbers."""

    parts: list[pa.Table] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    refused: dict[int, MessageError] = field(default_factory=dict)

    @property
    def values(self) -> pa.Table:
        return pa.concat_tables([VALUE.empty_table(), *self.parts])

    @property
    def messages(self) -> pa.Table:
        return pa.table([pa.array(self.read, pa.int32())], schema=MESSAGE)


class Shredder:
    """Reads messages with the tag paths that are known, finding out about new ones."""

    def __init__(self, tags: TagTree, limits: Limits) -> None:
        self._tags = tags
        self._limits = limits

    def read(self, messages: Sequence[Message]) -> ShreddedBatch:
        """What the messages say, numbered as they come."""
        self._tags.settle()
        said = ShreddedBatch()
        for some in _portions(messages):
            documents: list[tuple[int, Document]] = []
            for number in some:
                known = len(self._tags.new)
                try:
                    documents.append((number, self.document(messages[number])))
                except MessageError as error:
                    self._tags.forget_new(known)
                    said.refused[number] = error
            self._tags.know(_new_attributes(documents))
            columns: tuple[list[Any], ...] = tuple([] for _ in VALUE)
            for number, document in documents:
                _attributes_wanted(document, self._tags)
                try:
                    _check_values(document, self._limits)
                except MessageError as error:
                    said.refused[number] = error
                    continue
                said.read.append(number)
                _add_rows(number, document, columns)
            arrays = [pa.array(column, f.type) for column, f in zip(columns, VALUE, strict=True)]
            said.parts.append(pa.table(arrays, schema=VALUE))
        return said

    def document(self, message: Message) -> Document:
        return read_document(message, self._limits, self._tags.root, with_text=True)


def _portions(messages: Sequence[Message]) -> Iterator[list[int]]:
    portion: list[int] = []
    size = 0
    for number, message in enumerate(messages):
        portion.append(number)
        size += len(message.data)
        if len(portion) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _new_attributes(documents: list[tuple[int, Document]]) -> list[TagPath]:
    """The tag paths of attributes that were never seen at their element."""
    found: dict[TagPath, None] = {}
    for _, document in documents:
        for node, attributes in zip(document.places, document.attributes, strict=True):
            if attributes:
                assert isinstance(node, TagNode)
                for name in attributes[::2]:
                    if name not in node.attribute:
                        found[(*node.path, f"@{name}")] = None
    return list(found)


def _attributes_wanted(document: Document, tags: TagTree) -> None:
    """Lets nodes know what is wanted of attributes that are new to them."""
    for node, attributes in zip(document.places, document.attributes, strict=True):
        if attributes:
            assert isinstance(node, TagNode)
            for name in attributes[::2]:
                if name not in node.attribute:
                    node.attribute[name] = tags.wanted((*node.path, f"@{name}"))


def _check_values(document: Document, limits: Limits) -> None:
    """Refuses a message whose nested elements would each put the same text into rows of their own."""
    text = document.text_offsets[-1]
    most = max(limits.bytes, _MOST_COPIES * text)
    if text * len(document) <= most:
        return
    total = 0
    for element, node in enumerate(document.places):
        assert isinstance(node, TagNode)
        if node.element is not None and node.element[1] & _VALUED:
            start, end = document.value_range(element)
            total += end - start
    if total > most:
        raise MessageError(
            f"the values of nested elements have {total:,} characters together; the limit is {most:,}"
        )


class _Converted(dict[str, tuple[int, float | None, int | None]]):
    """Text → its key, its number if it is one, and the number's key; remembers short ones."""

    def __missing__(self, text: str) -> tuple[int, float | None, int | None]:
        number = to_number(text)
        known = number == number
        found = text_key(text), number if known else None, number_key(number) if known else None
        if len(text) <= 64:
            if len(self) >= _MOST_TEXTS:
                self.clear()
            self[text] = found
        return found


_converted = _Converted()


def _add_rows(message: int, document: Document, columns: tuple[list[Any], ...]) -> None:
    """Adds the rows of one message. This runs for every value, so it is written to be fast."""
    tags, texts, numbers, text_keys, number_keys, nodes = columns[1:]
    before = len(tags)
    present: set[int] = set()
    lineage = _Lineage(document)

    def add(wanted: tuple[int, int], text: str | None, element: int, leaf: int) -> None:
        tag, uses = wanted
        if uses == _PRESENCE:
            if tag in present:
                return
            present.add(tag)
        tags.append(tag)
        nodes.append(lineage.of(element, leaf) if uses & _NODES else None)
        if text is None or not uses & _VALUED:
            texts.append(None)
            numbers.append(None)
            text_keys.append(None)
            number_keys.append(None)
            return
        key, number, key_of_number = _converted[text]
        texts.append(text if uses & _TEXT else None)
        numbers.append(number if uses & _NUMBER else None)
        text_keys.append(key if uses & _TEXT_KEY else None)
        number_keys.append(key_of_number if uses & _NUMBER_KEY else None)

    places: list[TagNode] = document.places  # type: ignore[assignment]  # of the tree that it was read with
    attributes_of = document.attributes
    for element, node in enumerate(places):
        wanted = node.element
        if wanted is not None:
            add(wanted, document.string_value(element) if wanted[1] & _VALUED else None, element, 0)
        attributes = attributes_of[element]
        if attributes:
            known = node.attribute
            for i in range(0, len(attributes), 2):
                wanted = known[attributes[i]]
                if wanted is not None:
                    add(wanted, attributes[i + 1], element, i // 2 + 1)
    for number, element in enumerate(document.text_parents):
        wanted = places[element].text_node
        if wanted is not None:
            add(wanted, document.texts[number], element, -number - 1)
    columns[0].extend([message] * (len(tags) - before))


class _Lineage:
    """The numbers of nodes, from the root element down."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._numbers: list[int] = []
        self._paths: list[list[int] | None] = [[], *[None] * (len(document) - 1)]

    def of(self, element: int, leaf: int) -> list[int]:
        """Down to an element (`leaf` 0), one of its attributes, counted from 1, or, negative, a text node."""
        path = self._paths[element] or self._found(element)
        if not leaf:
            return path
        if leaf > 0:
            return [*path, path[-1] + leaf]
        document, text = self._document, -leaf - 1
        after = document.text_after[text]
        # behind that element and its attributes, and the text nodes that began since
        own = len(document.attributes[after]) // 2 + text - document.text_starts[after] + 1
        return [*path, self._numbers[after] + own]

    def _found(self, element: int) -> list[int]:
        document = self._document
        if not self._numbers:
            counts = accumulate([len(attributes) // 2 for attributes in document.attributes], initial=0)
            # before an element: the elements and attributes and text nodes that began earlier
            self._numbers = [
                element + attributes + texts
                for element, (attributes, texts) in enumerate(zip(counts, document.text_starts, strict=False))
            ]
        above: list[int] = []
        parent = element
        while parent and self._paths[parent] is None:
            above.append(parent)
            parent = document.parents[parent]
        path = self._paths[parent] or []
        for parent in reversed(above):
            path = self._paths[parent] = [*path, self._numbers[parent]]
        return path
