"""Messages as rows: what they say that somebody wants to know.

Nodes are numbered in document order, attributes and text nodes among them. A row has the numbers from the
root element down to the value, where branching points ask for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

import pyarrow as pa

from sapwood.engine.document import Document
from sapwood.engine.limits import Limits
from sapwood.engine.reader import Message, read_document
from sapwood.errors import MessageError
from sapwood.lang.numbers import to_number
from sapwood.relational.linear import TagPath
from sapwood.relational.ops import number_key, text_key
from sapwood.relational.paths import Uses
from sapwood.relational.tag_tree import TagNode, TagTree

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

_text_key = lru_cache(maxsize=65_536)(text_key)
_number_key = lru_cache(maxsize=65_536)(number_key)


@dataclass(slots=True)
class Said:
    """What a batch says: its rows, and why some messages could not be read, by their numbers."""

    columns: tuple[list[object], ...] = field(default_factory=lambda: tuple([] for _ in VALUE))
    read: list[int] = field(default_factory=list)
    refused: dict[int, MessageError] = field(default_factory=dict)

    @property
    def values(self) -> pa.Table:
        arrays = [pa.array(column, f.type) for column, f in zip(self.columns, VALUE, strict=True)]
        return pa.table(arrays, schema=VALUE)

    @property
    def messages(self) -> pa.Table:
        return pa.table([pa.array(self.read, pa.int32())], schema=MESSAGE)


class ValueReader:
    """Reads messages with the tag paths that are known, finding out about new ones."""

    def __init__(self, tags: TagTree, limits: Limits) -> None:
        self._tags = tags
        self._limits = limits

    def read(self, messages: Sequence[Message]) -> Said:
        """What the messages say, numbered as they come."""
        said = Said()
        for some in _portions(messages):
            documents: list[tuple[int, Document]] = []
            for number in some:
                try:
                    documents.append((number, self.document(messages[number])))
                except MessageError as error:
                    said.refused[number] = error
            self._tags.know(_new_attributes(documents))
            for number, document in documents:
                _attributes_wanted(document, self._tags)
                said.read.append(number)
                _Rows(number, document, said.columns).add()
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


class _Rows:
    """The rows of one message."""

    def __init__(self, number: int, document: Document, columns: tuple[list[object], ...]) -> None:
        self._number = number
        self._document = document
        self._columns = columns
        self._present: set[int] = set()
        self._numbers: list[int] | None = None

    def add(self) -> None:
        document = self._document
        for element, (node, attributes) in enumerate(zip(document.places, document.attributes, strict=True)):
            assert isinstance(node, TagNode)
            if node.element is not None:
                self._element(element, *node.element)
            if attributes:
                for i in range(0, len(attributes), 2):
                    wanted = node.attribute[attributes[i]]
                    if wanted is not None:
                        self._row(*wanted, attributes[i + 1], element, i // 2 + 1)
        for number, element in enumerate(document.text_parents):
            node = document.places[element]
            assert isinstance(node, TagNode)
            if node.text_node is not None:
                self._row(*node.text_node, document.texts[number], element, -number - 1)

    def _element(self, element: int, tag: int, uses: int) -> None:
        self._row(tag, uses, self._document.string_value(element) if uses & _VALUED else None, element, 0)

    def _row(self, tag: int, uses: int, text: str | None, element: int, leaf: int) -> None:
        """A row. `leaf` is 0 for the element, an attribute's number from 1, or, negative, a text node's."""
        if uses == _PRESENCE:
            if tag in self._present:
                return
            self._present.add(tag)
        number = None
        if uses & _NUMBER and text is not None:
            converted = to_number(text)
            number = converted if converted == converted else None
        messages, tags, texts, numbers, text_keys, number_keys, nodes = self._columns
        messages.append(self._number)
        tags.append(tag)
        texts.append(text if uses & _TEXT else None)
        numbers.append(number)
        text_keys.append(_text_key(text) if uses & _TEXT_KEY and text is not None else None)
        number_keys.append(_number_key(number) if uses & _NUMBER_KEY and number is not None else None)
        nodes.append(self._nodes(element, leaf) if uses & _NODES else None)

    def _nodes(self, element: int, leaf: int) -> list[int]:
        document = self._document
        if self._numbers is None:
            counts = accumulate([len(attributes) // 2 for attributes in document.attributes], initial=0)
            # before an element: the elements and attributes and text nodes that started earlier
            self._numbers = [
                element + before + texts
                for element, (before, texts) in enumerate(zip(counts, document.text_starts, strict=False))
            ]
        numbers, parents = self._numbers, document.parents
        path: list[int] = []
        at = element
        while at:
            path.append(numbers[at])
            at = parents[at]
        path.reverse()
        if leaf > 0:
            path.append(numbers[element] + leaf)
        elif leaf < 0:
            text = -leaf - 1
            after = document.text_after[text]
            path.append(
                numbers[after] + len(document.attributes[after]) // 2 + text - document.text_starts[after] + 1
            )
        return path
