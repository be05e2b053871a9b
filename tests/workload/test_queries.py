from __future__ import annotations

import pickle
import re
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from sapwood.workload import MessageGenerator, QueriesExhausted, QueryGenerator, load_dtd
from tests.workload.support import NAMES, REAL_FILES, real, written

STEP = re.compile(r"(//?)([^/\[\]]+)((?:\[[^\]]*\])*)")

Step = tuple[str, str, str]  # axis, name test, predicates


def steps(query: str) -> list[Step]:
    found = STEP.findall(query)
    assert "".join(map("".join, found)) == query
    return found


def drawn(count: int = 4000, dtd: str = "news", **parameters: Any) -> list[str]:
    return QueryGenerator(load_dtd(dtd), **{"distinct": False, **parameters}).take(count)


def share(queries: list[str], index: int, text: str) -> float:
    found = Counter(step[index] for query in queries for step in steps(query))
    return found[text] / found.total()


SETTINGS: list[dict[str, Any]] = [
    {},
    {"wildcard": 0.5, "descendant": 0.5},
    {
        "predicates": 3,
        "predicate_targets": ("attribute", "text", "element"),
        "operators": ("=", "!=", "<", ">="),
    },
    {"predicates": 2, "numeric": False},
    {"nested": 3, "wildcard": 0.4, "descendant": 0.4},
    {"nested": 1, "predicates": 1},
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_queries_are_xpath(name: str, setting: dict[str, Any]) -> None:
    for query in drawn(200, name, **setting):
        etree.XPath(query)


@pytest.mark.parametrize("file", REAL_FILES[:4])
def test_queries_on_published_dtds_are_xpath(file: str) -> None:
    dtd = load_dtd(real(file))
    for query in QueryGenerator(dtd, nested=1, wildcard=0.3).take(100):
        etree.XPath(query)


@pytest.mark.parametrize("name", NAMES)
def test_queries_match_messages(name: str) -> None:
    """Structure alone matches often, and a good part of the equality predicates hit too."""
    dtd = load_dtd(name)
    messages = [
        etree.fromstring(m) for m in MessageGenerator(dtd, attribute_probability=0.7, values=5).take(100)
    ]

    def matching(queries: list[str]) -> float:
        return sum(any(etree.XPath(q)(m) for m in messages) for q in queries) / len(queries)

    assert matching(QueryGenerator(dtd).take(150)) > 0.6
    assert matching(QueryGenerator(dtd, predicates=1, values=5).take(150)) > 0.4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axes", [(0.0, 0.0), (0.3, 0.4)])
def test_every_query_can_be_matched(name: str, axes: tuple[float, float]) -> None:
    """A document made of all walks down to the maximal depth satisfies every query, nested paths included."""
    dtd = load_dtd(name)

    def grown(element: str, levels: int) -> str:
        inside = "".join(grown(child, levels - 1) for child in dtd.children[element]) if levels > 1 else ""
        return f"<{element}>{inside}</{element}>"

    everything = etree.fromstring(grown(dtd.root, 5))
    for query in drawn(200, name, max_depth=5, wildcard=axes[0], descendant=axes[1], nested=1):
        assert etree.XPath(query)(everything), query


@pytest.mark.parametrize("wildcard", [0.0, 0.2, 0.7, 1.0])
def test_wildcards_come_with_their_probability(wildcard: float) -> None:
    assert share(drawn(wildcard=wildcard), 1, "*") == pytest.approx(
        wildcard, abs=0.02 if 0 < wildcard < 1 else 0
    )


@pytest.mark.parametrize("descendant", [0.0, 0.2, 0.7, 1.0])
def test_descendants_come_with_their_probability(descendant: float) -> None:
    queries = drawn(wildcard=0.0, descendant=descendant)
    assert share(queries, 0, "//") == pytest.approx(descendant, abs=0.02 if 0 < descendant < 1 else 0)


def test_both_together_stay_close() -> None:
    queries = drawn()
    assert share(queries, 1, "*") == pytest.approx(0.2, abs=0.02)
    assert share(queries, 0, "//") == pytest.approx(0.2, abs=0.03)
    assert not any("//*" in query for query in queries), "// moves on past a *"


def test_descendants_skip_levels() -> None:
    plain = drawn(wildcard=0.0, descendant=0.0)
    skipping = drawn(wildcard=0.0, descendant=0.5)
    assert sum(map(len, map(steps, skipping))) < 0.75 * sum(map(len, map(steps, plain)))


@pytest.mark.parametrize("name", NAMES)
def test_plain_paths_run_from_the_root_to_a_leaf_or_the_maximal_depth(name: str) -> None:
    dtd = load_dtd(name)
    for query in drawn(300, name, wildcard=0.0, descendant=0.0):
        names = query[1:].split("/")
        assert names[0] == dtd.root
        assert all(child in dtd.children[parent] for parent, child in pairwise(names))
        assert len(names) == 6 or not dtd.children[names[-1]]


@pytest.mark.parametrize(("least", "most"), [(1, 3), (2, 2), (4, 7)])
def test_depths(least: int, most: int) -> None:
    queries = drawn(min_depth=least, max_depth=most, wildcard=0.0, descendant=0.0)
    lengths = {query.count("/") for query in queries}
    assert lengths == set(range(least, most + 1))


def test_depth_beyond_the_dtd() -> None:
    with pytest.raises(ValueError, match=r"min_depth 4 is more than .*: the longest path has 3 levels"):
        drawn(dtd="quotes", min_depth=4)
    with pytest.raises(ValueError, match=r"min_depth 4 is more than .*: the longest path has 3 levels"):
        drawn(min_depth=4, max_depth=3)


def test_name_skew_prefers_children_mentioned_first() -> None:
    def first_child(skew: float) -> Counter[str]:
        queries = drawn(dtd="quotes", wildcard=0.0, descendant=0.0, name_skew=skew)
        return Counter(query.split("/")[3] for query in queries)

    flat, skewed = first_child(0.0), first_child(1.0)
    assert flat["symbol"] / flat.total() == pytest.approx(1 / 12, abs=0.02)
    assert skewed["symbol"] / skewed["price"] == pytest.approx(2, abs=0.4)
    assert skewed["symbol"] > 8 * skewed["halted"]


@pytest.mark.parametrize("count", [0, 1, 3, 20])
def test_predicates_are_counted(count: int) -> None:
    assert {query.count("[") for query in drawn(300, predicates=count)} == {count}


def test_predicates_spread_uniformly_over_steps() -> None:
    # Paths of which every element has attributes, so that every step can take a predicate.
    queries = drawn(
        predicates=1, wildcard=0.0, descendant=0.0, dtd="quotes", predicate_targets=("attribute",)
    )
    places = Counter(
        next(i for i, step in enumerate(steps(query)) if step[2])
        for query in queries
        if query.partition("/quotes")[2].count("/") == 2 and re.search("/(change|bid|ask|halted)", query)
    )
    assert len(places) == 3
    for place in places:
        assert places[place] / places.total() == pytest.approx(1 / 3, abs=0.06)


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        ("attribute", r"\[@[\w.-]+=('[\w-]+'|\d+)\]"),
        ("text", r"\[text\(\)=\d+\]"),
        ("element", r"\[[a-z]+=\d+\]"),
    ],
)
def test_predicate_targets(target: str, pattern: str) -> None:
    queries = drawn(300, predicates=1, predicate_targets=(target,))
    assert all(re.search(pattern, query) for query in queries)


