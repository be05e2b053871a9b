"""Queries planned, compiled and encoded by their shape: as without shapes, and with the same errors.

The compiler is the oracle: it has no part in shapes, and tests of its own against lxml.
"""

from __future__ import annotations

import ast
import gzip
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import permutations
from pathlib import Path
from random import Random
from weakref import WeakKeyDictionary

import pytest
from hypothesis import HealthCheck, given, settings

from sapwood import QueryError
from sapwood.engine.automaton.query_paths import MOST_LEVELS, IndexPlan, Leaf, Twig, plan_index
from sapwood.engine.automaton.query_planner import QueryPlanner
from sapwood.lang.pattern import Test as PatternTest
from sapwood.lang.query import Query, compile_query
from sapwood.lang.xpath import query_templates
from sapwood.lang.xpath.query_shape import MOST_TOKENS
from sapwood.lang.xpath.query_templates import TemplateCompiler
from sapwood.mesh.routing.condition_codec import pack, to_form
from sapwood.mesh.routing.condition_templates import QueryEncoder
from tests.support.generators.path_strategies import RANDOMS
from tests.support.generators.query_texts import QueryTexts
from tests.support.requirements import FULL
from tests.support.shared_data import folder

TESTS = Path(__file__).parents[1]
PREFIXES = {"p": "urn:p", "q": "urn:p", "r": "urn:r"}
NAMESPACES: list[dict[str, str]] = [{}, PREFIXES, {"*": "any"}, {**PREFIXES, "*": "any"}]

Planned = tuple[str, IndexPlan, bool]
Failed = tuple[str, int, str | None]


COMPILERS: WeakKeyDictionary[QueryPlanner, TemplateCompiler] = WeakKeyDictionary()
"""for each planner, a compiler that gets the same texts"""
ENCODERS: WeakKeyDictionary[QueryPlanner, QueryEncoder] = WeakKeyDictionary()
"""and an encoder"""


def compiled(compile_text: Callable[[str], Query], text: str) -> Query | Failed:
    try:
        return compile_text(text)
    except QueryError as error:
        return str(error), error.position, error.hint


def planned(planner: QueryPlanner, text: str) -> tuple[Planned | Failed, str]:
    """The outcome, and how it was found."""
    try:
        found = planner.plan(text)
    except QueryError as error:
        return (str(error), error.position, error.hint), "refused"
    if found.query is not None:
        assert found.query.text == text and found.exact == found.query.exact
    assert found.text == text
    outcome = found.key, found.plan, found.exact
    return outcome, "compiled" if found.query is not None else "from a template"


def plan_of(query: Query) -> Planned:
    return query.key, plan_index(query.condition), query.exact


def compare(texts: Iterable[str], planner: QueryPlanner, namespaces: Mapping[str, str]) -> Counter[str]:
    """Assert that each text is planned as it is compiled, and compiled and encoded by templates as without,
    at its first occurrence and at its second."""
    counts: Counter[str] = Counter()
    compiler = COMPILERS.setdefault(planner, TemplateCompiler(namespaces))
    encoder = ENCODERS.setdefault(planner, QueryEncoder(namespaces))
    for text in texts:
        query = compiled(lambda text: compile_query(text, namespaces), text)
        expected = plan_of(query) if isinstance(query, Query) else query
        encoding = pack(to_form(query.condition)) if isinstance(query, Query) else None
        for _ in range(2):
            outcome, how = planned(planner, text)
            assert outcome == expected, text
            assert compiled(compiler.compile, text) == query, text
            counts[how] += 1
            assert not compiler.recognizes(text) or isinstance(query, Query), text
            encoded = encoder.encode(text)
            assert encoded is None or encoded == encoding, text
            counts["encoded"] += encoded is not None
    return counts


# -- many queries ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("odd", [0.02, 0.2])
def test_random_queries(odd: float) -> None:
    """All of them with the same planners, so that most templates were made for another query."""
    planners = [(QueryPlanner(namespaces), namespaces) for namespaces in NAMESPACES]
    counts: Counter[str] = Counter()

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(RANDOMS)
    def plan_some(rng: Random) -> None:
        texts = QueryTexts(rng, odd)
        queries = [texts.query() for _ in range(5)]
        queries += [texts.varied(query) for query in queries for _ in range(3)]
        planner, namespaces = rng.choice(planners)
        counts.update(compare(queries, planner, namespaces))

    plan_some()
    assert (
        min(counts[how] for how in ("from a template", "compiled", "refused", "encoded"))
        > counts.total() / 50
    )


