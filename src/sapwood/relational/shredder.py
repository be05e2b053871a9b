"""The shredder: turns messages into rows of the values that predicates read.

Nodes are numbered in document order, attributes and text nodes included. Where branching points need them, a
row has the numbers of the nodes from the root element down to the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pyarrow as pa

from sapwood.engine.kernel.kernel_reader import read_nodes
from sapwood.engine.limits import Limits
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message
from sapwood.errors import MessageError
from sapwood.lang.literals.numbers import to_number
from sapwood.relational.paths.linear_path import TagPath
from sapwood.relational.paths.path_catalog import Uses
from sapwood.relational.paths.tag_tree import TagNode, TagTree
from sapwood.relational.rules.comparisons import number_key, text_key

_MESSAGES_PER_CHUNK = 64
_BYTES_PER_CHUNK = 4 * 1024 * 1024
"""Messages parsed before their new tag paths are resolved together; their nodes are in memory meanwhile."""

_PRESENCE, _TEXT, _TEXT_KEY = int(Uses.PRESENCE), int(Uses.TEXT), int(Uses.TEXT_KEY)
_NUMBER, _NUMBER_KEY, _NODES = int(Uses.NUMBER), int(Uses.NUMBER_KEY), int(Uses.NODES)
_ANY_VALUE = _TEXT | _TEXT_KEY | _NUMBER | _NUMBER_KEY

VALUE_SCHEMA = pa.schema(
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
MESSAGE_SCHEMA = pa.schema([("msg", pa.int32())])

_MAX_TEXT_COPIES = 8
"""the maximal size of a message's string-values, as a multiple of its text, if this exceeds `Limits.bytes`"""

_MAX_CACHED_TEXTS = 100_000
"""texts in the cache of conversions"""


@dataclass(slots=True)
class ShreddedBatch:
    """A batch of messages shredded into value rows; messages have numbers from 0."""

    parts: list[pa.Table] = field(default_factory=list)
    """value rows, by chunks of messages"""
    readable: list[int] = field(default_factory=list)
    """the messages that could be shredded"""
    rejected: dict[int, MessageError] = field(default_factory=dict)
    """the others, and why"""

    @property
    def values(self) -> pa.Table:
        """All value rows: VALUE_SCHEMA."""
        return pa.concat_tables([VALUE_SCHEMA.empty_table(), *self.parts])

    @property
    def messages(self) -> pa.Table:
        """The numbers of the messages that could be shredded: MESSAGE_SCHEMA."""
        return pa.table([pa.array(self.readable, pa.int32())], schema=MESSAGE_SCHEMA)


class Shredder:
    """Shreds messages with a tag tree, in which new tag paths are resolved."""

    def __init__(self, tags: TagTree, limits: Limits) -> None:
        self._tags = tags
        self._limits = limits

    def shred(self, messages: Sequence[Message]) -> ShreddedBatch:
        """Return the value rows of the messages, which are numbered in order."""
        self._tags.evict_if_full()
        batch = ShreddedBatch()
        for chunk in _chunk_messages(messages):
            documents: list[tuple[int, Document[TagNode]]] = []
            for number in chunk:
                before = len(self._tags.new)
                try:
                    documents.append((number, self.document(messages[number])))
                except MessageError as error:
                    self._tags.discard_new_nodes(before)
                    batch.rejected[number] = error
            attributes = _new_attributes(documents)  # for which each message is followed along the tag tree
            self._tags.resolve_new(attributes)
            columns: tuple[list[Any], ...] = tuple([] for _ in VALUE_SCHEMA)
            for number, document in documents:
                if attributes:
                    _resolve_attributes(document, self._tags)
                try:
                    _check_value_size(document, self._limits)
                except MessageError as error:
                    batch.rejected[number] = error
                    continue
                batch.readable.append(number)
                _add_rows(number, document, columns)
            arrays = [pa.array(column, f.type) for column, f in zip(columns, VALUE_SCHEMA, strict=True)]
            batch.parts.append(pa.table(arrays, schema=VALUE_SCHEMA))
        return batch

    def document(self, message: Message) -> Document[TagNode]:
        """Parse a message along the tag tree."""
        return read_nodes(message, self._limits, self._tags.root, with_text=True)


def _chunk_messages(messages: Sequence[Message]) -> Iterator[list[int]]:
    chunk: list[int] = []
    size = 0
    for number, message in enumerate(messages):
        chunk.append(number)
        size += len(message.data)
        if len(chunk) >= _MESSAGES_PER_CHUNK or size >= _BYTES_PER_CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _new_attributes(documents: list[tuple[int, Document[TagNode]]]) -> list[TagPath]:
    """Return the tag paths of attributes that are new at their tag node."""
    found: dict[TagPath, None] = {}
    for _, document in documents:
        for node, attributes in zip(document.guide_nodes, document.attributes, strict=True):
            if attributes:
                for name in attributes[::2]:
                    if name not in node.attribute:
                        found[(*node.path, f"@{name}")] = None
    return list(found)


