"""Placements of subscriptions, and the access keys that `exclusive` goes by."""

from __future__ import annotations

from collections import Counter

import pytest

from sapwood.errors import ArgumentError
from sapwood.lang.languages import compile_text
from sapwood.mesh.planning.access_key import AccessKey, choose_access_keys, find_equalities
from sapwood.mesh.planning.placement import EXCLUSIVE, LEAST, LOCAL, place
from sapwood.mesh.planning.planned_subscription import PlannedSubscription, plan_subscription


def plan_queries(*queries: str, subscribers: int = 0) -> list[PlannedSubscription]:
    return [
        plan_subscription(str(n), query, f"user-{n % subscribers}" if subscribers else "")
        for n, query in enumerate(queries)
    ]


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("/story[@topic = 'a']", {("story", "@topic", "=", "a")}),
        ("//story[@topic = 'a']/p[author = 'b']", {("story", "@topic", "=", "a"), ("p", "author", "=", "b")}),
        ("//year[. = 2007]", {("year", "=", "2007")}),
        ("//book[year = '2007']", {("book", "year", "=", "2007")}),
        ("//a[b/text() = 'x']", {("a", "b", "=", "x")}),
        ("//a[b = 'x' or c = 'y']", set()),  # neither is necessary
        ("//a[not(b = 'x')]", set()),
        ("//a[b != 'x' and c > 3 and contains(d, 'y')]", set()),
        ("//a[@* = 'x']", set()),
        ("//a/b", set()),
    ],
)
def test_equalities_are_those_that_every_match_has(query: str, keys: set[AccessKey]) -> None:
    compiled = compile_text(query, {})
    assert set(find_equalities(compiled.condition)) == keys  # type: ignore[union-attr]


def test_the_rarest_value_is_the_key() -> None:
    subscriptions = plan_queries("/s[@kind = 'news' and @place = 'basel']", "/s/p/q/r", "/*", "//*[@* = 1]")
    sample = [b"<s kind='news' place='rome'/>", b"<s kind='news' place='basel'/>", b"<broken"]
    assert choose_access_keys(subscriptions, sample) == [
        ("s", "@place", "=", "basel"),
        ("s", "p", "q"),
        None,
        None,
    ]


def test_a_join_has_no_equality_as_key() -> None:
    join = "SELECT <r>{$x}{$y}</r> FROM s//book[@k = 'a']->x JOIN{x = y, 10 s} t//blog[@k = 'b']->y"
    [key] = choose_access_keys([plan_subscription("1", join)], [])
    assert key is None or "=" not in key


def test_exclusive_keeps_equal_values_together_and_balances() -> None:
    subscriptions = plan_queries(*[f"/s[@t = '{n % 40}']/p{n}" for n in range(400)])
    sites = place(EXCLUSIVE, subscriptions, 4).sites
    by_value = {(n % 40, site) for n, site in enumerate(sites)}
    assert len(by_value) == 40  # one site for each value
    assert set(Counter(sites).values()) == {100}


def test_a_group_beyond_a_fair_share_is_split() -> None:
    sites = place(EXCLUSIVE, plan_queries(*["/s[@t = 'x']"] * 90, *["/s[@t = 'y']"] * 10), 4).sites
    counts = Counter(sites)
    assert len(counts) == 4
    assert max(counts.values()) <= 33


def test_local_keeps_subscribers_together() -> None:
    subscriptions = plan_queries(*["/s"] * 60, subscribers=6)
    sites = place(LOCAL, subscriptions, 3).sites
    assert len({(each.subscriber, site) for each, site in zip(subscriptions, sites, strict=True)}) == 6
    assert set(Counter(sites).values()) == {20}


def test_local_needs_subscribers() -> None:
    with pytest.raises(ArgumentError, match="choose 'exclusive' or 'least'"):
        place(LOCAL, plan_queries("/a", "/b"), 2)
    with pytest.raises(ArgumentError, match="there is no placement 'best'"):
        place("best", plan_queries("/a", "/b"), 2)


def test_least_is_even_and_the_same_each_time() -> None:
    subscriptions = plan_queries(*[f"/a{n}" for n in range(103)])
    first, second = (place(LEAST, subscriptions, 4).sites for _ in range(2))
    assert first == second
    assert sorted(Counter(first).values()) == [25, 26, 26, 26]