@cache
def texts_in_tests() -> list[str]:
    """Every string in the tests of languages and engines: queries, lists of them, and what is none."""
    found: dict[str, None] = {}
    for folder_name in ("lang", "engine", "support"):
        for path in sorted((TESTS / folder_name).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found |= dict.fromkeys((node.value, *re.split(r"\s{2,}", node.value.strip())))
    return [text for text in found if len(text) < 1_000]


@pytest.mark.parametrize(
    "namespaces",
    [NAMESPACES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in NAMESPACES[1:])],
    ids=str,
)
def test_all_queries_in_the_tests(namespaces: dict[str, str]) -> None:
    counts = compare(texts_in_tests(), QueryPlanner(namespaces), namespaces)
    assert counts["from a template"] > 500 and counts["compiled"] > 300 and counts["refused"] > 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("nitf/queries-pred1-100k", "nitf/queries-nested1-50k", "nitf/queries-153928-distinct"),
        *("nitf/queries-500000", "xmark/queries-100k"),
    ],
)
def test_all_queries_of_a_workload(name: str) -> None:
    """All of them in `make test-full`, else a sample: a workload has few shapes, each of them often."""
    with gzip.open(folder(name.partition("/")[0]).parent / f"{name}.txt.gz", "rt") as file:
        queries = [line for line in dict.fromkeys(file.read().split("\n")) if line]
    chosen = queries if FULL else Random(name).sample(queries, min(len(queries), 10_000))
    counts = compare(chosen, QueryPlanner({}), {})
    assert counts["compiled"] < 20


# -- what depends on the names and constants -------------------------------------------------------------