def _resolve_attributes(document: Document[TagNode], tags: TagTree) -> None:
    """Set on tag nodes the uses of attributes that are new there."""
    for node, attributes in zip(document.guide_nodes, document.attributes, strict=True):
        if attributes:
            for name in attributes[::2]:
                if name not in node.attribute:
                    node.attribute[name] = tags.find_use((*node.path, f"@{name}"))


def _check_value_size(document: Document[TagNode], limits: Limits) -> None:
    """Reject a message whose nested elements repeat the same text in too many rows."""
    text = document.text_offsets[-1]
    most = max(limits.bytes, _MAX_TEXT_COPIES * text)
    if text * len(document) <= most:
        return
    total = 0
    for element, node in enumerate(document.guide_nodes):
        if node.element is not None and node.element[1] & _ANY_VALUE:
            start, end = document.value_range(element)
            total += end - start
    if total > most:
        raise MessageError(
            f"the values of nested elements have {total:,} characters together; the limit is {most:,}"
        )


class _TextConversions(dict[str, tuple[int, float | None, int | None]]):
    """A cache: text → its key, its number if it is one, and the number's key; short texts only."""

    def __missing__(self, text: str) -> tuple[int, float | None, int | None]:
        number = to_number(text)
        is_number = number == number
        found = text_key(text), number if is_number else None, number_key(number) if is_number else None
        if len(text) <= 64:
            if len(self) >= _MAX_CACHED_TEXTS:
                self.clear()
            self[text] = found
        return found


_conversions = _TextConversions()


def _add_rows(message: int, document: Document[TagNode], columns: tuple[list[Any], ...]) -> None:
    """Append the rows of one message to the columns. The hottest loop here: it runs for every value."""
    tags, texts, numbers, text_keys, number_keys, nodes = columns[1:]
    before = len(tags)
    present: set[int] = set()
    node_paths = _NodePaths(document)

    def add(use: tuple[int, int], text: str | None, element: int, leaf: int) -> None:
        tag, uses = use
        if uses == _PRESENCE:
            if tag in present:
                return
            present.add(tag)
        tags.append(tag)
        nodes.append(node_paths.find(element, leaf) if uses & _NODES else None)
        if text is None or not uses & _ANY_VALUE:
            texts.append(None)
            numbers.append(None)
            text_keys.append(None)
            number_keys.append(None)
            return
        key, number, key_of_number = _conversions[text]
        texts.append(text if uses & _TEXT else None)
        numbers.append(number if uses & _NUMBER else None)
        text_keys.append(key if uses & _TEXT_KEY else None)
        number_keys.append(key_of_number if uses & _NUMBER_KEY else None)

    attributes_of = document.attributes
    for element, node in enumerate(document.guide_nodes):
        use = node.element
        if use is not None:
            add(use, document.string_value(element) if use[1] & _ANY_VALUE else None, element, 0)
        attributes = attributes_of[element]
        if attributes:
            attribute_uses = node.attribute
            for i in range(0, len(attributes), 2):
                use = attribute_uses[attributes[i]]
                if use is not None:
                    add(use, attributes[i + 1], element, i // 2 + 1)
    for number, element in enumerate(document.text_parents):
        use = document.guide_nodes[element].text_node
        if use is not None:
            add(use, document.texts[number], element, -number - 1)
    columns[0].extend([message] * (len(tags) - before))


class _NodePaths:
    """The node numbers from the root element down to each node of a message."""

    def __init__(self, document: Document[TagNode]) -> None:
        self._document = document
        self._numbers: list[int] = []
        self._paths: list[list[int] | None] = [[], *[None] * (len(document) - 1)]

    def find(self, element: int, leaf: int) -> list[int]:
        """Return the path of an element (`leaf` 0), its n-th attribute (n) or the n-th text node (-n)."""
        path = self._paths[element] or self._build(element)
        if not leaf:
            return path
        if leaf > 0:
            return [*path, path[-1] + leaf]
        document, text = self._document, -leaf - 1
        after = document.text_after[text]
        # after that element and its attributes, and the text nodes that began since
        own = len(document.attributes[after]) // 2 + text - document.text_starts[after] + 1
        return [*path, self._numbers[after] + own]

    def _build(self, element: int) -> list[int]:
        document = self._document
        if not self._numbers:
            counts = accumulate([len(attributes) // 2 for attributes in document.attributes], initial=0)
            # an element is numbered after all elements, attributes and text nodes that began earlier
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
