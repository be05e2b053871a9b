"""Trees of brokers: what changes keep, and what makes links begin anew."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sapwood.mesh.core.topology import Topology, TopologyError, build_tree, repair

NAMES = [f"b{i}" for i in range(9)]


def edges(topology: Topology) -> set[frozenset[str]]:
    return {frozenset((name, parent)) for name, parent in topology.parents.items() if parent is not None}


def paths(topology: Topology) -> dict[tuple[str, str], list[str]]:
    """The way from each broker to each other."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in topology.parents:
        for other in topology.parents:
            way, at = [name], name
            while at != other:
                at = topology.next_hops(at)[other]
                way.append(at)
            found[name, other] = way
    return found


class TopologyMachine(RuleBasedStateMachine):
    """Any operations on a tree, each of which must yield a tree, and a reset where ways have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = build_tree({"b0": None})

    def change(self, changed: Topology) -> None:
        before = self.tree
        assert changed.version == before.version + 1
        assert changed.reset in (before.reset, changed.version)
        if changed.reset == before.reset:
            old, new = paths(before), paths(changed)
            assert all(old[ends] == new[ends] for ends in old.keys() & new.keys())
            for edge in edges(before) & edges(changed):
                assert before.edge(*sorted(edge)) == changed.edge(*sorted(edge))
        assert changed.joined.keys() <= changed.parents.keys()
        self.tree = changed

    @precondition(lambda self: len(self.tree) < len(NAMES))
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([each for each in NAMES if each not in self.tree]))
        parent = data.draw(st.sampled_from(sorted(self.tree.parents)))
        self.change(self.tree.join(name, parent))
        assert self.tree.joined[name] == self.tree.edge(name, parent) == self.tree.version

    @precondition(lambda self: len(self.tree) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tree.parents)))
        others = set(self.tree.parents) - {name}
        is_leaf = len(self.tree.neighbours(name)) == 1
        before = self.tree.reset
        self.change(self.tree.leave(name))
        assert set(self.tree.parents) == others
        assert (self.tree.reset == before) == is_leaf

    @precondition(lambda self: len(self.tree) > 1)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tree.parents)))
        parent = data.draw(st.sampled_from(sorted(self.tree.parents)))
        try:
            changed = self.tree.move(name, parent)
        except TopologyError:
            at: str | None = parent
            below = name == self.tree.root
            while at is not None:
                below |= at == name
                at = self.tree.parents[at]
            assert below
            return
        self.change(changed)
        assert self.tree.parents[name] == parent
        assert self.tree.reset == self.tree.version

    @precondition(lambda self: len(self.tree) > 1)
    @rule(data=st.data())
    def bypass(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tree.parents)))
        names = set(self.tree.parents)
        self.change(self.tree.bypass(name))
        assert len(self.tree.neighbours(name)) == 1
        assert set(self.tree.parents) == names

    @precondition(lambda self: len(self.tree) > 1)
    @rule(data=st.data())
    def repair(self, data: st.DataObject) -> None:
        dead = data.draw(st.sets(st.sampled_from(sorted(self.tree.parents))))
        changed = repair(self.tree, dead)
        if changed is None:
            living = set(self.tree.parents) - dead
            assert not living or all(len(self.tree.neighbours(name)) == 1 for name in dead)
            return
        self.change(changed)
        assert all(len(self.tree.neighbours(name)) == 1 for name in dead)
        assert repair(self.tree, dead) is None

    @invariant()
    def is_a_tree(self) -> None:
        tree = self.tree
        assert [name for name in tree.parents if tree.parents[name] is None] == [tree.root]
        assert len(edges(tree)) == len(tree) - 1
        for name in tree.parents:
            assert set(tree.next_hops(name)) == set(tree.parents) - {name}
            assert set(tree.next_hops(name).values()) == set(tree.neighbours(name))
            assert all(name in tree.neighbours(other) for other in tree.neighbours(name))


TestTopology = TopologyMachine.TestCase


@pytest.mark.parametrize(
    ("parents", "problem"),
    [
        ({"a": None, "b": None}, "one root, not 2: a, b"),
        ({"a": "b", "b": "a"}, "one root, not 0: none"),
        ({"a": None, "b": "c", "c": "b"}, "is its own ancestor"),
        ({"a": None, "b": "b"}, "'b' is its own ancestor"),
        ({"a": None, "b": "x"}, "the parent of 'b' is 'x', which is no broker of the mesh"),
        ({"a": None, "c": "b", "b": "x"}, "the parent of 'b' is 'x', which is no broker of the mesh"),
    ],
)
def test_what_is_no_tree_is_refused(parents: Mapping[str, str | None], problem: str) -> None:
    with pytest.raises(TopologyError, match=problem):
        Topology(1, parents)


def test_changes_that_are_refused() -> None:
    tree = build_tree({"a": None, "b": "a"})
    with pytest.raises(TopologyError, match="'b' is a broker of the mesh already"):
        tree.join("b", "a")
    with pytest.raises(TopologyError, match="'c' needs a parent"):
        tree.join("c", None)
    with pytest.raises(TopologyError, match="no broker 'c'"):
        tree.leave("c")
    with pytest.raises(TopologyError, match="no broker 'c'"):
        tree.move("b", "c")
    with pytest.raises(TopologyError, match="'a' is the root"):
        tree.move("a", "b")


def test_the_first_broker_joins_and_the_last_one_leaves() -> None:
    tree = Topology().join("a", None)
    assert (tree.root, tree.version) == ("a", 1)
    assert tree.leave("a").parents == {}


def test_a_root_with_one_child_leaves_as_a_leaf() -> None:
    tree = build_tree({"a": None, "b": "a", "c": "b"}).leave("a")
    assert (tree.root, tree.reset) == ("b", 1)


def test_repair_attaches_children_to_the_nearest_living_ancestor() -> None:
    tree = build_tree({"a": None, "b": "a", "c": "b", "d": "c", "e": "d"})
    changed = repair(tree, ["b", "c"])
    assert changed is not None
    assert changed.parents == {"a": None, "b": "a", "c": "a", "d": "a", "e": "d"}


def test_repair_of_a_dead_root() -> None:
    tree = build_tree({"a": None, "b": "a", "c": "a", "d": "b"})
    changed = repair(tree, ["a"])
    assert changed is not None
    assert changed.parents == {"a": "b", "b": None, "c": "b", "d": "b"}


@given(st.integers(2, 300))
def test_a_long_chain_is_checked_in_linear_time(length: int) -> None:
    parents: dict[str, str | None] = {str(i): str(i - 1) if i else None for i in reversed(range(length))}
    assert len(Topology(1, parents).next_hops("0")) == length - 1
