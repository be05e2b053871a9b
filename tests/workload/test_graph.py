from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.workload.dtd import element_graph

Edges = dict[str, tuple[str, ...]]


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    nodes = [str(i) for i in range(draw(st.integers(1, 7)))]
    return {node: tuple(draw(st.lists(st.sampled_from(nodes), max_size=4))) for node in nodes}


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({"a": ("b",), "b": ()}, []),
        ({"a": ("a",)}, [{"a"}]),
        ({"a": ("b",), "b": ("a",)}, [{"a", "b"}]),
        # Two cycles joined by a bridge stay two: one cannot come back over it.
        ({"a": ("b",), "b": ("a", "c"), "c": ("d",), "d": ("c",)}, [{"a", "b"}, {"c", "d"}]),
        # A diamond is no cycle, although one of its nodes is reached twice.
        ({"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}, []),
    ],
)
def test_cycles(edges: Edges, expected: list[set[str]]) -> None:
    assert list(element_graph.cycles(edges)) == expected


def test_a_long_chain_does_not_overflow_the_stack() -> None:
    edges = {str(i): (str((i + 1) % 5000),) for i in range(5000)}
    assert [len(component) for component in element_graph.components(edges)] == [5000]


@given(graphs())
def test_components_are_mutual_reachability(edges: Edges) -> None:
    reach = {node: set(element_graph.reachable(edges, node)) for node in edges}
    expected = {frozenset(b for b in edges if b in reach[a] and a in reach[b]) for a in edges}
    found = [frozenset(component) for component in element_graph.components(edges)]
    assert len(found) == len(set(found))
    assert set(found) == expected


@given(graphs())
def test_cyclic_nodes_are_those_that_reach_themselves(edges: Edges) -> None:
    expected = {node for node in edges if any(node in element_graph.reachable(edges, n) for n in edges[node])}
    assert frozenset().union(*element_graph.cycles(edges)) == expected


def test_reverse_names_each_parent_once() -> None:
    assert element_graph.reverse({"a": ("b", "b"), "b": ("a",)}) == {"a": ("b",), "b": ("a",)}
