"""Joins and feeds: the same for the same seed, and distributed as the paper says."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from functools import cache
from itertools import pairwise
from math import comb, factorial

import pytest
from lxml import etree

from sapwood.workload import (
    FeedGenerator,
    JoinGenerator,
    JoinSchema,
    feed_schema,
    flat_schema,
    levels_schema,
)

QUERY = re.compile(r"(S/.+) FOLLOWED BY\{(.+), (INF|\d+ \w+)\} (S/.+)")
LEAF = re.compile(r"([a-z_]+\d*)->([vw]\d+)\]")
MOST = {"flat": 6, "levels": 4, "feed": 5}
SCHEMAS = [flat_schema(), levels_schema(), feed_schema()]
NAMES = [schema.name for schema in SCHEMAS]


def generator(schema: JoinSchema, **parameters: float) -> JoinGenerator:
    seed, skew = int(parameters.get("seed", 1)), parameters.get("skew", 0.8)
    return JoinGenerator(schema, seed=seed, skew=skew, equalities=MOST[schema.name])


def equalities(query: str) -> list[tuple[str, str]]:
    """The names of the leaves that are to be equal."""
    found = QUERY.fullmatch(query)
    assert found, query
    left, predicate, _, right = found.groups()
    bound = {variable: name for block in (left, right) for name, variable in LEAF.findall(block)}
    pairs = [condition.split("=") for condition in predicate.split(" AND ")]
    return [(bound[v], bound[w]) for v, w in pairs]


def matchings(leaves: int, most: int) -> int:
    """How many ways there are to equate up to `most` leaves with others, one to one."""
    return sum(comb(leaves, k) ** 2 * factorial(k) for k in range(1, most + 1))


# -- queries -------------------------------------------------------------------------------------------


def test_a_query_of_each_schema_is_written_as_in_the_paper() -> None:
    assert flat_schema().block("S", "v", [2, 4]) == "S/r->v0[l3->v1][l5->v2]"
    assert flat_schema().block("S", "w", [5, 0]) == "S/r->w0[l1->w2][l6->w1]"
    assert levels_schema().block("T", "v", [8, 0, 9]) == "T/r->v0[n1->vn1[l1->v2]][n3->vn3[l9->v1][l10->v3]]"
    assert feed_schema().block("S", "v", [2]) == "S/item->v0[title->v1]"
    query = JoinGenerator(flat_schema(1), window="60 s", stream="news").query()
    assert query == "news/r->v0[l1->v1] FOLLOWED BY{v1=w1, 60 s} news/r->w0[l1->w1]"


@pytest.mark.parametrize("schema", SCHEMAS, ids=NAMES)
def test_the_same_seed_gives_the_same_queries(schema: JoinSchema) -> None:
    first = generator(schema).take(500)
    assert generator(schema).take(500) == first
    assert generator(schema, seed=2).take(500) != first


def test_the_first_queries_never_change() -> None:
    """Published figures are about these very queries."""
    assert generator(flat_schema()).take(3) == [
        "S/r->v0[l6->v1] FOLLOWED BY{v1=w1, INF} S/r->w0[l5->w1]",
        "S/r->v0[l3->v1] FOLLOWED BY{v1=w1, INF} S/r->w0[l3->w1]",
        "S/r->v0[l1->v1][l2->v2][l5->v3] FOLLOWED BY{v1=w1 AND v2=w2 AND v3=w3, INF} "
        "S/r->w0[l3->w2][l5->w3][l6->w1]",
    ]


@pytest.mark.parametrize("schema", SCHEMAS, ids=NAMES)
def test_leaves_are_different_on_each_side(schema: JoinSchema) -> None:
    names = {path[-1] for path in schema.leaves}
    for query in generator(schema).take(1_000):
        left, right = zip(*equalities(query), strict=True)
        assert len(set(left)) == len(left) <= MOST[schema.name]
        assert len(set(right)) == len(right)
        assert {*left, *right} <= names


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS, ids=NAMES)
@pytest.mark.parametrize("skew", [0.0, 0.8, 1.6])
def test_the_number_of_equalities_follows_zipf(schema: JoinSchema, skew: float) -> None:
    most, count = MOST[schema.name], 8_000
    sizes = Counter(len(equalities(query)) for query in generator(schema, skew=skew).take(count))
    total = sum(k**-skew for k in range(1, most + 1))
    for k in range(1, most + 1):
        assert sizes[k] / count == pytest.approx(k**-skew / total, abs=0.02)


def test_all_leaves_are_as_likely_on_either_side() -> None:
    drawn = [pair for query in generator(flat_schema()).take(8_000) for pair in equalities(query)]
    for side in zip(*drawn, strict=True):
        shares = [count / len(drawn) for count in Counter(side).values()]
        assert len(shares) == 6
        assert shares == pytest.approx([1 / 6] * 6, abs=0.01)


def test_equal_queries_are_equal_texts() -> None:
    queries = generator(flat_schema(), skew=0.0).take(20_000)
    assert len({frozenset(equalities(query)) for query in queries}) == len(set(queries))


def test_there_are_only_thousands_of_distinct_queries_over_feeds() -> None:
    assert matchings(5, 5) == 1_545 and matchings(6, 6) == 13_326
    distinct = len(set(generator(feed_schema()).take(20_000)))
    assert 0.97 * 1_545 < distinct <= 1_545


@pytest.mark.parametrize("schema", SCHEMAS, ids=NAMES)
def test_queries_compile(schema: JoinSchema) -> None:
    xscl = pytest.importorskip("sapwood.lang.xscl.compiler")
    for query in generator(schema).take(200):
        join = xscl.compile_join(query, {})
        assert len(join.blocks) == 2
        assert len(join.links[0].comparisons) == len(equalities(query))


def test_parameters_out_of_range_are_named() -> None:
    for parameters, says in (
        ({"equalities": 0}, "equalities must be at least 1"),
        ({"equalities": 7}, "equalities must be at most 6"),
        ({"skew": -0.1}, "skew must be at least 0"),
    ):
        with pytest.raises(ValueError, match=says):
            JoinGenerator(flat_schema(), **parameters)
    with pytest.raises(ValueError, match="leaves"):
        flat_schema(0)
    with pytest.raises(ValueError, match="fan_out"):
        levels_schema(0)


# -- the messages of the paper -------------------------------------------------------------------------


@pytest.mark.parametrize("schema", SCHEMAS, ids=NAMES)
def test_a_message_has_the_leaves_of_its_schema_and_no_value_twice(schema: JoinSchema) -> None:
    first, second = (etree.fromstring(schema.message(number)) for number in (0, 1))
    values = [message.findtext("/".join(path)) for message in (first, second) for path in schema.leaves]
    assert None not in values
    assert len(set(values)) == 2 * len(schema.leaves)
    assert first.xpath("count(//*[not(*)])") == len(schema.leaves)
    assert schema.message() == schema.message(0)


def test_three_levels_have_sixteen_leaves() -> None:
    message = etree.fromstring(levels_schema().message())
    assert len(message) == 4 and all(len(node) == 4 for node in message)
    assert len(flat_schema(12).leaves) == 12


# -- feeds ---------------------------------------------------------------------------------------------

Item = dict[str, str]


def items(count: int, **parameters: float) -> list[Item]:
    made = FeedGenerator(seed=4, **parameters)  # type: ignore[arg-type]
    return [{leaf.tag: leaf.text or "" for leaf in etree.fromstring(body)} for body in made.take(count)]


@cache
def usual() -> list[Item]:
    return items(20_000)


def repeated(of: list[Item], *leaves: str) -> list[Item]:
    """The items with the same leaves as one before."""
    seen: set[tuple[str, ...]] = set()
    found = []
    for item in of:
        key = tuple(item[leaf] for leaf in leaves)
        if key in seen:
            found.append(item)
        seen.add(key)
    return found


def test_the_same_seed_gives_the_same_items() -> None:
    assert FeedGenerator(seed=4).take(100) == FeedGenerator(seed=4).take(100)
    assert FeedGenerator(seed=4).take(100) != FeedGenerator(seed=5).take(100)


def test_an_item_is_one_line_with_five_leaves() -> None:
    for body in FeedGenerator().take(50):
        assert b"\n" not in body and body.startswith(b"<item><item_url>http://")
    assert all(tuple(item) == tuple(path[0] for path in feed_schema().leaves) for item in usual())
    assert all(value for item in usual() for value in item.values())


def test_timestamps_increase_through_the_months_of_the_paper() -> None:
    times = [datetime.fromisoformat(item["timestamp"]) for item in usual()]
    assert all(before < after for before, after in pairwise(times))
    assert times[0].isoformat().startswith("2006-06-01T00:0")
    apart = (times[-1] - times[0]).total_seconds() / len(times)
    assert apart * 225_000 / 86_400 == pytest.approx(150, rel=0.03)  # days


def test_channels_are_as_popular_as_zipf_has_it() -> None:
    channels = Counter(item["channel_url"] for item in usual())
    assert len(channels) == 418
    total = sum(rank**-0.8 for rank in range(1, 419))
    for rank in (1, 2, 5):
        share = channels[f"http://feeds.example/{rank}/"] / len(usual())
        assert share == pytest.approx(rank**-0.8 / total, rel=0.1)


def test_titles_and_descriptions_repeat_at_the_documented_rates() -> None:
    count = len(usual())
    assert len(repeated(usual(), "item_url")) / count == pytest.approx(0.02, abs=0.004)
    assert len(repeated(usual(), "title")) / count == pytest.approx(0.056, abs=0.008)
    assert len(repeated(usual(), "description")) / count == pytest.approx(0.028, abs=0.006)
    assert not repeated(usual(), "timestamp")


def test_a_repost_is_of_the_same_channel_and_title() -> None:
    again = repeated(usual(), "item_url")
    assert again == repeated(usual(), "item_url", "channel_url", "title")
    same = repeated(usual(), "item_url", "description")
    assert len(same) / len(again) == pytest.approx(2 / 3, abs=0.1)


def test_a_crosspost_is_of_another_channel() -> None:
    crossed = items(3_000, reposts=0, crossposts=1, columns=0)
    assert len({item["title"] for item in crossed}) == 1  # all tell of the first
    assert not repeated(crossed, "item_url")
    some = items(5_000, reposts=0, crossposts=0.05, columns=0)
    again = repeated(some, "title")
    assert len(again) / len(some) == pytest.approx(0.05, abs=0.01)
    assert len(repeated(some, "title", "channel_url")) < 0.2 * len(again)  # told back by a third
    assert len(repeated(some, "description")) / len(again) == pytest.approx(0.5, abs=0.12)


def test_a_column_has_the_title_of_its_channel() -> None:
    made = items(2_000, reposts=0, crossposts=0, columns=0.5)
    columns = [item for item in made if item["title"].startswith("Column ")]
    assert len(columns) / len(made) == pytest.approx(0.5, abs=0.05)
    assert len({(item["title"], item["channel_url"]) for item in columns}) == len(
        {item["title"] for item in columns}
    )


def test_nothing_repeats_unless_asked() -> None:
    made = items(3_000, reposts=0, crossposts=0, columns=0)
    assert not any(repeated(made, leaf) for leaf in ("item_url", "title", "description"))
    assert len({item["channel_url"] for item in items(100, channels=1)}) == 1


def test_rates_out_of_range_are_named() -> None:
    for parameters, says in (
        ({"channels": 0}, "channels"),
        ({"reposts": -0.1}, "reposts"),
        ({"reposts": 0.6, "crossposts": 0.6}, "reposts, crossposts and columns"),
    ):
        with pytest.raises(ValueError, match=says):
            FeedGenerator(**parameters)
