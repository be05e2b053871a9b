"""Queries compile to one canonical form: equal queries, and equal parts of different ones, are one object."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import weakref

import pytest

from sapwood import Matcher
from sapwood.lang import pattern
from sapwood.lang.pattern import (
    INTERNED,
    Axis,
    Has,
    Interned,
    Path,
    Position,
    Step,
    all_of,
    any_of,
    negation,
    plain_step,
)
from sapwood.lang.query import Query, compile_query

NAMESPACES = {"p": "urn:p", "q": "urn:q"}


def compiled(query: str) -> Query:
    return compile_query(query, NAMESPACES)


# -- canonical form --------------------------------------------------------------------------------------

SPELLINGS = [
    ["/a/b", "/child::a/child::b", " /a /b ", "/a/./b", "/a/self::node()/b", "/a\n\t/ b"],
    ["//a", "/descendant::a", "/descendant-or-self::node()/a", "/descendant-or-self::node()/child::a"],
    ["/a[b][c]", "/a[c][b]", "/a[b and c]", "/a[c and b]", "/a[ c and(b) ]", "/a[b and c and b]"],
    ["/a[b or c]", "/a[c or b]", "/a[(c) or b or c]", "/a[b or (c or b)]"],
    ["/a[b]", "/a[boolean(b)]", "/a[not(not(b))]", "/a[true() and b]", "/a[false() or b]"],
    ["/a[b]", "/a[count(b) > 0]", "/a[count(b) >= 1]", "/a[count(b) != 0]"],
    ["/a[b]", "/a[./b]", "/a[child::b]", "/a[b][true()]", "/a[b or b]"],
    ["/a[@x='1']", '/a[@x="1"]', "/a[attribute::x = '1']", "/a['1' = @x]", "/a[(@x) = ('1')]"],
    ["/a[@x=1]", "/a[@x = 1.0]", "/a[1=@x]", "/a[@x=01]"],
    ["/a[@x<5]", "/a[5>@x]", "/a[@x < '5']"],
    ["/a[1]", "/a[position()=1]", "/a[1 = position()]", "/a[1.0]"],
    ["/a[last()]", "/a[position() = last()]", "/a[last() = position()]"],
    ["/a[1.5]", "/a[0]", f"/a[{'1' * 400}]"],
    ["/a[not(b = 'x')]", '/a[not("x" = child::b)]'],
    ["/a[contains(., 'x')]", "/a[contains(string(.), 'x')]", "/a[contains(string(), 'x')]"],
    ["/a[.//b]", "/a[descendant::b]", "/a[./descendant-or-self::node()/b]"],
    ["/p:a/@p:x", "/child::p:a/attribute::p:x"],
    ["/a | /b", "/b | /a", "/a|/b|/a", "(/a) | (/b)"],
    ["/a and /b", "/b and /a", "boolean(/a) and boolean(/b)"],
]  # fmt: skip


@pytest.mark.parametrize("spellings", SPELLINGS, ids=lambda group: group[0])
def test_spellings_of_one_query_are_one_object(spellings: list[str]) -> None:
    first = compiled(spellings[0])
    for spelling in spellings[1:]:
        other = compiled(spelling)
        assert other.condition is first.condition, spelling
        assert other.key == first.key, spelling


@pytest.mark.parametrize("spellings", SPELLINGS, ids=lambda group: group[0])
def test_spellings_of_one_query_are_evaluated_once(spellings: list[str]) -> None:
    matcher = Matcher(NAMESPACES)
    matcher.add_many(enumerate(spellings))
    others = len(spellings) - 1
    assert all(matcher.explain(id).shared_with == others for id in matcher)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a/b", "/a//b"),
        ("/a", "//a"),
        ("/a[@x='1']", "/a[@x=1]"),  # strings compare as strings, numbers as numbers
        ("/a[@x='1']", "/a[@x!='1']"),
        ("/a[@x<1]", "/a[1<@x]"),
        ("/a[1][@x]", "/a[@x][1]"),  # positions count what earlier predicates kept
        ("//a[1]", "/descendant::a[1]"),  # per parent, and in the whole message
        ("/a[b and c]", "/a[b or c]"),
        ("/a[not(b = 'x')]", "/a[b != 'x']"),
        ("/a[b]/c", "/a[b/c]"),
        ("/a[b/c][b/d]", "/a[b[c][d]]"),  # two elements b, or one
        ("/a[. = 'x']", "/a[text() = 'x']"),
        ("/a[contains(b, 'x')]", "/a[b[contains(., 'x')]]"),  # the first b, or any
        ("/a/@x", "/a[@x]"),  # they match the same and select other nodes
        ("/a[b]", "/a/b"),
        ("/p:a", "/a"),
        ("/a[' 1' = @x]", "/a['1' = @x]"),
    ],
)
def test_different_queries_stay_apart(one: str, other: str) -> None:
    assert compiled(one).key != compiled(other).key


def test_sub_patterns_are_shared_between_queries() -> None:
    queries = [
        compiled(text)
        for text in ("/a[@x='1']/b", "//c[@x='1'][d]", "/d[not(@x='1')]", "/e[f or @x='1'] | /g")
    ]
    shared = Has(Path((Step(Axis.ATTRIBUTE, "x"),)), pattern.Test("=", "1"))
    for query in queries:
        assert any(part is shared for part in parts_of(query.condition)), query.text


def parts_of(whole: object) -> list[object]:
    """A pattern and everything it is made of."""
    found = [whole]
    if isinstance(whole, Interned):
        for name in whole._fields:
            part = getattr(whole, name)
            for inner in part if isinstance(part, tuple) else (part,):
                found += parts_of(inner)
    return found


def test_unreferenced_patterns_are_freed() -> None:
    plain_step.cache_clear()  # a bounded number of steps is kept at hand
    gc.collect()
    before = len(INTERNED)
    queries = [compiled(f"/fresh{i}[@x='{i}' and .//y{i}]/z[{i + 1}] | //w{i}[not(v)]") for i in range(50)]
    watched = [weakref.ref(query.condition) for query in queries]
    assert len(INTERNED) > before + 300
    del queries
    plain_step.cache_clear()
    gc.collect()
    assert len(INTERNED) <= before
    assert not any(ref() for ref in watched)


def test_patterns_are_immutable() -> None:
    condition = compiled("/a[@x]").condition
    with pytest.raises(AttributeError):
        condition.path = Path(())


@pytest.mark.parametrize("query", [group[0] for group in SPELLINGS])
def test_pickling_and_copying_keep_patterns_one(query: str) -> None:
    condition = compiled(query).condition
    assert pickle.loads(pickle.dumps(condition)) is condition
    assert copy.deepcopy(condition) is condition
    assert copy.copy(condition) is condition


def test_a_pickled_pattern_comes_back_after_it_was_freed() -> None:
    query = compiled("/freed[@x='1' and not(b)]/c[2]")
    written, pickled = str(query.condition), pickle.dumps(query.condition)
    watched = weakref.ref(query.condition)
    del query
    gc.collect()
    assert watched() is None
    again = pickle.loads(pickled)
    assert str(again) == written
    assert again is compiled("/freed[@x='1'][not(b)]/c[2]").condition


def test_a_compiled_query_can_be_pickled() -> None:
    query = compiled("//p:a[../b]/c[@x > 3]")
    again = pickle.loads(pickle.dumps(query))
    assert again == query
    assert again.key == query.key


def test_conditions_combine_to_one_canonical_form_in_any_order() -> None:
    items = [compiled(f"/a[{text}]").condition for text in ("b", "@x='1'", "not(c)", "d or e")]
    for order in itertools.permutations(items):
        assert all_of(order) is all_of(items)
        assert any_of(order) is any_of(items)
        assert all_of((all_of(order[:2]), all_of(order[2:]))) is all_of(items)
    assert negation(negation(items[0])) is items[0]


def test_positions_write_themselves_as_xpath() -> None:
    assert str(Position("=", 2.0)) == "position() = 2"
    assert str(Position("<", -1.0, from_last=True)) == "position() < last() - 1"
    assert str(Position(">", 3.0, of_size=True)) == "last() > 3"


NATIVE = [
    "/a", "//a", "/a/b//c", "/*", "//*/a", "/a/@x", "//@*", "/a/text()", "//text()", "/a[b]", "/a[.//b/c]",
    "/a[@x]", "/a[@x='1']", "/a[b='1']", "/a[b!='1']", "/a[@x<1]", "/a[@x<=1]", "/a[@x>1]", "/a[@x>=1]",
    "/a[.='x']", "/a[contains(., 'x')]", "/a[text()='x']", "/a[contains(@x,'1')]", "/a[starts-with(b,'1')]",
    "/a[not(b)]", "/a[b and c]", "/a[b or c]", "/a[b[c[@d]]]", "/a[2]", "/a[last()]", "/a[position() < 3]",
    "//a[b][1]", "/a[last() - 1]", "/a | /b", "/p:a", "/p:*", "/a[@p:x='1']", "/a[self::a]",
    "/a[local-name()='a']", "/a[b/@x = 'y']", "/a[b/text() = 'y']", "/descendant::a", "not(/a)",
    "/a and /b", "/a = 'x'", "true()", "/a[namespace-uri()='urn:p']", "/a[string(@x)='1']",
    "/a[descendant-or-self::b]", "/",
]  # fmt: skip


@pytest.mark.parametrize("query", NATIVE)
def test_the_native_language_is_not_left_to_lxml(query: str) -> None:
    assert compiled(query).exact, compiled(query).reasons


@pytest.mark.parametrize("query", NATIVE)
def test_a_pattern_is_written_as_xpath(query: str) -> None:
    """What `explain` shows can be subscribed to, but for namespaces, which it shows as `{uri}name`."""
    matcher = Matcher(NAMESPACES)
    matcher.add("q", query)
    written = matcher.explain("q").pattern
    if "{" not in written:
        matcher.add("as written", written)
        assert matcher.explain("as written").decided_by == matcher.explain("q").decided_by
