"""The tag tree: a node for every path of element names in messages so far.

A node has the uses of the values at it: which columns predicates read. New nodes are resolved for many
messages at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from sapwood.lang.pattern import TEXT
from sapwood.relational.paths.linear_path import TagPath, escape_element_name

MAX_TAG_PATHS = 200_000
TagUse = tuple[int, int] | None
"""a tag path's id and the `Uses` of its values; None if no linear path matches it"""


class TagNode(dict[str, "TagNode"]):
    """A path of element names with the uses of its values; a `ReaderNode` without values to probe."""

    __slots__ = ("attribute", "element", "path", "text_node", "tree")

    attributes = text = value = None

    def __init__(self, tree: TagTree, path: TagPath) -> None:
        self.tree = tree
        self.path = path
        self.element: TagUse = None
        self.text_node: TagUse = None
        self.attribute: dict[str, TagUse] = {}

    def __missing__(self, name: str) -> TagNode:
        child = self[name] = TagNode(self.tree, (*self.path, escape_element_name(name)))
        self.tree.new.append((self, name, child))
        return child


class TagTree(ABC):
    """The nodes, and the ids of tag paths: 0 for those that no linear path matches."""

    def __init__(self) -> None:
        self.numbers: dict[TagPath, int] = {}
        self.uses: dict[int, int] = {}
        self.reset()

    def reset(self) -> None:
        """Discard all nodes, so that their uses are looked up again."""
        self.new: list[tuple[TagNode, str, TagNode]] = []
        """nodes that are not resolved yet: parent, name and node"""
        self.root = TagNode(self, ())

    def discard_new_nodes(self, after: int) -> None:
        """Remove the new nodes after the first `after`: those of a rejected message."""
        for parent, name, _ in self.new[after:]:
            parent.pop(name, None)
        del self.new[after:]

    def resolve_new(self, paths: Iterable[TagPath]) -> None:
        """Resolve all new nodes, and these tag paths."""
        of_nodes = [path for _, _, node in self.new for path in (node.path, (*node.path, TEXT))]
        new = [path for path in dict.fromkeys([*of_nodes, *paths]) if path not in self.numbers]
        if new:
            self.resolve(new)
        for _, _, node in self.new:
            node.element = self.find_use(node.path)
            node.text_node = self.find_use((*node.path, TEXT))
        self.new = []

    def evict_if_full(self) -> None:  # noqa: B027  # not every tree is a cache
        """Free memory before a batch, if there are too many tag paths."""

    @abstractmethod
    def resolve(self, new: list[TagPath]) -> None:
        """Find the ids of new tag paths, and the uses of their values."""

    def find_use(self, path: TagPath) -> TagUse:
        """Return the id and the uses of a resolved tag path."""
        number = self.numbers.get(path, 0)
        return (number, self.uses[number]) if number else None


class FrozenTagTree(TagTree):
    """A copy of another process's tag tree; new tag paths are collected in `missing`."""

    def __init__(self, numbers: Mapping[TagPath, int], uses: Mapping[int, int]) -> None:
        super().__init__()
        self.numbers.update(numbers)
        self.uses.update(uses)
        self.missing: dict[TagPath, None] = {}

    def resolve(self, new: list[TagPath]) -> None:
        self.missing.update(dict.fromkeys(new))