def test_all_targets_together() -> None:
    queries = drawn(1000, predicates=1, predicate_targets=("attribute", "text", "element"))
    kinds = Counter("@" if "[@" in q else "t" if "[text()" in q else "e" for q in queries)
    assert min(kinds["@"], kinds["t"], kinds["e"]) > 100


def test_operators_are_drawn_uniformly() -> None:
    operators = ("=", "!=", "<", "<=", ">", ">=")
    queries = drawn(dtd="quotes", predicates=1, operators=operators)
    seen = Counter(re.findall(r"[<>=!]+", "".join(queries)))
    assert set(seen) == set(operators)
    for operator in operators:
        assert seen[operator] / seen.total() == pytest.approx(1 / 6, abs=0.02)


def test_order_is_asked_of_numbers_only() -> None:
    queries = drawn(1000, predicates=1, operators=("<",))
    assert all(re.search(r"<\d+\]", query) for query in queries)
    assert any("@urgency<" in query for query in queries), "an enumeration of numbers is one too"


def test_fixed_attributes_are_not_asked_for() -> None:
    assert not any("@version" in query for query in drawn(2000, predicates=2))


def test_predicate_values_and_skew() -> None:
    def seen(**parameters: Any) -> Counter[str]:
        queries = drawn(dtd="quotes", predicates=1, predicate_targets=("text",), values=10, **parameters)
        return Counter(re.findall(r"=(\d+)\]", "".join(queries)))

    flat, skewed = seen(), seen(value_skew=1.0)
    assert set(flat) == {str(i) for i in range(1, 11)}
    assert flat["1"] / flat.total() == pytest.approx(0.1, abs=0.02)
    assert skewed["1"] / skewed.total() == pytest.approx(1 / 2.929, abs=0.03)


