"""The nodes of a message as flat lists, one entry per element in document order; entry 0 is the document."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, Self, TypeVar

from sapwood.engine.automaton.dataguide import AttributeProbes, GuideNode, Probe, name_tests_of
from sapwood.engine.automaton.predicate_index import Hits, passes
from sapwood.engine.message.element_spans import Spans, element_spans
from sapwood.engine.message.string_values import LONG, StringValues
from sapwood.lang.pattern import Test, is_wildcard


class ReaderNode(Protocol):
    """A node of a trie of tag paths, through which the message reader steps from parent to child.

    A `GuideNode` of the dataguide is one; another trie has its own nodes, with or without values to probe.
    """

    @property
    def attributes(self) -> AttributeProbes | None: ...
    @property
    def text(self) -> Probe | None: ...
    @property
    def value(self) -> Probe | None: ...
    def __getitem__(self, name: str, /) -> Self: ...


if TYPE_CHECKING:  # a default, which TypeVar has from Python 3.13 on: `Document` is `Document[GuideNode]`
    from typing_extensions import TypeVar as _TypeVar

    N = _TypeVar("N", bound=ReaderNode, default=GuideNode)
else:
    N = TypeVar("N")


class LeafNode(NamedTuple):
    """An attribute or text node: its element, its kind, and its number among the element's attributes or the
    message's text nodes."""

    element: int
    kind: str  # `attribute` or `text`
    number: int


ContextNode = int | LeafNode


class DocumentColumns(Protocol):
    """The nodes of a message that was read in C; each column becomes a list when it is asked for."""

    def __len__(self) -> int: ...
    @property
    def spans(self) -> Spans | None: ...
    def number_paths(
        self, children: list[dict[str, int]], literals: list[tuple[int, str]], /
    ) -> list[int]: ...


