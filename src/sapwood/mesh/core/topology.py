"""The tree of brokers: who is whose neighbour, and how the tree changes.

A change that gives some broker another way to some source makes all links begin anew (`reset`): each source
then sends again, through the new tree and in order, what is not settled everywhere. A new or removed leaf
changes no such way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sapwood.errors import SapwoodError


class TopologyError(SapwoodError):
    """Raised for a change after which brokers would not be a tree."""


@dataclass(frozen=True)
class Topology:
    """A version of the tree: by broker its parent, None for the root."""

    version: int = 0
    parents: Mapping[str, str | None] = field(default_factory=dict)
    reset: int = 0
    """the version since which no broker has another way to a source"""
    joined: Mapping[str, int] = field(default_factory=dict)
    """by broker, the version at which it joined as a leaf, if that is not the first one"""

    def __post_init__(self) -> None:
        roots = [name for name, parent in self.parents.items() if parent is None]
        if self.parents and len(roots) != 1:
            raise TopologyError(
                f"a tree has one root, not {len(roots)}: {', '.join(sorted(roots)) or 'none'}"
            )
        rooted: set[str | None] = {None}
        """brokers from which a way leads to the root"""
        for name in self.parents:
            way: dict[str, None] = {}
            at: str | None = name
            while at not in rooted:
                assert at is not None
                if at not in self.parents:
                    raise TopologyError(
                        f"the parent of {[*way][-1]!r} is {at!r}, which is no broker of the mesh"
                    )
                if at in way:
                    raise TopologyError(f"{at!r} is its own ancestor")
                way[at] = None
                at = self.parents[at]
            rooted.update(way)

    def __contains__(self, name: str) -> bool:
        return name in self.parents

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def root(self) -> str | None:
        """The broker without a parent."""
        return next((name for name, parent in self.parents.items() if parent is None), None)

    @cached_property
    def _adjacent(self) -> dict[str, list[str]]:
        adjacent: dict[str, list[str]] = {name: [] for name in self.parents}
        for name, parent in self.parents.items():
            if parent is not None:
                adjacent[name].append(parent)
                adjacent[parent].append(name)
        return adjacent

    def neighbours(self, name: str) -> list[str]:
        """Return the brokers that a broker has links with: its parent and its children."""
        return self._adjacent.get(name, [])

    def children(self, name: str) -> list[str]:
        """Return the brokers whose parent a broker is."""
        return [child for child, parent in self.parents.items() if parent == name]

    def edge(self, one: str, other: str) -> int:
        """Return the version that made the link between two neighbours."""
        child = one if self.parents.get(one) == other else other
        return max(self.reset, self.joined.get(child, 0))

    def next_hops(self, name: str) -> dict[str, str]:
        """Return, by every other broker, the neighbour on whose side it is."""
        hops: dict[str, str] = {}
        for neighbour in self.neighbours(name):
            waiting, before = [neighbour], {name}
            while waiting:
                at = waiting.pop()
                hops[at] = neighbour
                before.add(at)
                waiting += [next for next in self._adjacent[at] if next not in before]
        return hops

    # -- changes ---------------------------------------------------------------------------------------

    def join(self, name: str, parent: str | None) -> Topology:
        """Return the tree with one more leaf, or with its first broker."""
        if name in self.parents:
            raise TopologyError(f"{name!r} is a broker of the mesh already")
        if parent is None and self.parents:
            raise TopologyError(f"{name!r} needs a parent: the mesh has a root, {self.root!r}")
        version = self.version + 1
        return Topology(version, {**self.parents, name: parent}, self.reset, {**self.joined, name: version})

    def leave(self, name: str) -> Topology:
        """Return the tree without a broker, whose children get its parent as theirs."""
        if name not in self.parents:
            raise TopologyError(f"there is no broker {name!r} in the mesh")
        if len(self.parents) == 1:
            return Topology(self.version + 1, {}, self.version + 1)
        joined = {other: since for other, since in self.joined.items() if other != name}
        if not self.children(name) or (name == self.root and len(self.children(name)) == 1):
            parents = {other: parent for other, parent in self.parents.items() if other != name}
            parents.update(dict.fromkeys(self.children(name)))
            return Topology(self.version + 1, parents, self.reset, joined)
        changed = dict(self.bypass(name).parents)
        del changed[name]
        return Topology(self.version + 1, changed, self.version + 1, joined)

    def bypass(self, name: str) -> Topology:
        """Return the tree in which a broker is a leaf: its children get its parent or, if it is the root, one
        of them is the new root and the parent of the others and of it."""
        children = sorted(self.children(name))
        parent = self.parents[name]
        if parent is not None:
            moved: dict[str, str | None] = dict.fromkeys(children, parent)
        else:
            moved = dict.fromkeys(children[1:], children[0])
            moved |= {children[0]: None, name: children[0]}
        return self._rebuilt(moved)

    def move(self, name: str, parent: str) -> Topology:
        """Return the tree in which a broker, with all below it, has another parent."""
        if name not in self.parents or parent not in self.parents:
            missing = parent if name in self.parents else name
            raise TopologyError(f"there is no broker {missing!r} in the mesh")
        if self.parents[name] is None:
            raise TopologyError(f"{name!r} is the root: move another broker, or 'bypass' it")
        return self._rebuilt({name: parent})

    def _rebuilt(self, moved: Mapping[str, str | None]) -> Topology:
        version = self.version + 1
        return Topology(version, {**self.parents, **moved}, version, self.joined)


def build_tree(parents: Mapping[str, str | None]) -> Topology:
    """Return the first version of a tree."""
    return Topology(1, dict(parents), 1)


def repair(topology: Topology, dead: Iterable[str]) -> Topology | None:
    """Return the tree in which dead brokers are leaves, so that no message passes them; None if it is so.

    What was below a dead broker gets the nearest ancestor that lives; if there is none, one of them is the
    new root.
    """
    gone = {name for name in dead if name in topology}
    living = sorted(name for name in topology.parents if name not in gone)
    if not living or all(len(topology.neighbours(name)) <= 1 for name in gone):
        return None

    def find_ancestor(name: str) -> str | None:
        at = topology.parents[name]
        while at is not None and at in gone:
            at = topology.parents[at]
        return at

    ancestors = {name: find_ancestor(name) for name in topology.parents}
    root = topology.root if topology.root not in gone else next(n for n in living if ancestors[n] is None)
    parents = {name: None if name == root else ancestors[name] or root for name in topology.parents}
    version = topology.version + 1
    return Topology(version, parents, version, topology.joined)
