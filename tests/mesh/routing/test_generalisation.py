"""Generalised routes: what is weaker accepts all that the original does, and what is lost is measured.

The property is that of acceptance test 1 of the mesh: no message that a query matches is missed. lxml decides
what random queries match; a mapping that weakens inside `not()` must be found out by the same comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import nan
from random import Random
from typing import Any

import pytest

from sapwood import Matcher
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang import pattern
from sapwood.lang.pattern import FALSE, TRUE, Axis, Condition, Has, Path, Step
from sapwood.lang.query import compile_query
from sapwood.mesh.routing import weaker_conditions
from sapwood.mesh.routing.generalisation import Generalisation, generalise
from sapwood.mesh.routing.merged_values import MOST_VALUES, merge_values
from sapwood.mesh.routing.message_sample import (
    MOST_BYTES,
    MOST_MESSAGES,
    MessageReservoir,
    SampleMessage,
    find_hits,
)
from sapwood.mesh.routing.route import Route, decode_route, encode_route, routes_of
from sapwood.mesh.routing.route_generaliser import RouteGeneraliser
from sapwood.mesh.routing.weaker_conditions import Omission, list_weakenings, shape_of
from tests.mesh.routing.test_necessary_routes import Filters, evaluator, filter_route, random_filters
from tests.support.oracles import lxml_oracle
from tests.support.requirements import FULL

TABLES = 40 if FULL else 8
IN_TABLE = 150


def size(route: Route) -> int:
    return len(route.identity) + 1


def condition(query: str) -> Condition:
    return compile_query(query, {}).condition


def route(query: str, tenant: str = "t", streams: Sequence[str] = ()) -> Route:
    (made,) = routes_of(query, {}, tenant, streams)
    return made


def reduce(
    routes: Sequence[Route], budget: int, messages: Sequence[str] = (), stream: str = ""
) -> Generalisation:
    sample = [SampleMessage("t", stream, message.encode()) for message in messages]
    return generalise(routes, budget, lambda some: find_hits(sample, some), size)


def texts(made: Generalisation) -> list[str]:
    return [str(entry.condition) for entry in made.entries]


# -- one part weaker -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "weaker"),
    [
        ("/a", []),
        ("/a/b", ["/a"]),
        ("/a[@x = 1]", ["/a", "/a[@x]"]),
        ("/a[@x][b]/c", ["/a[@x][b]", "/a[b]/c", "/a[@x]/c"]),
        ("/a = 'x'", ["/a"]),
        ("/a[. = 'x']", ["/a"]),
        ("//a[b/c = 1]", ["//a", "//a[b/c]", "//a[b]"]),
        # inside not(), only alternatives are left out
        ("/a[not(b)]", ["/a"]),
        ("/a[not(b[@x = 1])]", ["/a"]),
        ("/a[not(b or c)]", ["/a", "/a[not(b)]", "/a[not(c)]"]),
        ("/a[not(b[not(c and d)])]", ["/a", "/a[not(b[not(c)])]", "/a[not(b[not(d)])]"]),
        ("not(/a)", []),
        # positions after what is weaker are left out
        ("/a[@x][2]", ["/a", "/a[@x]"]),
        ("/a[2][@x]", ["/a[@x]", "/a[2]"]),
        ("/a[@x = 1][2]/b", ["/a[@x = 1][2]", "/a/b", "/a[@x]/b", "/a[@x = 1]/b"]),
        ("/a[not(b[@x or @y][1])]", ["/a"]),
        # the first node may be another one
        ("string(/a[@x]/b) = '1'", ["/a[@x]/b", "/a[@x]", "/a/b = '1'"]),
        # a disjunction is weaker if one of its parts is
        ("/a[b = 1 or c]", ["/a", "/a[b or c]"]),
    ],
)
def test_what_is_one_part_weaker(query: str, weaker: list[str]) -> None:
    found = {each.condition for each in list_weakenings(condition(query))}
    assert found == {condition(each) for each in weaker}


def test_what_holds_of_every_message_and_of_none_gets_no_weaker() -> None:
    assert not list(list_weakenings(TRUE)) and not list(list_weakenings(FALSE))


def test_shapes_are_equal_but_for_constants() -> None:
    assert shape_of(condition("/a[@x = 1 and b = 'z']/c")) == shape_of(condition("/a[b = 'a' and @x = 7]/c"))
    different = ["/a[@x = 1]", "/a[@x > 1]", "/a[@y = 1]", "/a[@x]", "//a[@x = 1]", "/a[1]", "/a[2]"]
    different += ["/a[not(@x = 1)]"]
    assert len({shape_of(condition(each)) for each in different}) == len(different)


# -- constants -------------------------------------------------------------------------------------------


def merged(*queries: str) -> list[str]:
    return [str(made) for made, _ in merge_values([condition(each) for each in queries])]


def test_conditions_that_differ_in_a_constant_are_one() -> None:
    assert merged("/a[@x = 'p']/b", "/a[@x = 'q']/b") == ["a[@x = 'p' or @x = 'q']/b"]
    assert merged("/a/b = 'p'", "/a/b = 'q'") == ["a/b[. = 'p' or . = 'q']"]
    assert merged("/a[@x = 1][@y = 1]", "/a[@x = 1][@y = 2]") == ["a[@x = 1 and (@y = 1 or @y = 2)]"]
    assert len(merged("/a[@x = 1][@y = 1]", "/a[@x = 2][@y = 2]")) == 2


def test_of_comparisons_the_weakest_is_all() -> None:
    assert merged("/a[@x > 5]", "/a[@x > 3]", "/a[@x > 9]") == ["a[@x > 3]"]
    assert merged("/a[@x <= 5]", "/a[@x <= 30]") == ["a[@x <= 30]"]
    no_number = Has(Path((Step(Axis.CHILD, "a"),)), pattern.Test(">", nan))
    (both,) = merge_values([condition("/a > 5"), no_number])
    assert str(both[0]) == "a > 5 or a > nan"


@pytest.mark.parametrize("query", ["/a[not(@x = {})]", "/a[@x = {}][2]", "string(/a[@x = {}]/b) = '1'"])
def test_some_constants_are_left_apart(query: str) -> None:
    assert len(merged(query.format(1), query.format(2))) == 2


def test_not_too_many_alternatives_are_in_one_condition() -> None:
    conditions = [condition(f"/a[@x = 'v{number}']/b") for number in range(3 * MOST_VALUES + 1)]
    parts = [parts for _, parts in merge_values(conditions)]
    assert sorted(map(len, parts)) == [1, MOST_VALUES, MOST_VALUES, MOST_VALUES]
    assert {each for some in parts for each in some} == set(conditions)


@pytest.mark.oracle
def test_merged_conditions_hold_exactly_where_their_parts_do() -> None:
    rng = Random(5)
    patterns = ["//{a}[@{x} = {v}]", "//{a}[{b} = {v}]/{b}", "/*[.//{a}[@{x} = {v}][{b}]]", "//{a}/{b} = {v}"]
    patterns += [
        "//{a}/@{x} = {v}",
        "//{a}[@{x} > {n}]/{b}",
        "//{a}[1][@{x} = {v}]",
        "//{a}[@{x} = {v} or {b}]",
    ]
    patterns += ["//{a}[@{x} = {v}][@y = {v2}]", "//{a}[text() = {v}]", "contains(//{a}, {v})"]
    evaluators = [evaluator(lxml_oracle.random_document(rng)) for _ in range(60)]
    values = ["'1'", "1", "'x'", "2", "10", "'xy'"]
    together = 0
    for form in patterns * 8:
        fixed = {"a": rng.choice("ab*"), "x": rng.choice("xyz"), "b": rng.choice("ab*")}
        queries = [form.format(v=v, v2=rng.choice(values), n=rng.randrange(9), **fixed) for v in values]
        conditions = list(dict.fromkeys(map(condition, queries)))
        shape = shape_of(conditions[0])
        for made, parts in merge_values([each for each in conditions if shape_of(each) == shape]):
            together += len(parts) > 1
            for each in evaluators:
                assert each.holds(made) == any(each.holds(part) for part in parts), (str(made), queries)
    assert together > 50


# -- tables ----------------------------------------------------------------------------------------------


def test_a_table_within_its_budget_stays_as_it_is() -> None:
    routes = [route(f"/a[@x = {number}]") for number in range(5)]
    made = reduce(routes, 10_000)
    assert list(made.entries) == routes and made.loss == 0


def test_merging_constants_comes_first_and_loses_nothing() -> None:
    routes = [route(f"/news[@topic = 't{number}']/p") for number in range(20)]
    made = reduce(routes, sum(map(size, routes)) * 2 // 3, ["<news topic='none'><p/></news>"])
    assert len(made.entries) == 1 and made.loss == 0
    assert "or @topic = 't7'" in texts(made)[0]


def test_the_smallest_loss_comes_first() -> None:
    """Both classes would be as small without their test, but one of them would then accept more messages."""
    rare = [route(f"/rare[@k = '{number:04}']/p") for number in range(40)]
    often = [route(f"/news[@k = '{number:04}']/p") for number in range(40)]
    messages = [f"<news k='{number:04}'><p/></news>" for number in range(30, 60)]
    messages += [f"<rare k='{number:04}'><p/></rare>" for number in range(38, 42)]
    messages += ["<news k='0001'/>"] * 25 + ["<rare k='0001'/>"] * 5  # which a shorter path would accept
    together = reduce([*rare, *often], 10**9, messages)
    assert len(together.entries) == 80
    alone = sum(map(size, reduce(often, sum(map(size, often)) * 9 // 10, messages).entries))
    made = reduce([*often, *rare], alone + 60, messages)
    assert "rare[@k]/p" in texts(made) and made.loss == 2
    assert all("news[@k = '" in text for text in texts(made) if text.startswith("news"))
    least = reduce([*often, *rare], 60, messages)
    assert sorted(texts(least)) == ["news[@k]/p", "rare"]  # which loses 7, before news, which loses 20
    assert least.loss == 7 + 20


def test_what_is_forwarded_in_any_case_is_no_loss() -> None:
    routes = [route("/news"), *(route(f"/news[@k = '{number:04}'][x]/p") for number in range(40))]
    made = reduce(routes, 200, [f"<news k='{number:04}'><p/></news>" for number in range(60)])
    assert made.loss == 0 and sum(map(size, made.entries)) <= 200


def test_in_the_end_all_messages_of_a_stream_are_accepted() -> None:
    routes = [route(f"/a{number}", streams=["s"]) for number in range(20)]
    routes += [route("/b", streams=["other"]), route("/b"), route("/b", tenant="u", streams=["s"])]
    made = reduce(routes, 60)
    assert {(entry.tenant, entry.stream) for entry in made.entries} == {
        ("t", "s"),
        ("t", "other"),
        ("t", None),
        ("u", "s"),
    }
    assert all(covers_side(made, each) for each in routes)
    everything = next(entry for entry in made.entries if (entry.tenant, entry.stream) == ("t", "s"))
    assert everything.condition is TRUE


def covers_side(made: Generalisation, member: Route) -> bool:
    entry = made.cover(member)
    assert entry is not None and entry in made.entries
    return (entry.tenant, entry.stream) == (member.tenant, member.stream)


def test_a_later_route_is_covered_by_the_entry_of_its_shape() -> None:
    routes = [route(f"/news[@topic = 't{number}']/p") for number in range(100)]
    made = reduce(routes, 60, ["<news topic='t1'><p/></news>"])
    assert texts(made) == ["news[@topic]/p"]
    (entry,) = made.entries
    assert made.cover(route("/news[@topic = 'another']/p")) is entry
    assert made.cover(route("/news[@topic]/p")) is entry
    assert made.cover(route("/news[@topic = 'another']/q")) is None
    assert made.cover(route("/news[@topic = 'another']/p", tenant="u")) is None
    assert made.cover(route("/news[@topic = 'another']/p", streams=["s"])) is None


def test_a_later_route_is_covered_by_alternatives_only_if_it_is_one_of_them() -> None:
    routes = [route(f"/news[@topic = 't{number}']/p") for number in range(20)]
    made = reduce(routes, sum(map(size, routes)) * 2 // 3)
    assert made.cover(route("/news[@topic = 't3']/p")) in made.entries
    assert made.cover(route("/news[@topic = 'another']/p")) is None


# -- random queries and documents ------------------------------------------------------------------------


def tables(filters: Filters) -> Iterator[list[int]]:
    """Some of the queries at a time, of which most differ and some are alike."""
    rng = Random(9)
    for _ in range(TABLES):
        yield rng.sample(range(len(filters.queries)), IN_TABLE)


@cache
def filter_conditions() -> list[Condition]:
    return [filter_route(query) for query in random_filters().queries]


def find_misses() -> tuple[list[tuple[str, str, str]], int]:
    """Return where a message that a query matches is not accepted by the entry of its route, and how often
    one is; tables are generalised to different parts of their size."""
    filters, conditions = random_filters(), filter_conditions()
    evaluators: list[PatternEvaluator] = [evaluator(message) for message in filters.messages]
    sample = [SampleMessage("t", "", message.encode()) for message in filters.messages[:40]]
    matching: dict[int, list[int]] = {}
    for query, message in filters.matching:
        matching.setdefault(query, []).append(message)
    misses: list[tuple[str, str, str]] = []
    accepted = 0
    for number, queries in enumerate(tables(filters)):
        routes = {query: Route("t", None, conditions[query]) for query in queries}
        budget = sum(map(size, set(routes.values()))) * (1 + number % 8) // 10
        made = generalise(
            list(dict.fromkeys(routes.values())), budget, lambda some: find_hits(sample, some), size
        )
        assert sum(map(size, made.entries)) <= max(budget, 10)
        for query, each in routes.items():
            entry = made.cover(each)
            assert entry in made.entries
            told = decode_route(encode_route(entry)).condition
            for message in matching.get(query, ()):
                accepted += 1
                if not evaluators[message].holds(told):
                    misses.append((filters.queries[query], str(told), filters.messages[message]))
    return misses, accepted


@pytest.mark.oracle
@pytest.mark.slow
def test_a_generalised_table_accepts_whatever_a_query_matches() -> None:
    misses, accepted = find_misses()
    assert misses == []
    assert accepted > TABLES * IN_TABLE


@pytest.mark.oracle
@pytest.mark.slow
def test_what_is_weakened_inside_a_negation_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def weaken(negated: Condition) -> Iterator[Condition]:
        yield from [each.condition for each in list_weakenings(negated)]

    monkeypatch.setattr(weaker_conditions, "list_strengthenings", weaken)
    misses, _ = find_misses()
    assert len({query for query, *_ in misses}) >= 3


@pytest.mark.oracle
def test_every_weaker_condition_accepts_whatever_a_query_matches() -> None:
    filters, conditions = random_filters(), filter_conditions()
    evaluators = [evaluator(message) for message in filters.messages[:60]]
    matching: dict[int, list[int]] = {}
    for query, message in filters.matching:
        if message < len(evaluators):
            matching.setdefault(query, []).append(message)
    compared = 0
    for query, messages in list(matching.items())[::3]:
        for weaker in list_weakenings(conditions[query]):
            for message in messages:
                compared += 1
                assert evaluators[message].holds(weaker.condition), (
                    filters.queries[query],
                    str(weaker.condition),
                )
    assert compared > 4_000


# -- samples ---------------------------------------------------------------------------------------------


def test_hits_are_what_each_condition_accepts() -> None:
    rng = Random(11)
    documents = [lxml_oracle.random_document(rng) for _ in range(50)]
    streams = [rng.choice(["", "s"]) for _ in documents]
    sample = [
        SampleMessage("t", stream, text.encode()) for stream, text in zip(streams, documents, strict=True)
    ]
    routes = [
        Route(rng.choice("tu"), rng.choice([None, "", "s"]), each) for each in filter_conditions()[:150]
    ]
    with Matcher() as matcher:
        evaluators = [PatternEvaluator(matcher.index.read(Message(each), all=True)) for each in documents]
    for each, hits in zip(routes, find_hits(sample, routes), strict=True):
        for number, stream in enumerate(streams):
            is_of = each.tenant == "t" and each.stream in (None, stream)
            assert bool(hits >> number & 1) == (is_of and evaluators[number].holds(each.condition))


def test_without_messages_and_with_broken_ones_nothing_is_hit() -> None:
    assert find_hits([], [route("/a")]) == [0]
    assert find_hits([SampleMessage("t", "", b"<a>"), SampleMessage("t", "", b"<a/>")], [route("/a")]) == [2]


def test_a_reservoir_keeps_some_of_all_messages() -> None:
    reservoir = MessageReservoir(Random(1))
    for number in range(10 * MOST_MESSAGES):
        reservoir.add("t", "", b"%d" % number)
    reservoir.add("t", "", bytes(MOST_BYTES + 1))
    changed = [reservoir.is_changed]
    taken = [int(message.body) for message in reservoir.take()]
    changed.append(reservoir.is_changed)
    assert len(taken) == MOST_MESSAGES and changed == [True, False]
    assert 0.3 < sum(number < 5 * MOST_MESSAGES for number in taken) / len(taken) < 0.7


def test_a_generaliser_measures_with_the_sample_that_it_was_given() -> None:
    generaliser = RouteGeneraliser(100)
    assert (generaliser.budget, generaliser.is_sampled) == (100, False)
    other: Any = "what is no message"
    generaliser.set_sample([SampleMessage("t", "", b"<a/>"), other])
    assert generaliser.is_sampled
    routes = [route(f"/a[@x = '{number}']") for number in range(50)]
    covering = generaliser.generalise(routes, 100)
    (entry,) = {covering.cover(each) for each in routes}
    assert entry is not None and generaliser.size(entry) <= 100


def test_omissions_are_in_the_order_of_what_they_lose() -> None:
    assert sorted(Omission) == [Omission.TEST, Omission.CONDITION, Omission.STEP, Omission.EVERYTHING]