ALIKE = [
    # equal paths, at once or only where they end
    ["/a[b]/c", "/a[b]/b", "/a[b]/a", "/a[b//c]/b//c", "/a[b]//b"],
    ["/a[c/d]/c[d]", "/a[c/e]/c[d]", "/a[c]/c[d]", "/a[d]/c[d]"],
    ["/a[c/d]/c[d]/e", "/a[c/d/e]/c[d]/e", "/a[c/e]/c[d]/e"],
    ["/a[b/c | d]", "/a[b/c | b/c]", "/a[d | b/c]"],
    ["/a | /b", "/b | /a", "/a | /a", "//a | /a", "/a | //a"],
    ["/a//@x | /b//@x", "/a//@x | /a//@x", "//*//@x | /b//@x"],
    ["/a//@x | //@x", "//*//@x | //@x"],
    ["/a/./b | /a", "/a/./b | /a/b", "/a/./b | /b"],
    # the order of conditions: by their texts, where `.` and `-` sort before `/`, and `.//b` starts with a dot
    ["/a[b and c]", "/a[c and b]", "/a[b and b]", "/a[b and b.c]", "/a[b.c and b]", "/a[b-c/d and b/d]"],
    ["/a[b/x or b.c/x]", "/a[b.c/x or b/x]", "/a[.//b or c]", "/a[b//c or b]", "/a[b or *]"],
    ["/a[b = 5 or b = 7]", "/a[b = 7 or b = 5]", "/a[b = 5 or b = 5.0]", "/a[b = 10 or b = 9]"],
    ["/a[b or c]/d[e or f]", "/a[c or b]/d[e or f]", "/a[b or c]/d[f or e]", "/a[b or c]/d[c or b]"],
    ["/a[@x = 'y' or @x = 'z']", "/a[@x = 'z' or @x = 'y']", "/a[@x = 'y' or @x = 'y']"],
    ["/a[b = 'x' or b = \"x'\"]", "/a[b = \"'\" or b = 'x']"],
    ["/a[@x = 5 or @x = '5']", "/a[@x = 7 or @x = '5']"],
    ["/a[x or y[z]]", "/a[b/c or b[c]]", "/a[b or b[c]]", "/a[b or c[b]]"],
    # several tests of one node, which leaves cannot tell apart unless they are equal
    ["/a/text()[. = 5][. != 7]", "/a/text()[. = 5][. != 5]"],
    ["/a/@x[. = 5][. = 7]", "/a/@x[. = 5][. = 5]", "/a/@p:x[. = 5][. = 7]"],
    ["/a[@*[. = 5] = 7]", "/a[@*[. = 5] = 5]", "/a[@*[. = 5] = 5.0]", "/a[@*[. = 1e3] = 1000]"],
    ["/a[text()[. = 5] = 7]", "/a[text()[. = 5] = 5]"],
    # numbers: equal ones that are written otherwise, zeros, those that overflow
    ["/a[b = 5]", "/a[b = 05]", "/a[b = 5.]", "/a[b = .5]", "/a[b = 1e3]", "/a[b = 5e]", "/a[b = -5]"],
    [
        "/a[b = 0]",
        "/a[b = -0]",
        "/a[b = - 0]",
        "/a[b = --0]",
        f"/a[b = {'9' * 400}]",
        f"/a[b = -{'9' * 400}]",
    ],
    ["/a[b = 7310001]", "/a[b = 7310002]", "/a[7310001]", "/a[17310000]", "/a[position() = 5]"],
    ["/a[7.310000e6]", "/a[7.310001e6][position() = 5]", "/a[0.7310001]", "/a[2][position() = 5]"],
    # constants that are converted
    ["/a[b < 'x']", "/a[b < '5']", "/a[b <= 'x']", "/a[b <= '5']", "/a[b <='5' or c = '5']", "/a['5' > b]"],
    [
        "/a[last() = 'x']",
        "/a[last() = '5']",
        "/a[last() = 5]",
        "/a[position() != 'x']",
        "/a[position() != 1]",
    ],
    ["/a[count(b) > 5]", "/a[count(b) > 0]", "/a[count(b) > 1]", "/a[count(b) >= 1]", "/a[count(b) != 0]"],
    ["/a[string(b) = 'x']", "/a[string(b) = '']", "/a[string(b) = 5]", "/a[normalize-space(b) = 'x']"],
    ["/a[contains(b, 'x')]", "/a[contains(b, '')]", "/a[contains(b, 5)]", "/a[contains('xy', 'x')]"],
    ["/a[contains(\"='xy'\", 'x') or b='xy' or c='x']", "/a[contains(\"='zy'\", 'x') or b='zy' or c='x']"],
    ["/a[true() or local-name() = 'x']", "/a[true() or local-name() = 'x*']", "/a[local-name() = 'b']"],
    ["/a['x']", "/a['']", "/a[b = 'x' and 'y']", "/a[b = 'x' and '']", "/a[1]", "/a[0]", "/a[1.5]", "/a[2]"],
    # quotes, and what looks like a blank inside of a string
    ["/a[b='x']", '/a[b="x"]', '/a[b="it\'s"]', "/a[b='x[c]']", "/a[b=' and ']", "/a[b='{0}']", "/a[b='']"],
    ["/a[b='x\"]", "/a[b='=\"'x\"]", "/a[b=\"='x'\"]", "/a[b<=\"='x'\" or c='x']", "/a[b='x' or c<='y']"],
    # names of the language, and names that it takes for others
    ["/a[self::a]", "/a[self::b]", "/*[self::a]", "/a[self::_0_]", "/_0_[b]", "/_1_[_0_]/_2_"],
    ["/a[and]", "/a[or and and]", "/a[div div mod]", "/and/or[div]", "/a[b and and]", "/a[b and or]"],
    [
        "/a[text]",
        "/a[text()]",
        "/a[text ()]",
        "/a[node]",
        "/a[not]",
        "/a[not(b)]",
        "/a[not (b)]",
        "/a[not/b]",
    ],
    ["/a[b*c]", "/a[b * c]", "/a[*]", "/a[* = 5]", "/a[b and *]", "/a[* * *]", "/a[*/b]", "/*a", "/a[*b]"],
    ["/a/@x", "/a/@*", "/a/@ x", "/a//@x", "//@x", "/@x", "/a[@x]", "/a[@*]", "/a[.//@x]", "/a[.//@x][b]"],
    [
        "/a//text()",
        "//text()",
        "/a/text()",
        "/a[.//text() = 5]",
        "/a//text()[. = 5]",
        "/a[b//text()]//text()",
    ],
    ["/a/b//self::node()/c", "/a//./b", "/a//.//b", "/a/descendant::b", "/a/child::b[c]", "/a/.//b[./c]"],
    ["/a[x]//./b", "/a[x]/./b", "/a[x]//.//b", "/a[x]//self::node()/b", "/a[b]//@x | /a[c]//@x"],
    ["/a[b]/descendant::_0_", "/a[b]/descendant::_1_", "/a[b]/child::_0_", "/a[b]/child::b | /a[b]/b"],
    ["/a[true() or *b]", "/a[true() or b or child::_0_]", "/a[true() or *b or child::_0_]"],
    # joins
    ["/a[b->c]", "/a[b- > c]", "/a[b->5]", "/a[b and as = 5]", "/a[b] as c", "/a[followed by]", "/a/from[b]"],
    # prefixes
    ["/p:a[p:b]/p:c", "/p:a[p:b]/p:b", "/p:a[p:b]/q:b", "/p:a[p:b]/r:b", "/p:a[p:b]/b", "/p:a[p:b]/u:b"],
    [
        "/a[p:b or b]",
        "/a[b or p:b]",
        "/a[q:b or p:b]",
        "/a[*:b or p:b]",
        "/a[p:* or p:b]",
        "/a[xml:b or p:b]",
    ],
    ["/a[@p:b = 5]", "/a[@q:b = 5]", "/a[@xml:b = 5]", "/a[@u:b = 5]", "/a[@*:b = 5]", "/a[@p:* = 5]"],
    ["/é[b]", "/aé[b]", "/a[é]", "/a[b = 'é']", "/a[@é = 5]", "/a[b/é]/c", "/a·b[c]"],
    # white space and comments
    [
        "/a[b = 5]",
        "/a[ b = 5 ]",
        "/a[b  =  5]",
        "/a [b]",
        "/a[b\n= 5]",
        "/a[b = 5] ",
        " /a[b = 5]",
        "/a[b =\t5]",
    ],
    ["/a(: c :)[b]", "/a[b (: c :)]", "/a[(: c :) b]"],
]