def test_words_are_quoted() -> None:
    queries = drawn(100, predicates=1, numeric=False, predicate_targets=("text",))
    assert all(re.search(r"='[^']+'\]", query) for query in queries)


@pytest.mark.parametrize("count", [1, 3])
def test_nested_paths_are_counted(count: int) -> None:
    queries = drawn(500, nested=count)
    assert {query.count("[") for query in queries} == {count}
    assert any("[.//" in query for query in queries)


def test_nested_paths_respect_the_depth() -> None:
    for query in drawn(500, nested=1, wildcard=0.0, descendant=0.0, max_depth=4):
        before, inside = re.split(r"[\[\]]", query)[:2]
        assert before.count("/") + inside.count("/") + 1 <= 4


def test_distinct_queries_never_repeat() -> None:
    queries = QueryGenerator(load_dtd("news")).take(20_000)
    assert len(set(queries)) == 20_000
    assert len(set(drawn(20_000))) < 15_000


def test_predicates_in_another_order_are_the_same_query() -> None:
    queries = QueryGenerator(load_dtd("book"), predicates=2, nested=1, values=2).take(2000)
    canonical = {"".join(a + t + "".join(sorted(p.split("]"))) for a, t, p in steps(q)) for q in queries}
    assert len(canonical) == 2000


def test_the_first_queries_are_the_natural_ones() -> None:
    """Distinctness changes only what it must: up to the first repeat the two sequences agree."""
    plain = drawn(500)
    repeat = next(i for i in range(500) if plain[i] in plain[:i])
    assert repeat > 5
    assert QueryGenerator(load_dtd("news")).take(repeat) == plain[:repeat]


def test_an_exhausted_space_says_how_many_were_found(tmp_path: Path) -> None:
    dtd = written(tmp_path, "<!ELEMENT a (b | c)><!ELEMENT b EMPTY><!ELEMENT c EMPTY>")
    # /a, //a or /*, then /b, /c, /*, //b or //c; or at once //b or //c.
    assert len(QueryGenerator(dtd).take(17)) == 17
    with pytest.raises(QueriesExhausted, match="found only 17 distinct queries on DTD 'test'") as caught:
        QueryGenerator(dtd).take(18)
    assert caught.value.found == 17
    assert str(caught.value).endswith("predicates or values, or repeats with distinct=False")


def test_impossible_queries_are_an_error() -> None:
    with pytest.raises(QueriesExhausted, match="no path of DTD 'quotes' can take 1 predicates") as caught:
        drawn(dtd="quotes", predicates=1, numeric=False, operators=("<",))
    assert not caught.value.repeatable and "distinct" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_same_seed_gives_the_same_queries() -> None:
    assert drawn(200, seed=3, predicates=1) == drawn(200, seed=3, predicates=1)
    assert drawn(200, seed=3) != drawn(200, seed=4)


def test_take_and_iteration_go_on_where_the_other_stopped() -> None:
    one, other = QueryGenerator(load_dtd("news")), QueryGenerator(load_dtd("news"))
    assert [*one.take(2), one.query(), *islice(one, 2)] == other.take(5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_depth": 0}, "max_depth must be at least 1, not 0"),
        ({"min_depth": 0}, "min_depth must be at least 1, not 0"),
        ({"wildcard": -0.1}, r"wildcard must be a probability from 0 to 1, not -0\.1"),
        ({"descendant": 2}, "descendant must be a probability from 0 to 1, not 2"),
        ({"predicates": -1}, "predicates must be at least 0, not -1"),
        ({"nested": -1}, "nested must be at least 0, not -1"),
        ({"name_skew": -1}, "name_skew must be at least 0, not -1"),
        ({"values": 0}, "values must be at least 1, not 0"),
        ({"operators": ("=", "~")}, r"operators must be a non-empty choice of =, !=, .*, not \('=', '~'\)"),
        ({"operators": ()}, "operators must be a non-empty choice"),
        ({"operators": "="}, "operators must be a non-empty choice"),
        (
            {"predicate_targets": ("comment",)},
            "predicate_targets must be a non-empty choice of attribute, text",
        ),
    ],
)
def test_parameters_out_of_range(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QueryGenerator(load_dtd("book"), **parameters)
