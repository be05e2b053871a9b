"""Routes in the engine of a tenant: one pass finds subscriptions and links, in every way of evaluation."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapwood import Matcher
from sapwood.engine.automaton.predicate_index import NO_INTS
from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.engine.registration import Owner
from sapwood.errors import ArgumentError, MessageError
from sapwood.lang.pattern import TRUE
from sapwood.mesh.routing.route import Route, routes_of
from sapwood.serve.tenants.evaluation import Evaluation, Publication
from sapwood.serve.tenants.tenant_engine import TenantEngine
from tests.support.oracles import lxml_oracle
from tests.support.requirements import FULL

NAMESPACES = lxml_oracle.NAMESPACES
STREAMS = ["", "s", "t"]
TRANSFORMATION = "for $v in //a where $v/b return <r>{$v/b}</r>"
JOIN = "s//a->x JOIN{x = y, 10 s} t//b->y"


def engine_of(queries: Sequence[str] = ()) -> TenantEngine:
    engine = TenantEngine(Limits())
    engine.declare(NAMESPACES)
    for place, query in enumerate(queries):
        engine.put(place, query, inbox=1)
    assert not engine.refused
    return engine


def routes(query: str, *streams: str) -> tuple[Route, ...]:
    return routes_of(query, NAMESPACES, "t", streams)


def message(body: str | bytes, stream: str = "", id: str = "m") -> Publication:
    return Publication("t", stream, id, body.encode() if isinstance(body, str) else body, time=1.0)


def links(engine: TenantEngine, body: str, stream: str = "") -> int:
    (found,) = engine.evaluate([message(body, stream)])
    assert isinstance(found, Evaluation)
    assert engine.find_links(message(body, stream)) == found.links
    return found.links


def delivered(found: Evaluation | MessageError) -> object:
    if isinstance(found, MessageError):
        return str(found)
    outputs = found.outputs.tolist() if found.outputs is not None else None
    return found.places.tolist(), found.inboxes.tolist(), outputs, found.made, found.failures, found.late


# -- by hand ---------------------------------------------------------------------------------------------

WAYS = {
    "nothing": [],
    "filters": ["//a", "//b[@x]"],
    "positions": ["//a[2]"],
    "lxml": ["//a[string-length(.) > 1]"],
    "transformations": ["//a", TRANSFORMATION],
    "joins": ["//a", TRANSFORMATION, JOIN],
}


@pytest.mark.parametrize("way", WAYS)
def test_links_are_found_in_every_way_of_evaluation(way: str) -> None:
    engine = engine_of(WAYS[way])
    engine.set_routes(0, routes("//a"))
    engine.set_routes(5, routes("//b[@x = 1]"))
    engine.set_routes(61, [*routes("//a", "s"), *routes("//b[2]")])
    assert links(engine, "<a/>") == 1
    assert links(engine, "<a/>", "s") == 1 | 1 << 61
    assert links(engine, "<r><b/><b x='1.0'/></r>", "s") == 1 << 5 | 1 << 61
    assert links(engine, "<c/>", "s") == 0
    many = [message(body, id=str(n)) for n, body in enumerate(["<a/>", "<c/>", "<b x='1'/>"] * 20)]
    assert [found.links for found in engine.evaluate(many) if isinstance(found, Evaluation)] == [
        1,
        0,
        1 << 5,
    ] * 20


def test_the_empty_stream_is_not_any_stream() -> None:
    engine = engine_of()
    engine.set_routes(0, routes("//a", ""))
    assert links(engine, "<a/>") == 1
    assert links(engine, "<a/>", "s") == 0


def test_a_route_of_everything() -> None:
    engine = engine_of()
    engine.set_routes(2, [Route("t", None, TRUE)])
    engine.set_routes(3, [Route("t", "s", TRUE)])
    assert links(engine, "<a/>") == 4
    assert links(engine, "<a/>", "s") == 12


def test_changes_are_idempotent() -> None:
    engine = engine_of()
    engine.set_routes(1, routes("//a"))
    engine.set_routes(1, routes("//a"))
    engine.set_routes(2, [*routes("//a"), *routes("//a")])
    engine.set_routes(1, [], routes("//a"))
    engine.set_routes(1, [], [*routes("//a"), *routes("//never")])
    assert links(engine, "<a/>") == 4
    engine.set_routes(2, routes("//a"), routes("//a"))  # of one that is both, the addition holds
    assert links(engine, "<a/>") == 4
    engine.clear_routes(7)
    engine.clear_routes(2)
    assert links(engine, "<a/>") == 0
    assert len(engine.broker.filters.index) == 0


def test_one_condition_is_one_slot() -> None:
    engine = engine_of()
    before = len(engine.broker.filters.index)
    for link in range(5):
        engine.set_routes(link, [*routes("//a[b]"), *routes("//a[b]", "s", "t", "")])
    assert len(engine.broker.filters.index) == before + 1
    for link in range(5):
        assert len(engine.broker.filters.index) == before + 1
        engine.clear_routes(link)
    assert len(engine.broker.filters.index) == before


def test_a_slot_that_is_used_again_has_no_links() -> None:
    engine = engine_of()
    engine.set_routes(1, [*routes("//a"), *routes("//a", "s")])
    engine.clear_routes(1)
    engine.put(1, "//a", inbox=1)
    engine.set_routes(2, routes("//c"))
    assert links(engine, "<a/>", "s") == 0


@pytest.mark.parametrize("link", [-1, 62, 1_000])
def test_a_link_that_is_no_bit(link: int) -> None:
    engine = engine_of()
    with pytest.raises(ArgumentError, match="0 to 61"):
        engine.set_routes(link, routes("//a"))
    with pytest.raises(ArgumentError, match="0 to 61"):
        engine.clear_routes(link)


def test_routes_of_several_tenants_are_refused_together() -> None:
    engine = engine_of()
    other = Route("u", None, TRUE)
    with pytest.raises(ArgumentError, match="tenant"):
        engine.set_routes(0, [*routes("//a"), other])
    assert len(engine.broker.filters.index) == 0
    engine.set_routes(0, [other])
    with pytest.raises(ArgumentError, match="tenant"):
        engine.set_routes(0, routes("//a"))


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_message_is_refused_as_before(way: str) -> None:
    plain, routed = engine_of(WAYS[way]), engine_of(WAYS[way])
    routed.set_routes(0, [*routes("//a"), *routes("//a[2]")])
    for body in ["<a>", "", "<a/><b/>", "<a>&undefined;</a>", "<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>"]:
        (wanted,), (found,) = plain.evaluate([message(body)]), routed.evaluate([message(body)])
        assert delivered(wanted) == delivered(found)
        if isinstance(wanted, MessageError):
            with pytest.raises(MessageError) as raised:
                routed.find_links(message(body))
            assert str(raised.value) == str(wanted)
        else:
            assert isinstance(found, Evaluation)
            assert routed.find_links(message(body)) == found.links == 1


def test_finding_links_changes_nothing() -> None:
    engine = engine_of([JOIN, "//a[string-length(.) > 1]"])
    engine.set_routes(0, routes("//b[last()]"))
    assert engine.find_links(message("<a>1</a>", "s")) == 0
    assert engine.find_links(message("<b>1</b>", "t")) == 1
    (found,) = engine.evaluate([message("<b>1</b>", "t")])
    assert isinstance(found, Evaluation) and not len(found.places)  # the join has not seen the first
    assert engine.broker.state().messages == 1
    assert engine.broker.take_costs() == {}


def test_the_costs_of_routes_belong_to_no_subscription() -> None:
    engine = engine_of(["//a[2]"])
    engine.set_routes(0, routes("//a[last()]"))
    assert links(engine, "<r><a/><a/></r>") == 1
    assert set(engine.broker.take_costs()) == {0}


def test_deep_messages_beyond_the_twig_join() -> None:
    engine = engine_of(["//a[b][c]"])
    engine.set_routes(0, routes("//a[b][@x]/c"))
    engine.set_routes(1, routes("//a[b][@y]/c"))
    deep = "<a>" * 200 + "<a x='1'><b/><c/></a>" + "</a>" * 200
    assert links(engine, deep) == 1


# -- snapshots -------------------------------------------------------------------------------------------


def test_a_pack_has_no_routes() -> None:
    queries = ["//a", "//b[@x]", "//a[2]", "/a[b]/c", TRANSFORMATION, JOIN]
    engine = engine_of(queries[:3])
    for link, query in enumerate(["//a", "//c[2]", "/a[b][c]/d", "//a[b = 1 or @x = 'y']", "true()"]):
        engine.set_routes(link, [*routes(query), *routes(query, "s")])
    for place, query in enumerate(queries[3:], 3):
        engine.put(place, query, inbox=1)
    plain = engine_of(queries)
    packed = pickle.loads(pickle.dumps(engine.pack()))
    unpacked = TenantEngine.unpack(packed, {})
    bodies = ["<a><b>1</b><c/></a>", "<r><a/><a/><b x='1'/></r>", "<c/>"]
    assert links(engine, bodies[0]) > 0  # which still has them
    assert len(unpacked.broker.filters.index) == len(plain.broker.filters.index)
    assert unpacked.broker.filters.index.needs == plain.broker.filters.index.needs
    assert links(unpacked, bodies[0]) == 0
    for body in bodies:
        (wanted,), (found,) = plain.evaluate([message(body, "s")]), unpacked.evaluate([message(body, "s")])
        assert delivered(wanted) == delivered(found)
    unpacked.set_routes(0, routes("//c"))
    unpacked.put(90, "//c", inbox=2)
    (found,) = unpacked.evaluate([message("<c/>")])
    assert isinstance(found, Evaluation) and found.links == 1 and found.places.tolist() == [90]
    again = TenantEngine.unpack(pickle.loads(pickle.dumps(unpacked.pack())), {})
    assert links(again, "<c/>") == 0


def test_an_engine_whose_routes_are_gone_packs_as_before() -> None:
    never, once = engine_of(["//a"]), engine_of(["//a"])
    once.set_routes(0, routes("//a[b]"))
    held = once.pack()["broker"]
    assert isinstance(held, bytes)
    once.clear_routes(0)
    gone = once.pack()["broker"]
    assert isinstance(gone, bytes)
    for pack in (held, gone):
        state = TenantEngine.unpack({**never.pack(), "broker": pack}, {}).broker.filters.index
        wanted = never.broker.filters.index
        assert state.automaton.dump().queries.code.tolist() == wanted.automaton.dump().queries.code.tolist()
        assert len(state) == len(wanted) and state.text(0) == "//a"


# -- at random -------------------------------------------------------------------------------------------


class Model:
    """What links want, evaluated one condition at a time."""

    def __init__(self) -> None:
        self.wanted: dict[int, set[Route]] = {}
        self._index = Matcher().index

    def met(self, link: int, body: str, stream: str) -> set[Route]:
        evaluator = PatternEvaluator(self._index.read(Message(body), all=True))
        return {
            route
            for route in self.wanted[link]
            if route.stream in (None, stream) and evaluator.holds(route.condition)
        }

    def links(self, body: str, stream: str) -> int:
        evaluator = PatternEvaluator(self._index.read(Message(body), all=True))
        return sum(
            1 << link
            for link, wanted in self.wanted.items()
            if any(route.stream in (None, stream) and evaluator.holds(route.condition) for route in wanted)
        )


@settings(max_examples=200 if FULL else 25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.sampled_from(["filters", "native", "all", "joins"]))
def test_random_changes(seed: int, kind: str) -> None:
    """Links are those of the model, and deliveries those of an engine without routes."""
    rng = Random(seed)
    queries = [lxml_oracle.random_query(rng, kind != "all") for _ in range(6)]
    if kind == "filters":
        queries = [f"//{name}[@{x}]" for name in "abc" for x in "xy"]
    elif kind == "joins":
        queries += [TRANSFORMATION, JOIN]
    routed, plain, model = engine_of(queries), engine_of(queries), Model()
    pool = [
        route
        for _ in range(12)
        for route in routes(
            f"//{rng.choice('abc')}[@x = {rng.randint(1, 3)}]"
            if kind == "filters"
            else lxml_oracle.random_query(rng, native=rng.random() < 0.5),
            *rng.choice([(), (), ("s",), ("", "t"), ("s", "t", "")]),
        )
    ]
    pool += routes(rng.choice(queries[:6]))
    for step in range(8):
        link = rng.choice([0, 1, 7, 61])
        wanted = model.wanted.setdefault(link, set())
        if rng.random() < 0.1:
            routed.clear_routes(link)
            wanted.clear()
        else:
            added = rng.choices(pool, k=rng.randint(0, 6))
            removed = [route for route in rng.choices(pool, k=rng.randint(0, 6)) if route not in added]
            routed.set_routes(link, iter(added), iter(removed))
            wanted -= set(removed)
            wanted |= set(added)
        if rng.random() < 0.3:
            place, query = rng.randrange(8), rng.choice(queries)
            for engine in (routed, plain):
                engine.put(place, query, inbox=2)
        if rng.random() < 0.15:
            routed = TenantEngine.unpack(pickle.loads(pickle.dumps(routed.pack())), {})
            for each, again in model.wanted.items():
                routed.set_routes(each, again)
        messages = [
            Publication(
                "t", rng.choice(STREAMS), f"{step}.{n}", lxml_oracle.random_document(rng).encode(), 1.0
            )
            for n in range(5)
        ]
        evaluations = zip(messages, routed.evaluate(messages), plain.evaluate(messages), strict=True)
        for published, found, expected in evaluations:
            assert delivered(found) == delivered(expected)
            assert isinstance(found, Evaluation)
            assert found.links == model.links(published.body.decode(), published.stream)
            assert routed.find_links(published) == found.links
            for each in model.wanted:
                met = model.met(each, published.body.decode(), published.stream)
                slots = found.slots if found.slots is not None else NO_INTS
                assert set(routed.find_hits(slots, published.stream, each, 99, 99)[0]) == met
    for link in list(model.wanted):
        routed.clear_routes(link)
    assert not (routed.broker.filters.index._owners == Owner.LINK).any()


def hits(engine: TenantEngine, body: str, link: int, stream: str = "", most: int = 99) -> set[Route]:
    """Return the routes of a link that a message meets, as each way of evaluation finds them."""
    found = []
    for evaluation in (
        *engine.evaluate([message(body, stream)]),
        engine.evaluate_links(message(body, stream)),
    ):
        assert isinstance(evaluation, Evaluation) and evaluation.slots is not None
        met, is_complete = engine.find_hits(evaluation.slots, stream, link, most, most)
        assert is_complete and len(set(met)) == len(met)
        found.append(set(met))
    assert found[0] == found[1]
    return found[0]


def test_the_routes_that_a_message_meets() -> None:
    engine = engine_of(["//a[2]"])
    any_stream, of_s, of_t = [routes("//a", *streams)[0] for streams in ((), ("s",), ("t",))]
    other, at = routes("//b[@x]")[0], routes("//b[@x = 1][2]", "s")[0]
    engine.set_routes(0, [any_stream, of_s, of_t, other, at])
    engine.set_routes(3, [of_s])
    body = "<r><a/><b x='1'/><b x='1'/></r>"
    assert hits(engine, body, 0) == {any_stream, other}
    assert hits(engine, body, 0, "s") == {any_stream, of_s, other, at}
    assert hits(engine, body, 0, "t") == {any_stream, of_t, other}
    assert hits(engine, body, 3, "s") == {of_s}
    assert hits(engine, body, 3) == hits(engine, body, 9) == hits(engine, "<c/>", 0) == set()
    engine.set_routes(0, [], [any_stream, of_s])
    assert hits(engine, body, 0, "s") == {other, at} and hits(engine, body, 3, "s") == {of_s}
    engine.set_routes(0, routes("//c"))  # in a place that was free
    assert hits(engine, "<c/>", 0) == set(routes("//c"))
    engine.clear_routes(0)
    assert hits(engine, "<a/>", 3, "s") == {of_s}


def test_some_of_many_routes_that_a_message_meets() -> None:
    engine = engine_of()
    many = [route for n in range(40) for route in routes(f"//a[@x > {n}]")]
    many += [route for n in range(40, 80) for route in routes(f"//a[@x > {n}]", "s")]
    engine.set_routes(0, many)
    chosen = []
    for value in (100, 101):
        found = engine.evaluate_links(message(f"<a x='{value}'/>", "s"))
        assert found.slots is not None
        met, is_complete = engine.find_hits(found.slots, "s", 0, 79, 4)
        assert len(set(met)) == 4 and set(met) <= set(many) and not is_complete
        assert engine.find_hits(found.slots, "s", 0, 80, 4)[1]
        chosen.append(met)
    assert set(chosen[0]) == set(chosen[1])


def test_many_routes_at_once() -> None:
    engine = engine_of(["//a1"])
    many = [route for n in range(3_000) for route in routes(f"//a{n}[@x = {n % 7}]")]
    engine.set_routes(3, many)
    engine.set_routes(4, many[::2])
    assert links(engine, "<a2500 x='1'/>") == 1 << 3 | 1 << 4
    assert links(engine, "<a2501 x='2'/>") == 1 << 3
    assert links(engine, "<a2501 x='1'/>") == 0
    (found,) = engine.evaluate([message("<a1/>")])
    assert isinstance(found, Evaluation) and np.array_equal(found.places, [0])
    engine.clear_routes(3)
    assert links(engine, "<a2500 x='1'/>") == 1 << 4
    engine.set_routes(4, [], many)
    assert len(engine.broker.filters.index) == 1
