"""Templates: as many as the paper says, and the same one however a query is written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood import Broker
from sapwood.join.graph.canonical_graph import Edge, TemplateGraph, canonicalize

Tree = int | tuple["Tree", ...]


def trees(leaves: list[int]) -> Iterator[Tree]:
    """All trees over some leaves in which every inner node has two children at least."""
    if len(leaves) == 1:
        yield leaves[0]
        return
    for parts in partitions(leaves):
        if len(parts) > 1:
            yield from product(*[list(trees(part)) for part in parts])


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for size in range(len(rest) + 1):
        for others in combinations(rest, size):
            left = [item for item in rest if item not in others]
            for parts in partitions(left):
                yield [[first, *others], *parts]


def numbered(tree: Tree) -> tuple[tuple[int, ...], dict[int, int]]:
    """The parents of a tree's nodes, and the nodes of its leaves."""
    parents: list[int] = []
    place: dict[int, int] = {}

    def visit(part: Tree, parent: int) -> None:
        here = len(parents)
        parents.append(parent)
        if isinstance(part, int):
            place[part] = here
        else:
            for child in part:
                visit(child, here)

    visit(tree, -1)
    return tuple(parents), place


def templates(equalities: int, flat: bool) -> set[TemplateGraph]:
    """All shapes of graphs with so many equalities between leaves."""
    found: set[TemplateGraph] = set()
    every = list(product(range(equalities), repeat=2))
    for edges in combinations(every, equalities):
        left, right = sorted({a for a, _ in edges}), sorted({b for _, b in edges})
        if left != list(range(len(left))) or right != list(range(len(right))):
            continue
        for one, other in product(sided(left, flat), sided(right, flat)):
            (left_parents, left_of), (right_parents, right_of) = numbered(one), numbered(other)
            graph: list[Edge] = sorted((left_of[a], "=", right_of[b]) for a, b in edges)
            found.add(canonicalize(TemplateGraph(left_parents, right_parents, tuple(graph)))[0])
    return found


def sided(leaves: list[int], flat: bool) -> list[Tree]:
    if flat:
        return [tuple(leaves) if len(leaves) > 1 else leaves[0]]
    return list(trees(leaves))


@pytest.mark.parametrize(("equalities", "count"), [(1, 1), (2, 3), (3, 6), (4, 16)])
def test_as_many_templates_as_the_paper_says_for_flat_messages(equalities: int, count: int) -> None:
    assert len(templates(equalities, flat=True)) == count


@pytest.mark.parametrize(("equalities", "count"), [(1, 1), (2, 3), (3, 16), (4, 215)])
def test_as_many_templates_as_the_paper_says_for_any_messages(equalities: int, count: int) -> None:
    """Of four, the paper says that there are fewer than 230."""
    assert len(templates(equalities, flat=False)) == count


@st.composite
def shapes(draw: st.DrawFn) -> TemplateGraph:
    def parents() -> tuple[int, ...]:
        size = draw(st.integers(1, 5))
        return (-1, *(draw(st.integers(0, number - 1)) for number in range(1, size)))

    left, right = parents(), parents()
    edge = st.tuples(
        st.integers(0, len(left) - 1), st.sampled_from(["=", "<", "!="]), st.integers(0, len(right) - 1)
    )
    edges = draw(st.sets(edge, min_size=1, max_size=4))
    return TemplateGraph(left, right, tuple(sorted(edges)))  # type: ignore[arg-type]


def renumbered(shape: TemplateGraph, data: st.DataObject) -> TemplateGraph:
    """The same graph with its columns in another order, roots first."""

    def shuffled(parents: tuple[int, ...]) -> tuple[tuple[int, ...], dict[int, int]]:
        place: dict[int, int] = {-1: -1}
        ready = [column for column, parent in enumerate(parents) if parent == -1]
        while ready:
            column = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
            place[column] = len(place) - 1
            ready += [child for child, parent in enumerate(parents) if parent == column]
        order = sorted(range(len(parents)), key=place.__getitem__)
        return tuple(place[parents[column]] for column in order), place

    left, left_of = shuffled(shape.left)
    right, right_of = shuffled(shape.right)
    return TemplateGraph(
        left, right, tuple(sorted((left_of[a], op, right_of[b]) for a, op, b in shape.edges))
    )


@given(shapes(), st.data())
def test_the_order_of_writing_does_not_matter(shape: TemplateGraph, data: st.DataObject) -> None:
    assert canonicalize(renumbered(shape, data))[0] == canonicalize(shape)[0]


@given(shapes())
def test_canonical_columns_map_back_to_the_given_ones(shape: TemplateGraph) -> None:
    found, left, right = canonicalize(shape)
    assert sorted(left) == list(range(len(shape.left)))
    assert [left[p] if p >= 0 else -1 for p in found.left] == [shape.left[column] for column in left]
    assert {(left[a], op, right[b]) for a, op, b in found.edges} == set(shape.edges)


def test_the_sides_of_a_template_are_distinguished() -> None:
    one_to_two = TemplateGraph((-1,), (-1, 0, 0), ((0, "=", 1), (0, "=", 2)))
    two_to_one = TemplateGraph((-1, 0, 0), (-1,), ((1, "=", 0), (2, "=", 0)))
    assert canonicalize(one_to_two)[0] != canonicalize(two_to_one)[0]


def test_large_symmetric_graphs_are_quick() -> None:
    star = TemplateGraph((-1, *[0] * 20), (-1, *[0] * 20), tuple((n, "=", n) for n in range(1, 21)))
    crossed = TemplateGraph((-1, *[0] * 20), (-1, *[0] * 20), tuple((n, "=", 21 - n) for n in range(1, 21)))
    assert canonicalize(star)[0] == canonicalize(crossed)[0]


QUERY = "S/r->a[x->b][y->c] FOLLOWED BY{b = e AND c = f, 1 h} S/r->d[x->e][y->f]"


@pytest.mark.parametrize(
    "written",
    [
        "S/r->d[x->e][y->f] FOLLOWED BY{e = b AND f = c, 60 min} S/r->a[x->b][y->c]",
        "S/r[y->c][x->b] FOLLOWED BY{c = f AND b = e, 1 h} S/r[x->e][y->f]",
        "S/r[y AS c and x AS b] FOLLOWED BY{f = c AND e = b, 1 h} S/r[y AS f and x AS e]",
    ],
)
def test_equal_queries_collapse_however_they_are_written(written: str) -> None:
    broker = Broker()
    broker.subscribe("one", QUERY)
    broker.subscribe("other", written)
    [template] = broker.state().templates
    assert template.queries == 1
    assert len(broker.network_of_joins) == 1


def test_queries_that_differ_in_windows_only_share_a_row() -> None:
    broker = Broker()
    broker.subscribe("one", QUERY)
    broker.subscribe("other", QUERY.replace("1 h", "1 min").replace("FOLLOWED BY", "JOIN"))
    [template] = broker.state().templates
    assert template.queries == 1
    assert len(broker.network_of_joins) == 2