@pytest.mark.parametrize("alike", ALIKE, ids=lambda alike: alike[0])
@pytest.mark.parametrize("namespaces", NAMESPACES, ids=str)
def test_queries_that_look_alike(alike: list[str], namespaces: dict[str, str]) -> None:
    """Whichever of them comes first and so gets the first template."""
    for first, second in permutations(alike, 2):
        compare([first, second], QueryPlanner(namespaces), namespaces)
    compare(alike, QueryPlanner(namespaces), namespaces)


def test_what_a_template_yields() -> None:
    planner = QueryPlanner({})
    for text in ("/x[@y=1]/z", "/x[@y=2]//z", "/nitf/body[@id= 15]//p/*"):
        found = planner.plan(text)
    parts = (Leaf(("nitf", "body"), "@id", PatternTest("=", 15.0)), Leaf(("nitf", "body", "//", "p", "*")))
    assert found.query is None and found.exact
    assert found.key == "/nitf/body[(Has(/@id,Test('=',15.0),False),)]//p/*"
    assert found.plan == IndexPlan((Twig(("nitf", "body"), parts),), True)


def test_each_order_of_conditions_gets_a_template() -> None:
    orders = [f"/x[{' or '.join(order)}]/y" for order in permutations(["b", "b.c", "d//e"])]
    assert compare(orders, QueryPlanner({}), {})["from a template"] == 2 * len(orders) - 1


def test_a_query_that_is_not_exact_comes_compiled() -> None:
    planner = QueryPlanner({})
    for number in range(3):
        found = planner.plan(f"/a[string-length(b) > {number}]")
        assert found.query is not None and not found.exact


@pytest.mark.slow
def test_queries_with_as_many_branches_as_twigs_may_have() -> None:
    """A blank may be many steps, so that the depths of a template say nothing of those of a query."""
    assert MOST_TOKENS <= 2 * MOST_LEVELS
    for branches in (3, 30, MOST_LEVELS - 1, MOST_LEVELS, MOST_LEVELS + 1, 3 * MOST_LEVELS // 2):
        texts = ["/a[b]" * branches, "/c[d]" * branches, "/a/a//a[b/b]" * branches]
        texts += [f"/a[text()][{path}/text()]" * (branches // 2) for path in ("b", "c", "b/" * 40 + "b")]
        compare([*texts, " | ".join(texts)], QueryPlanner({}), {})


# -- bounds ----------------------------------------------------------------------------------------------


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_templates, "MOST_SHAPES", 5)
    monkeypatch.setattr(query_templates, "MOST_TEMPLATES", 2)
    planner = QueryPlanner({})
    shapes = [f"/a[{position}]/{{}}[b]" for position in range(1, 20)]
    names = ["a", "b", "c"]
    orders = [f"/x[{' or '.join(order)}]" for order in permutations(names)]
    for _ in range(2):
        compare((shape.format(name) for shape in shapes for name in names), planner, {})
        assert compare(orders, planner, {})["compiled"] >= 8
        assert len(planner.templates) <= 5


def test_namespaces_that_are_declared_later() -> None:
    namespaces: dict[str, str] = {}
    planner = QueryPlanner(namespaces)
    queries = ["/a[b]/c", "/a[b]/p:c", "/a/b", "/a/p:b", "/p:a[@p:x = 5]"]
    for further in ({}, {"p": "urn:p"}, {"*": "any"}):
        namespaces |= further
        compare(queries, planner, namespaces)


def test_a_namespace_that_contains_a_mark() -> None:
    namespaces = {"p": "urn:_0_", "q": "urn:7310001"}
    compare(["/a[b = 5]/p:*", "/a[b = 7]/q:*", "/p:a[p:b or q:b]"], QueryPlanner(namespaces), namespaces)


def test_a_planner_is_pickled_with_its_namespaces_only() -> None:
    namespaces = {"p": "urn:p"}
    planner = QueryPlanner(namespaces)
    before = pickle.dumps(planner)
    compare(["/p:a[p:b]/c"], planner, namespaces)
    assert pickle.dumps(planner) == before
    found, shared = pickle.loads(pickle.dumps((planner, namespaces)))
    shared["q"] = "urn:q"
    compare(["/q:a[q:b]/p:c"], found, shared)
