"""The five sufficient conditions: where the thesis has them, where it errs, and on random streams."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from sapwood.transform.per_query.path_streams import PathStreams
from sapwood.transform.per_query.stream_conditions import conforms, ordered_on, unique_on_last, unique_on_pair
from sapwood.workload import Dtd, load_dtd
from tests.support.cases.transforms import brute_tuples, graph, graph_of, is_ordered, path, read
from tests.support.generators import path_strategies
from tests.support.generators.path_strategies import RANDOMS

SECTIONS = graph("book", "book section", "section section", "section figure", "section title", "figure title")


@pytest.mark.parametrize(
    ("text", "condition", "with_graph"),
    [
        ("/book/section", 1, 1),
        ("//section/figure", 1, 1),
        ("/book//*/title", 1, 1),  # wildcards do no harm: the level of // is the only thing open
        ("//figure//title", None, 2),
        ("//section//title", None, None),
        ("//figure//section//title", None, None),
        ("//section//figure", None, None),
        ("//*//title", None, None),  # one element, and another inside it
        ("//figure/*//title", None, 2),  # a wildcard one level down leaves nothing open
        ("//figure//*", None, 2),  # nor does one on the last //
    ],
)
def test_unique_on_last(text: str, condition: int | None, with_graph: int | None) -> None:
    steps = path(text).steps
    for verdict, expected in (
        (unique_on_last(steps), condition),
        (unique_on_last(steps, SECTIONS), with_graph),
    ):
        assert verdict.holds == (expected is not None)
        assert verdict.condition == expected
        assert verdict.why


@pytest.mark.parametrize(
    ("text", "split", "condition", "with_graph"),
    [
        ("//section//title", 1, 3, 3),
        ("//section//section//title", 1, None, None),
        ("//section//figure/title", 2, None, None),
        ("//figure//section//title", 2, None, 3),
        ("//figure//*//title", 1, None, None),
        ("//section", 1, 1, 1),
    ],
)
def test_unique_on_pair(text: str, split: int, condition: int | None, with_graph: int | None) -> None:
    steps = path(text).steps
    assert unique_on_pair(steps, split).condition == condition
    assert unique_on_pair(steps, split, SECTIONS).condition == with_graph


@pytest.mark.parametrize(
    ("text", "split", "condition", "with_graph"),
    [
        ("/book/section/title", 2, 4, 4),
        ("/*/*/title", 2, 4, 4),
        ("//section/title", 1, None, None),
        ("//section//figure/title", 2, None, 5),
        ("//section/*/figure/title", 3, None, 5),  # figures never nest, whatever stands above
        ("//figure/section/title", 2, None, 5),
        ("//*//figure/title", 2, None, 5),
        ("//*/section/title", 2, None, None),
        ("//section/*/title", 2, None, None),
    ],
)
def test_ordered_on(text: str, split: int, condition: int | None, with_graph: int | None) -> None:
    steps = path(text).steps
    assert ordered_on(steps, split).condition == condition
    assert ordered_on(steps, split).holds == (condition is not None)
    assert ordered_on(steps, split, SECTIONS).condition == with_graph
    assert ordered_on(steps, split, SECTIONS).holds == (with_graph is not None)


def test_the_last_field_is_always_ordered() -> None:
    assert ordered_on(path("//a//b").steps, 2).holds


def test_a_loop_is_a_strongly_connected_component() -> None:
    """Trap 1: x and z share no simple cycle, and yet z may stand inside z."""
    edges = graph("x", "xy", "yx", "yz", "zy", "zc")
    document = read("<x><y><z><y><x><y><z><c/></z></y></x></y><c/></z></y></x>")
    assert conforms(document, edges)
    trap = path("//x/y/z/c")
    assert [matched[2] for matched in PathStreams(document).of(trap)] == [7, 3]
    assert not ordered_on(trap.steps, 3, edges).holds


def test_a_wildcard_may_be_on_any_loop() -> None:
    """Trap 2: a and b share no loop, but `*` between them may stand for either."""
    edges = graph("a", "aa", "ab", "bb", "bc")
    document = read("<a><a><b><b><c/></b><c/></b></a></a>")
    assert conforms(document, edges)
    trap = path("//a/*/b/c")
    assert PathStreams(document).of(trap) == [(2, 3, 4, 5), (1, 2, 3, 6)]
    assert not ordered_on(trap.steps, 3, edges).holds
    assert ordered_on(path("//a/b/c").steps, 2, edges).condition == 5

    twice = path("//*//c")
    assert PathStreams(read("<a><b><c/></b></a>")).of(twice) == [(1, 3), (2, 3)]
    assert not unique_on_last(twice.steps, graph("a", "ab", "bc")).holds


def test_conformance_is_the_root_and_the_edges() -> None:
    """Trap 3: what a graph shows is right only for messages of its shape."""
    edges = graph("r", "ra", "ab")
    assert conforms(read("<r><a/><a><b/></a></r>"), edges)
    assert conforms(read("<r/>"), edges)
    assert not conforms(read("<a><b/></a>"), edges)
    assert not conforms(read("<r><b/></r>"), edges)
    assert not conforms(read("<r><a><a/></a></r>"), edges)
    assert not conforms(read("<r><x/></r>"), edges)
    assert not conforms(read("<r><a xmlns='urn:other'/></r>"), edges)


def test_a_dtd_is_an_element_graph() -> None:
    book: Dtd = load_dtd("book")
    assert not ordered_on(path("//section/title").steps, 1, book).holds
    bibliography = load_dtd("bibliography")
    assert ordered_on(path("//author/surname").steps, 1, bibliography).condition == 5


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(RANDOMS)
def test_conditions_hold_of_random_documents(rng: Random) -> None:
    whole = path_strategies.element_graph(rng)
    document = read(path_strategies.document(rng, whole))
    assert conforms(document, whole)
    for edges in (None, whole, graph_of(document)):
        walked = path(path_strategies.path_to_some(rng, document))
        steps, split = walked.steps, rng.randint(1, len(walked.steps))
        tuples = PathStreams(document).of(walked)
        assert sorted(tuples) == sorted(brute_tuples(document, walked))
        assert is_ordered([matched[-1] for matched in tuples])
        if unique_on_last(steps, edges).holds:
            assert len({matched[-1] for matched in tuples}) == len(tuples)
        if unique_on_pair(steps, split, edges).holds:
            assert len({(matched[split - 1], matched[-1]) for matched in tuples}) == len(tuples)
        if ordered_on(steps, split, edges).holds:
            assert is_ordered([matched[split - 1] for matched in tuples])
