"""The decomposition of tree patterns: alternatives, shared steps, approximations, and one limit."""

from __future__ import annotations

import pytest

from sapwood.engine.automaton.query_paths import plan_index
from sapwood.lang.decomposition import MOST_ALTERNATIVES, Decomposition, decompose
from sapwood.lang.query import compile_query


def decomposition_of(query: str) -> Decomposition:
    return decompose(compile_query(query).condition)


def paths_of(query: str) -> list[list[str]]:
    return [
        [
            "".join(axis.value + name for axis, name in alternative.linear(path.step.trail()))
            + (f" {path.test}" if path.test is not None else "")
            for path in alternative.paths
        ]
        for alternative in decomposition_of(query).alternatives
    ]


@pytest.mark.parametrize(
    ("query", "alternatives"),
    [
        ("/a//b", [["/a//b"]]),
        ("//a[b = 1]/c", [["//a/b = 1", "//a/c"]]),
        ("//a[. = 1]", [["//a = 1"]]),
        ("//a[@x or b]/c", [["//a/@x", "//a/c"], ["//a/b", "//a/c"]]),
        ("//*[self::a or self::b]/c", [["//a/c"], ["//b/c"]]),
        ("//*[self::a and @x or self::b]", [["//a/@x"], ["//b"]]),
        ("/a/@x[. = '1']", [["/a/@x = '1'"]]),
        ("/a/text()[self::b]", []),
        ("/", [[]]),
        ("/text()", []),
        ("false()", []),
    ],
)
def test_alternatives(query: str, alternatives: list[list[str]]) -> None:
    assert not decomposition_of(query).approximations
    assert paths_of(query) == alternatives


def test_paths_share_the_steps_that_they_have_in_common() -> None:
    (alternative,) = decomposition_of("//a[b]/c[d]/e").alternatives
    b, d, e = (path.step.trail() for path in alternative.paths)
    assert b[0] is d[0] is e[0]
    assert d[1] is e[1] is not b[1]
    assert [step.depth for step in e] == [1, 2, 3]


def test_equal_paths_of_other_steps_share_none() -> None:
    (alternative,) = decomposition_of("//a[b] and //a[c]").alternatives
    one, other = (path.step.trail() for path in alternative.paths)
    assert one[0] is not other[0]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("//a[not(b)]", "a negation"),
        ("//a[2]", "a position"),
        ("contains(//a, 'x')", "the first node of several"),
        ("contains(/, 'x')", "the text of the whole message"),
    ],
)
def test_approximations(query: str, reason: str) -> None:
    found = decomposition_of(query)
    assert found.approximations
    assert [approximation.reason for approximation in found.approximations] == [reason]


def test_the_largest_disjunctions_are_left_out_beyond_the_limit() -> None:
    small = "(a or b)"
    large = "(" + " or ".join(f"c{i}" for i in range(MOST_ALTERNATIVES)) + ")"
    found = decomposition_of(f"//x[{small} and {large}]")
    assert len(found.alternatives) == 2
    assert "alternatives" in found.approximations[0].reason


def test_the_automaton_takes_a_union_of_any_length_exactly() -> None:
    plan = plan_index(compile_query(" | ".join(f"//a{i}" for i in range(100))).condition)
    assert plan.exact
    assert len(plan.parts) == 100


def test_several_tests_of_one_attribute_are_exact_if_it_has_a_name() -> None:
    assert plan_index(compile_query("//a/@x[. > 1 and . < 5]").condition).exact
    assert not plan_index(compile_query("//a/@*[. > 1 and . < 5]").condition).exact
    assert not plan_index(compile_query("//a/text()[. > 1 and . < 5]").condition).exact
