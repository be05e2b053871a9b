"""Routes are necessary conditions: wherever a query matches, its route holds (acceptance test 1 of the mesh).

lxml decides whether a filter matches and whether a message can take part in a join, Saxon whether a
transformation binds anything. Routes make the way that they make between brokers: encoded and decoded. Each
run counts its answers; and mappings with a fault must be found out by the same comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from random import Random
from typing import Any, NamedTuple

import pytest

from sapwood import Matcher
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.pattern import And, Condition, Has, Not, Or, Path, Step, all_of, any_of, negation
from sapwood.lang.query import compile_query
from sapwood.mesh.routing.route import Route, decode_route, encode_route, routes_of
from tests.support.generators import join_strategies, transform_strategies
from tests.support.generators.join_queries import NAMESPACES as JOIN_NAMESPACES
from tests.support.generators.join_queries import Query, written
from tests.support.oracles import join_oracle, lxml_oracle, saxon
from tests.support.requirements import FULL

FILTERS, MESSAGES = (7_000, 1_000) if FULL else (2_000, 100)
JOINS, JOINED = (1_500, 200) if FULL else (150, 50)
TRANSFORMATIONS, TRANSFORMED = (1_500, 60) if FULL else (300, 12)


def routes(query: str, namespaces: dict[str, str]) -> tuple[Route, ...]:
    """The routes of a query, as another broker gets them."""
    return tuple(decode_route(encode_route(route)) for route in routes_of(query, namespaces, "t"))


def only_route(query: str, namespaces: dict[str, str]) -> Condition:
    (route,) = routes(query, namespaces)
    return route.condition


def evaluator(message: str | bytes) -> PatternEvaluator:
    with Matcher() as matcher:
        return PatternEvaluator(matcher.index.read(Message(message), all=True))


# -- filters ---------------------------------------------------------------------------------------------


class Filters(NamedTuple):
    """Random filters and messages, and which of them match."""

    queries: list[str]
    messages: list[str]
    matching: list[tuple[int, int]]
    """a query and a message"""

    def misses(self, to_condition: Callable[[str], Condition]) -> list[tuple[str, str]]:
        """The matches where the condition of the query does not hold."""
        evaluators = [evaluator(message) for message in self.messages]
        conditions = [to_condition(query) for query in self.queries]
        return [
            (self.queries[query], self.messages[message])
            for query, message in self.matching
            if not evaluators[message].holds(conditions[query])
        ]


@cache
def random_filters() -> Filters:
    rng = Random(2)
    queries = [lxml_oracle.random_query(rng, native=number % 2 == 0) for number in range(FILTERS)]
    names = [(a, x, b) for a in "ab*" for x in "xy" for b in ("a", "b", "@y")]
    queries += [f"//{a}[@{x} = '{v}'][{p}]/{b}" for a, x, b in names for v in "12x" for p in (1, "last()")]
    messages = [lxml_oracle.random_document(rng) for _ in range(MESSAGES)]
    trees = [lxml_oracle.parse(message) for message in messages]
    truths = [lxml_oracle.compiled(f"boolean({query})") for query in queries]
    matching = [(q, m) for q, truth in enumerate(truths) for m, tree in enumerate(trees) if truth(tree)]
    return Filters(queries, messages, matching)


def filter_route(query: str) -> Condition:
    return only_route(query, lxml_oracle.NAMESPACES)


@pytest.mark.oracle
@pytest.mark.slow
def test_a_route_holds_wherever_its_filter_matches() -> None:
    filters = random_filters()
    assert filters.misses(filter_route) == []
    assert len(filters.matching) > FILTERS * MESSAGES // 20
    refined = sum(not compile_query(query, lxml_oracle.NAMESPACES).exact for query in filters.queries)
    assert refined > FILTERS // 10


@pytest.mark.oracle
def test_most_routes_hold_only_where_their_filter_matches() -> None:
    """A route that held of every message would be necessary, too."""
    filters = random_filters()
    matching = set(filters.matching)
    checked = range(0, MESSAGES, 10)
    for number, query in enumerate(filters.queries[:300]):
        if compile_query(query, lxml_oracle.NAMESPACES).exact:
            condition = filter_route(query)
            holding = [m for m in checked if evaluator(filters.messages[m]).holds(condition)]
            assert holding == [m for m in checked if (number, m) in matching], query


@pytest.mark.parametrize(
    ("query", "message"),
    [
        # negations, nested and over alternatives
        ("//a[not(b[not(@x = 1)])]", "<r><a><b x='1'/></a></r>"),
        ("//a[not(b = 1 or c)]", "<r><a><b>2</b></a></r>"),
        ("//a[not(not(b) and not(c))]", "<r><a><c/></a></r>"),
        ("not(//a[string-length(.) > 1])", "<r><a>x</a></r>"),
        ("not(//a[not(string-length(.) > 1)])", "<r><a>xx</a></r>"),
        ("//a[not(following-sibling::b)]", "<r><b/><a/></r>"),
        ("//a[b or following-sibling::c]", "<r><a/><c/></r>"),
        # positions and sizes
        ("//a[2][@x]", "<r><a/><a x='1'/></r>"),
        ("//a[@x][2]", "<r><a x='1'/><a/><a x='1'/></r>"),
        ("//a[string-length(.) > 1][2]", "<r><a>x</a><a>xx</a><a>xx</a></r>"),
        ("//a[last()][@x]", "<r><a/><a x='1'/></r>"),
        ("//a[position() = last() - 1]/b", "<r><a><b/></a><a/></r>"),
        ("count(//a) = 2", "<r><a/><a/></r>"),
        ("count(//a) = 0", "<r/>"),
        ("//r[count(a) < 2]", "<r><a/></r>"),
        ("//r[count(a[@x]) = 0]", "<r><a/></r>"),
        # siblings and ancestors
        ("//b/preceding-sibling::a[@x]", "<r><a x='1'/><b/></r>"),
        ("//b/following-sibling::*[1]/@x", "<r><b/><a x='1'/></r>"),
        ("//b/ancestor::a[@x]", "<a x='1'><c><b/></c></a>"),
        ("//b/parent::*[@x]/c", "<a x='1'><b/><c/></a>"),
        ("//b[../@x]", "<a x='1'><b/></a>"),
        ("//b/following::c", "<r><a><b/></a><c/></r>"),
        # namespaces
        ("//p:a[q:b]", "<a xmlns='urn:p'><q:b xmlns:q='urn:q'/></a>"),
        ("//p:*/@p:x", "<z:a xmlns:z='urn:p' z:x='1'/>"),
        ("//*[local-name() = 'a' and namespace-uri() = 'urn:p']", "<a xmlns='urn:p'/>"),
        ("//a[not(p:b)]", "<a><b/></a>"),
        # numbers
        ("//a[@y = 2007]", "<a y='2007.0'/>"),
        ("//a[@y = 2007]", "<a y=' 2007 '/>"),
        ("//a[. = 2007]", "<a>20<b/>07</a>"),
        ("//a[@y != 2007]", "<a y='NaN'/>"),
        ("//a[not(@y = 2007)]", "<a y='NaN'/>"),
        ("//a[not(@y < 1)]", "<a y='x'/>"),
        ("//a[number(@y) != number(@y)]", "<a y='x'/>"),
        ("//a[@y = -0]", "<a y='0'/>"),
        # text nodes that elements and comments part
        ("//a[text() = 'x']", "<a>q<b/>x</a>"),
        ("//a[text() = 'q']/b", "<a>q<!-- c -->x<b/></a>"),
        ("//a[. = 'qx']", "<a>q<!-- c -->x</a>"),
        ("//a/text()[2]", "<a>q<b/>x</a>"),
        ("//a[contains(., 'qx')]", "<a>q<b/>x</a>"),
        # everything
        ("/", "<a/>"),
        ("true()", "<a/>"),
        ("not(false())", "<a/>"),
    ],
)
def test_by_hand(query: str, message: str) -> None:
    assert lxml_oracle.matches(lxml_oracle.parse(message), query)
    assert evaluator(message).holds(filter_route(query))


# -- mappings with a fault -------------------------------------------------------------------------------


def weaken(condition: Condition, everywhere: bool) -> Condition:
    """Compare with nothing any more: right where a condition may be weaker, and a fault where it may not.

    It may not inside a negation, where what is weaker makes the whole stronger, and not before a position,
    which counts what passes. `everywhere` ignores that.
    """
    match condition:
        case And(items=items):
            return all_of([weaken(item, everywhere) for item in items])
        case Or(items=items):
            return any_of([weaken(item, everywhere) for item in items])
        case Not(item=item):
            return negation(weaken(item, True)) if everywhere else condition
        case Has(path=path):
            return Has(Path(tuple([weaken_step(step, everywhere) for step in path.steps])))
    return condition


def weaken_step(step: Step, everywhere: bool) -> Step:
    if not everywhere and any(condition.positional for condition in step.conditions):
        return step
    return Step(step.axis, step.test, tuple([weaken(each, everywhere) for each in step.conditions]))


def weaken_negated(condition: Condition) -> Condition:
    """Weaken inside negations only, as a normal form does that has no regard to them."""
    match condition:
        case And(items=items):
            return all_of(map(weaken_negated, items))
        case Or(items=items):
            return any_of(map(weaken_negated, items))
        case Not(item=item):
            return negation(weaken(item, everywhere=True))
        case Has(path=path, test=test, first=first):
            steps = [Step(s.axis, s.test, tuple(map(weaken_negated, s.conditions))) for s in path.steps]
            return Has(Path(tuple(steps)), test, first)
    return condition


@pytest.mark.oracle
def test_what_is_weakened_where_it_may_be_still_holds() -> None:
    assert random_filters().misses(lambda query: weaken(filter_route(query), everywhere=False)) == []


@pytest.mark.oracle
def test_what_is_weakened_inside_a_negation_is_found_out() -> None:
    misses = random_filters().misses(lambda query: weaken_negated(filter_route(query)))
    assert len({query for query, _ in misses}) >= 10


@pytest.mark.oracle
def test_what_is_weakened_before_a_position_is_found_out() -> None:
    filters = random_filters()
    misses = filters.misses(lambda query: weaken(filter_route(query), everywhere=True))
    assert len({query for query, _ in misses if "not(" not in query}) >= 3


# -- joins -----------------------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.slow
def test_the_routes_of_a_join_hold_of_all_messages_that_may_take_part() -> None:
    rng = Random(3)
    messages = [join_strategies.random_message(rng) for _ in range(JOINED)]
    known = [join_oracle.Message(n, "", 0, message) for n, message in enumerate(messages)]
    evaluators = [evaluator(message) for message in messages]
    answers = positive = 0
    for _ in range(JOINS):
        query = join_strategies.random_query(rng)
        text = written(query, rng)
        by_stream: dict[str | None, list[Condition]] = {}
        for route in routes(text, JOIN_NAMESPACES):
            by_stream.setdefault(route.stream, []).append(route.condition)
        for number, block in enumerate(query.blocks):
            for message, evaluated in zip(known, evaluators, strict=True):
                takes_part = can_take_part(message, query, number)
                answers += 1
                positive += takes_part
                holds = any(evaluated.holds(each) for each in by_stream[block.stream])
                assert holds or not takes_part, (text, message.body)
        for message in known:
            message._ways.clear()
    assert positive > answers // 20


def can_take_part(message: join_oracle.Message, query: Query, block: int) -> bool:
    """Whether a block can be bound so that all that is compared with other messages is there."""
    sides = [side for link in query.links for c in link.comparisons for side in (c.left, c.right)]
    compared = [side for side in sides if side.path and query.block_of[side.variable] == block]
    return any(
        all(message.nodes(side.path, way[side.variable]) for side in compared)
        for way in message.ways(query, block)
    )


@pytest.mark.oracle
def test_the_routes_of_a_join_hold_of_all_messages_that_were_joined() -> None:
    rng = Random(5)
    joined = 0
    for _ in range(200 if FULL else 40):
        history = join_strategies.random_history(rng, messages=10, queries=5)
        oracle = join_oracle.Oracle(history.lateness)
        texts: dict[Hashable, str] = {}
        published: dict[Hashable, join_strategies.Publish] = {}
        for event in history.events:
            if isinstance(event, join_strategies.Subscribe):
                oracle.subscribe(event.id, event.query)
                texts[event.id] = event.text
            elif isinstance(event, join_strategies.Unsubscribe):
                oracle.unsubscribe(event.id)
            else:
                published[event.id] = event
                try:
                    told = oracle.publish(event.body, event.id, event.stream, event.time)
                except join_oracle.Late as late:
                    told = late.deliveries
                for delivery in told:
                    for message in delivery.messages:
                        if message in published:  # and is not made by a query
                            joined += len(delivery.messages) > 1
                            assert is_routed(texts[delivery.subscription], published[message])
    assert joined > 200


def is_routed(text: str, message: join_strategies.Publish) -> bool:
    evaluated = evaluator(message.body)
    return any(
        route.stream in (None, message.stream) and evaluated.holds(route.condition)
        for route in routes(text, JOIN_NAMESPACES)
    )


@pytest.mark.parametrize(
    ("text", "message", "stream"),
    [
        ("S//a->x[.//b->y] JOIN{y = w, 5 s} T/c->z[@k->w]", "<r><a><d><b/></d></a></r>", "S"),
        ("S//a->x[.//b->y] JOIN{y = w, 5 s} T/c->z[@k->w]", "<c k='1'/>", "T"),
        ("S//a->x[b->y][c->v]/d->u JOIN{y = w, 5 s} //c->w", "<a><b/><c/><d/></a>", "S"),
        ("S//a->x[b->y][c->v]/d->u JOIN{y = w, 5 s} //c->w", "<c/>", ""),
        ("S//a->x JOIN{number(x) = number(w), 5 s} S//c->w", "<a>no number</a>", "S"),
        ("S//a[2]->x[b->y] JOIN{y = w, 5 s} T//w->w", "<r><a/><a><b/></a></r>", "S"),
        ("SELECT * FROM S", "<anything/>", "S"),
    ],
)
def test_joins_by_hand(text: str, message: str, stream: str) -> None:
    found = [route for route in routes(text, {}) if route.stream == stream]
    assert any(evaluator(message).holds(route.condition) for route in found)


def test_all_variables_of_a_block_are_in_its_route() -> None:
    text = "S//a->x[b->y][c->v[@k->k]]/d->u JOIN{y = w, 5 s} T//c->w"
    (condition,) = [route.condition for route in routes(text, {}) if route.stream == "S"]
    assert evaluator("<r><a><b/><c k='1'/><d/></a></r>").holds(condition)
    for missing in ["<r><a><b/><c k='1'/></a><d/></r>", "<a><c k='1'/><d/></a>", "<a><b/><c/><d/></a>"]:
        assert not evaluator(missing).holds(condition)


# -- transformations -------------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.slow
def test_the_route_of_a_transformation_holds_wherever_it_binds_something() -> None:
    pytest.importorskip("saxonche")
    rng = Random(4)
    namespaces = transform_strategies.NAMESPACES
    messages = [transform_strategies.random_document(rng) for _ in range(TRANSFORMED)]
    evaluators = [evaluator(message) for message in messages]
    answers = positive = refined = 0
    for number in range(TRANSFORMATIONS):
        query = transform_strategies.random_query(rng, beyond=number % 2 == 0)
        (route,) = routes(query.sapwood, namespaces)
        refined += not route.exact
        for message, evaluated in zip(messages, evaluators, strict=True):
            binds = bindings(query.bindings, message, namespaces)
            answers += 1
            positive += binds
            assert evaluated.holds(route.condition) or not binds, (query.sapwood, message)
    assert positive > answers // 20
    assert refined > TRANSFORMATIONS // 20


def bindings(query: Any, message: str, namespaces: dict[str, str]) -> bool:
    return int(saxon.answer(query, message, namespaces)) > 0
