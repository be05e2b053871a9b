"""Messages are read into a tree of names: a `TagNode` for every path of element names that was ever seen.

A node knows which values at it are wanted. What it does not know yet is found out for many messages at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from sapwood.engine.automaton.dataguide import GuideNode
from sapwood.lang.pattern import TEXT
from sapwood.relational.paths.linear_path import TagPath, element_tag

MOST_TAGS = 200_000
Wanted = tuple[int, int] | None
"""a tag path's number and what is wanted of its values; None: nothing is"""


class TagNode(GuideNode):
    """A path of element names, and what is wanted there. A reader steps through it as through a Place."""

    __slots__ = ("attribute", "element", "path", "text_node", "tree")

    def __init__(self, tree: TagTree, path: TagPath) -> None:
        self.tree = tree
        self.path = path
        self.element: Wanted = None
        self.text_node: Wanted = None
        self.attribute: dict[str, Wanted] = {}
        self.attributes = self.text = self.value = None  # a reader has nothing to probe here

    def __missing__(self, name: str) -> GuideNode:
        child = self[name] = TagNode(self.tree, (*self.path, element_tag(name)))
        self.tree.new.append((self, name, child))
        return child


class TagTree(ABC):
    """The nodes, and what is known of tag paths: their numbers, 0 for those that no linear path matches."""

    def __init__(self) -> None:
        self.numbers: dict[TagPath, int] = {}
        self.uses: dict[int, int] = {}
        self.plant()

    def plant(self) -> None:
        """Starts anew: nodes find out again what is wanted."""
        self.new: list[tuple[TagNode, str, TagNode]] = []
        """nodes of which nothing is known yet: parent, name and node"""
        self.root = TagNode(self, ())

    def forget_new(self, after: int) -> None:
        """Drops the new nodes behind the first so many: nobody is to know of them."""
        for parent, name, _ in self.new[after:]:
            parent.pop(name, None)
        del self.new[after:]

    def know(self, paths: Iterable[TagPath]) -> None:
        """Finds out about all nodes that came up since this was last called, and about these tag paths."""
        came_up = [path for _, _, node in self.new for path in (node.path, (*node.path, TEXT))]
        new = [path for path in dict.fromkeys([*came_up, *paths]) if path not in self.numbers]
        if new:
            self.find_out(new)
        for _, _, node in self.new:
            node.element = self.wanted(node.path)
            node.text_node = self.wanted((*node.path, TEXT))
        self.new = []

    def settle(self) -> None:  # noqa: B027  # not everyone has something to do
        """Whatever is to be done before a batch."""

    @abstractmethod
    def find_out(self, new: list[TagPath]) -> None:
        """Numbers these tag paths."""

    def wanted(self, path: TagPath) -> Wanted:
        number = self.numbers.get(path, 0)
        return (number, self.uses[number]) if number else None


class TagSnapshot(TagTree):
    """What somebody else knows of tag paths. Those that are new to it are only noted."""

    def __init__(self, numbers: Mapping[TagPath, int], uses: Mapping[int, int]) -> None:
        super().__init__()
        self.numbers.update(numbers)
        self.uses.update(uses)
        self.missing: dict[TagPath, None] = {}

    def find_out(self, new: list[TagPath]) -> None:
        self.missing.update(dict.fromkeys(new))