class Document(Generic[N]):
    """The nodes read from one message, and the hits of its values.

    The columns of a message that was read in C are filled when they are first asked for: see `of_columns`.
    """

    __slots__ = (
        "_by_name",
        "_children",
        "_columns",
        "_depths",
        "_root",
        "_spans",
        "_string_values",
        "_texts_of",
        "attributes",
        "declarations",
        "ends",
        "guide_nodes",
        "hit_at",
        "hits",
        "names",
        "parents",
        "source",
        "text_after",
        "text_ends",
        "text_offsets",
        "text_parents",
        "text_starts",
        "texts",
        "verbatim",
    )

    def __init__(self, root: N) -> None:
        self._columns: DocumentColumns | None = None
        self._root = root
        self.guide_nodes: list[N] = [root]
        self.names: list[str] = [""]
        self.parents: list[int] = [-1]
        self.ends: list[int] = [0]  # one past the last descendant
        self.attributes: list[list[str]] = [[]]  # name, value, name, value …
        self.texts: list[str] = []
        self.text_parents: list[int] = []
        self.text_after: list[int] = []  # the last element that started before the text node
        self.text_starts: list[int] = [0]  # the text nodes of an element and its descendants:
        self.text_ends: list[int] = [0]  # texts[text_starts[e]:text_ends[e]]
        self.text_offsets: list[int] = [0]  # characters of text before each text node, and of all
        self.declarations: dict[int, list[tuple[str, str]]] = {}  # element → prefixes and URIs
        self.hits: list[Hits] = []
        self.hit_at: list[int] = []
        self._start()

    def _start(self) -> None:
        self.source = b""  # the message in UTF-8, if elements are to be copied
        self.verbatim = True  # no entities and no default attributes: elements may be copied from the source
        self._spans: Spans | None = None
        self._by_name: dict[str, list[int]] | None = None
        self._depths: list[int] | None = None
        self._children: dict[int, list[int]] | None = None
        self._texts_of: dict[int, list[int]] | None = None
        self._string_values: StringValues | None = None

    @classmethod
    def of_columns(cls, columns: DocumentColumns, root: N) -> Document[N]:
        """Return the document of a message that was read in C, at the guide nodes below a root."""
        document = cls.__new__(cls)
        document._columns = columns
        document._root = root
        document._start()
        return document

    def number_paths(self, children: list[dict[str, int]], literals: list[tuple[int, str]]) -> list[int]:
        """Return the number of each element's tag path in a trie, -1 for the document.

        `children` has, by the number of a path, those of the paths one step below, by name, and in its last
        place those of roots. A path that the trie lacks gets the next number behind all of these, and its
        parent and name are added to `literals`, which the caller gives as an empty list.
        """
        if self._columns is not None:
            return self._columns.number_paths(children, literals)
        numbers, new, first = [-1], dict[tuple[int, str], int](), len(children) - 1
        names, parents = self.names, self.parents
        for element in range(1, len(names)):
            path = parent, name = numbers[parents[element]], names[element]
            number = children[parent].get(name) if parent < first else None
            if number is None:
                number = new.get(path)
            if number is None:
                number = new[path] = first + len(literals)
                literals.append(path)
            numbers.append(number)
        return numbers

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Fill a column: Python asks here for slots that have no value yet."""
            if name in ("hits", "hit_at"):  # values are probed in C
                column: object = []
            elif name == "guide_nodes":
                column = self._walk_guide()
            elif name.startswith("_"):
                raise AttributeError(name)
            else:
                column = getattr(self._columns, name)
            setattr(self, name, column)
            return column

    def _walk_guide(self) -> list[N]:
        nodes = [self._root]
        for parent, name in islice(zip(self.parents, self.names, strict=True), 1, None):
            nodes.append(nodes[parent][name])
        return nodes

    @property
    def columns(self) -> DocumentColumns | None:
        """The nodes in C, if the message was read there."""
        return self._columns

    def __len__(self) -> int:
        return len(self.names) if self._columns is None else len(self._columns)

    @property
    def depths(self) -> list[int]:
        """The depth of each element, 1 for the root element."""
        if self._depths is None:
            self._depths = depths = [0]
            for parent in self.parents[1:]:
                depths.append(depths[parent] + 1)
        return self._depths

    @property
    def spans(self) -> Spans:
        """The offsets in the source at which each element starts and stops."""
        if self._spans is None:
            known = None if self._columns is None else self._columns.spans
            self._spans = element_spans(self.source, self.ends) if known is None else known
        return self._spans

    def tag_path(self, element: int) -> tuple[str, ...]:
        """The names from the root element down to this one."""
        names: list[str] = []
        while element:
            names.append(self.names[element])
            element = self.parents[element]
        return tuple(reversed(names))

    def children(self, element: int) -> list[int]:
        if self._children is None:
            self._children = {}
            for child in range(1, len(self.parents)):
                self._children.setdefault(self.parents[child], []).append(child)
        return self._children.get(element, [])

    def texts_of(self, element: int) -> list[int]:
        """The numbers of the text nodes that are children of the element."""
        if self._texts_of is None:
            self._texts_of = {}
            for number, parent in enumerate(self.text_parents):
                self._texts_of.setdefault(parent, []).append(number)
        return self._texts_of.get(element, [])

    def named(self, test: str, start: int, end: int) -> list[int]:
        """The elements numbered from `start` below `end` that pass a name test."""
        if self._by_name is None:
            self._by_name = {}
            for element in range(1, len(self.names)):
                self._by_name.setdefault(self.names[element], []).append(element)
        if not is_wildcard(test):
            found = self._by_name.get(test, [])
            return found[bisect_left(found, start) : bisect_left(found, end)]
        return [e for e in range(start, end) if test in name_tests_of(self.names[e])]

    @property
    def string_values(self) -> StringValues:
        """The text of the message, to ask ranges of it; see `value_range`."""
        if self._string_values is None:
            self._string_values = StringValues(self.texts)
        return self._string_values

    def value_range(self, element: int) -> tuple[int, int]:
        """Return the range of the message's text that is the string-value of an element."""
        offsets = self.text_offsets
        return offsets[self.text_starts[element]], offsets[self.text_ends[element]]

    def passes(self, node: ContextNode, test: Test) -> bool:
        """Return whether the string-value of a node passes a test."""
        if isinstance(node, int):
            start, end = self.value_range(node)
            if end - start > LONG:
                return self.string_values.passes(test, start, end)
        return passes(self.string_value(node), test)

    def string_value(self, node: ContextNode) -> str:
        if isinstance(node, int):
            first, last = self.text_starts[node], self.text_ends[node]
            if last - first <= 1:
                return self.texts[first] if first < last else ""
            start, end = self.value_range(node)
            if end - start > LONG:
                return self.string_values.copy(start, end)
            return "".join(self.texts[first:last])
        if node.kind == "text":
            return self.texts[node.number]
        return self.attributes[node.element][2 * node.number + 1]

    def attributes_named(self, element: int, test: str) -> Iterator[LeafNode]:
        listed = self.attributes[element]
        for i in range(0, len(listed), 2):
            if test == listed[i] or (is_wildcard(test) and test in name_tests_of(listed[i])):
                yield LeafNode(element, "attribute", i // 2)

    def order(self, node: ContextNode) -> tuple[int, int, int]:
        """Return a key that sorts nodes in document order."""
        if isinstance(node, int):
            return node, 0, 0
        if node.kind == "text":
            return self.text_after[node.number], 2, node.number
        return node.element, 1, node.number
