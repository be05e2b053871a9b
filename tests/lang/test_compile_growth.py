"""A query takes time that grows with its length, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sapwood import Broker, Matcher
from sapwood.engine.automaton.query_paths import MOST_LEVELS
from sapwood.lang.query import compile_query
from sapwood.relational.rules.rule_form import relational_form
from tests.support.growth import assert_linear, cpu_seconds
from tests.support.oracles import lxml_oracle

pytestmark = pytest.mark.slow

SIZES = (100, 1_000)


def each(template: str, n: int, between: str = "") -> str:
    return between.join(template.replace("{}", str(i)) for i in range(n))


FILTERS: dict[str, Callable[[int], str]] = {
    "predicates": lambda n: "//a" + each("[b = '{}']", n),
    "the same predicate": lambda n: f"//a{'[b]' * n}",
    "predicates with negations": lambda n: "//a" + each("[not(b = '{}')]", n),
    "predicates with contains": lambda n: "//a" + each("[contains(., '{}')]", n),
    "positions": lambda n: f"//a{each('[position() < {}]', n)}",
    "positions among others": lambda n: f"//a{each('[b{}][position() < {}]', n)}",
    "and": lambda n: f"//a[{each('b{}', n, ' and ')}]",
    "or": lambda n: f"//a[{each('b{} = 1', n, ' or ')}]",
    "or in and": lambda n: f"//a[{each('(b{} or c)', n, ' and ')}]",
    "a negation of many": lambda n: f"//a[not({each('b{}', n, ' and ')})]",
    "a union": lambda n: each("//a[b = {}]", n, " | "),
    "steps": lambda n: each("/a{}", n),
    "steps anywhere": lambda n: each("//a{}", n),
    "steps with predicates": lambda n: each("/a{}[b]", n),
    "steps with values": lambda n: each("/a{}[@b = '{}']", n),
    "steps in a predicate": lambda n: f"//a[{each('a{}[b]', n, '/')}]",
    "what lxml decides": lambda n: f"//a{each('[count(b) = {}]', n)}",
}
OTHERS: dict[str, Callable[[int], str]] = {
    "a transformation's predicates": lambda n: "for $x in //a" + each("[b = '{}']", n) + " return <r/>",
    "a transformation's conditions": lambda n: (
        "for $x in //a where " + each("$x/b = '{}'", n, " and ") + " return <r/>"
    ),
    "a transformation's steps": lambda n: f"for $x in {each('/a{}[b]', n)} return <r/>",
    "a transformation's holes": lambda n: f"for $x in //a return <r>{'{$x/b}' * n}</r>",
    "a join's predicates": lambda n: (
        "S//a[k->v]" + each("[b = '{}']", n) + " JOIN{v = w, 1 s} T//a[k->w]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", [*FILTERS.values(), *OTHERS.values()], ids=[*FILTERS, *OTHERS])
def test_compiling_is_linear(make: Callable[[int], str]) -> None:
    def took(size: int) -> float:
        broker, query = Broker(), make(size)
        return cpu_seconds(lambda: broker.subscribe("q", query))

    assert_linear(took, SIZES)


@pytest.mark.parametrize("make", FILTERS.values(), ids=FILTERS.keys())
def test_rules_of_tables_are_made_in_linear_time(make: Callable[[int], str]) -> None:
    def took(size: int) -> float:
        query = compile_query(make(size), {})
        return cpu_seconds(lambda: relational_form(query))

    assert_linear(took, SIZES)


@pytest.mark.parametrize("depth", [5, MOST_LEVELS - 1, MOST_LEVELS, MOST_LEVELS + 1, 300])
def test_a_path_that_branches_at_every_step(depth: int) -> None:
    """Beyond some number of steps, branches are checked on candidates."""
    query = "/a[b]" * depth
    whole = "<a><b/>" * depth + "</a>" * depth
    matcher = Matcher()
    matcher.add("q", query)
    for missing in (None, 0, depth // 2, depth - 1):
        parts = ["<a><b/>"] * depth
        if missing is not None:
            parts[missing] = "<a>"
        message = "".join(parts) + "</a>" * depth
        expected = lxml_oracle.matches(lxml_oracle.parse(message), query, {})
        assert expected == (missing is None) == (message == whole)
        assert ("q" in matcher.match(message)) == expected
