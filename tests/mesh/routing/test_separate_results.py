"""What join queries publish, as messages of their own: the deliveries are the same as a whole."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from sapwood.engine.limits import Limits
from sapwood.errors import MessageError
from sapwood.mesh.routing.route import routes_of
from sapwood.serve.tenants.evaluation import Evaluation, Publication
from sapwood.serve.tenants.tenant_engine import TenantEngine
from tests.support.generators.join_queries import NAMESPACES
from tests.support.generators.join_strategies import (
    SEEDS,
    History,
    Publish,
    Subscribe,
    Unsubscribe,
    histories,
    random_history,
)
from tests.support.requirements import FULL

Delivered = tuple[int, str, bytes]
"""a place, the id of the message, and what is delivered"""

ALERTS = "SELECT <alert>{$x}</alert> FROM s//a->x JOIN{x = y, 10 s} t//b->y PUBLISH alerts"


def engine_of(lateness: float = 0.0, separate: bool = True) -> TenantEngine:
    engine = TenantEngine(Limits(), lateness=lateness, separate_results=separate)
    engine.declare(NAMESPACES)
    return engine


def deliveries(message: Publication, found: Evaluation) -> list[Delivered]:
    outputs = found.outputs.tolist() if found.outputs is not None else [-1] * len(found.places)
    return [
        (place, message.id, message.body) if output < 0 else (place, *found.made[output])
        for place, output in zip(found.places.tolist(), outputs, strict=True)
    ]


def publish(engine: TenantEngine, message: Publication) -> tuple[list[Delivered], list[Publication]]:
    """The deliveries of a message and of all that follow from it, and the messages that do."""
    made: list[Delivered] = []
    followed: list[Publication] = []
    queue = deque([message])
    while queue:
        published = queue.popleft()
        (found,) = engine.evaluate([published])
        if isinstance(found, MessageError):
            continue
        made += deliveries(published, found)
        queue += found.published
        followed += found.published
    return made, followed


def run(history: History, separate: bool) -> tuple[list[Counter[Delivered]], int]:
    """The deliveries after each message, and how many messages queries have published."""
    engine = engine_of(history.lateness, separate)
    told: list[Counter[Delivered]] = []
    followed = 0
    for event in history.events:
        if isinstance(event, Subscribe):
            engine.put(int(event.id), event.text, inbox=1)
        elif isinstance(event, Unsubscribe):
            engine.remove(int(event.id))
        else:
            made, published = publish(engine, to_publication(event))
            told.append(Counter(made))
            followed += len(published)
    return told, followed


def to_publication(event: Publish) -> Publication:
    return Publication("t", event.stream, str(event.id), event.body.encode(), event.time)


@settings(max_examples=400 if FULL else 30, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories(messages=10, queries=5, by=SEEDS))
def test_deliveries_are_the_same_as_a_whole(history: History) -> None:
    together, none = run(history, separate=False)
    apart, _ = run(history, separate=True)
    assert apart == together
    assert none == 0


def test_there_is_something_to_compare() -> None:
    rng = Random(8)
    followed = delivered = 0
    for _ in range(40):
        history = random_history(rng, messages=10, queries=5)
        together, none = run(history, separate=False)
        apart, published = run(history, separate=True)
        assert apart == together and none == 0
        followed += published
        delivered += sum(map(Counter.total, apart))
    assert followed > 30
    assert delivered > 200


def test_results_are_named_as_a_broker_names_them() -> None:
    engine = engine_of()
    engine.put(1, ALERTS, inbox=1)
    engine.put(2, "alerts//alert->z", inbox=1)
    publish(engine, Publication("t", "s", "m1", b"<a>1</a>", 1.0))
    (found,) = engine.evaluate([Publication("t", "t", "m2", b"<r><b>1</b><b>1</b></r>", 2.0)])
    assert isinstance(found, Evaluation)
    assert found.published == [
        Publication("t", "alerts", "alerts(s:m1, t:m2)", b"<alert><a>1</a></alert>", 2.0)
    ]
    assert [place for place, _, _ in deliveries(found.published[0], found)] == [1]
    (after,) = engine.evaluate(found.published)
    assert isinstance(after, Evaluation)
    assert deliveries(found.published[0], after) == [(2, "alerts(s:m1, t:m2)", b"<alert><a>1</a></alert>")]


def test_results_are_routed() -> None:
    engine = engine_of()
    engine.put(1, ALERTS, inbox=1)
    engine.set_routes(3, routes_of("alerts//alert->z", {}, "t"))
    first = Publication("t", "s", "m1", b"<a>1</a>", 1.0)
    second = Publication("t", "t", "m2", b"<b>1</b>", 2.0)
    found = list(engine.evaluate([first, second]))
    assert [each.links for each in found if isinstance(each, Evaluation)] == [0, 0]
    assert isinstance(found[1], Evaluation)
    (result,) = engine.evaluate(found[1].published)
    assert isinstance(result, Evaluation) and result.links == 8


@pytest.mark.parametrize("separate", [False, True])
def test_a_replay_gives_joins_what_the_log_has(separate: bool) -> None:
    """Results are rows of the log by themselves if they are separate, and made again if they are not."""
    chained = "alerts//alert->z JOIN{z = w, 10 s} s//c->w"
    engine, replayed = engine_of(separate=separate), engine_of(separate=separate)
    log: list[Publication] = []
    for each in (engine, replayed):
        each.put(1, ALERTS, inbox=1)
        each.put(2, chained, inbox=1)
    queue = deque(
        [
            Publication("t", "s", "m1", b"<a>1</a>", 1.0),
            Publication("t", "t", "m2", b"<b>1</b>", 2.0),
        ]
    )
    while queue:
        log.append(queue.popleft())
        (found,) = engine.evaluate([log[-1]])
        assert isinstance(found, Evaluation)
        queue += found.published
    assert len(log) == (3 if separate else 2)
    for message in log:
        replayed.replay(message)
    replayed.replay(Publication("t", "s", "bad", b"<a>", 2.0))
    last = Publication("t", "s", "m3", b"<c>1</c>", 3.0)
    made, _ = publish(replayed, last)
    assert made == publish(engine, last)[0]
    assert [place for place, _, _ in made] == [2]


def test_the_mode_of_an_unpacked_engine_is_given_anew() -> None:
    engine = engine_of()
    engine.put(1, ALERTS, inbox=1)
    publish(engine, Publication("t", "s", "m1", b"<a>1</a>", 1.0))
    packed = engine.pack()
    for separate in (True, False):
        unpacked = TenantEngine.unpack(packed, {}, separate)
        (found,) = unpacked.evaluate([Publication("t", "t", "m2", b"<b>1</b>", 2.0)])
        assert isinstance(found, Evaluation)
        assert len(found.published) == separate
