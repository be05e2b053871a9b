"""Random queries over random histories: a broker delivers what the oracle does, with all sharing on or off.

Each run counts what was delivered, so that nobody has to believe it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from functools import cache
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from sapwood import Broker, Delivery, LateMessage, Tuning
from tests.support.generators.join_queries import NAMESPACES, Query, written
from tests.support.generators.join_strategies import (
    SEEDS,
    History,
    Publish,
    Subscribe,
    Unsubscribe,
    histories,
    random_history,
    random_likes,
    random_message,
    random_query,
)
from tests.support.oracles.join_oracle import Expected, Late, Oracle
from tests.support.oracles.saxon import canonical
from tests.support.requirements import FULL

pytestmark = pytest.mark.slow

TUNINGS = {
    "everything on": Tuning(),
    "each join by itself": Tuning(share_joins=False),
    "no shared values": Tuning(share_values=False),
    "no bundles": Tuning(join_bundles=False),
    "no prefilter": Tuning(prefilter=False),
}

Told = tuple[bool, Counter[Expected]]
"""whether a message was late, and what was delivered of it"""


def told_by_oracle(history: History) -> Iterator[Told]:
    oracle = Oracle(history.lateness)
    for event in history.events:
        if isinstance(event, Subscribe):
            oracle.subscribe(event.id, event.query)
        elif isinstance(event, Unsubscribe):
            oracle.unsubscribe(event.id)
        else:
            try:
                got = oracle.publish(event.body, event.id, event.stream, event.time)
                yield False, Counter(map(settled, got))
            except Late as late:
                yield True, Counter(late.deliveries)


def told_by_broker(history: History, tuning: Tuning) -> Iterator[Told]:
    broker = Broker(NAMESPACES, tuning=tuning, lateness=history.lateness)
    for event in history.events:
        if isinstance(event, Subscribe):
            (broker.replace if event.id in broker else broker.subscribe)(event.id, event.text)
        elif isinstance(event, Unsubscribe):
            broker.unsubscribe(event.id)
        else:
            try:
                made = broker.publish(event.body, event.id, stream=event.stream, time=event.time)
                yield False, Counter(map(as_expected, made))
            except LateMessage as late:
                yield True, Counter(map(as_expected, late.deliveries))


def as_expected(delivery: Delivery) -> Expected:
    messages = delivery.meeting.messages if delivery.meeting is not None else (delivery.message,)
    return settled(Expected(delivery.subscription, delivery.message, messages, canonical(delivery.body)))


def settled(told: Expected) -> Expected:
    """Of several messages that queries publish at once, it is left open which is the last."""
    return told._replace(message="") if len(list(filter(is_published, told.messages))) > 1 else told


def is_published(id: Hashable) -> bool:
    return str(id).startswith("P")


class Tally:
    """What there was to compare."""

    def __init__(self) -> None:
        self.late = 0
        self.by_blocks: Counter[int] = Counter()
        self.of_published = 0

    def add(self, wanted: list[Told]) -> None:
        for is_late, deliveries in wanted:
            self.late += is_late
            for delivery in deliveries.elements():
                self.by_blocks[len(delivery.messages)] += 1
                self.of_published += any(map(is_published, delivery.messages))


def compare(history: History, wanted: list[Told], tuning: str) -> None:
    published = [event for event in history.events if isinstance(event, Publish)]
    got = told_by_broker(history, TUNINGS[tuning])
    for event, expected, told in zip(published, wanted, got, strict=True):
        if told != expected:
            raise AssertionError(f"{tuning}: {_differences(expected, told)}\n{story(history, event)}")


def _differences(expected: Told, got: Told) -> str:
    lateness = "" if expected[0] == got[0] else "late" if expected[0] else "not late"
    missing, wrong = expected[1] - got[1], got[1] - expected[1]
    return f"{lateness}\n  missing: {list(missing)}\n  wrong: {list(wrong)}"


def story(history: History, last: Publish) -> str:
    """What happened, up to a message."""
    lines = [f"lateness {history.lateness}"]
    for event in history.events:
        if isinstance(event, Subscribe):
            lines.append(f"subscribe {event.id}: {event.text}")
        elif isinstance(event, Unsubscribe):
            lines.append(f"unsubscribe {event.id}")
        else:
            lines.append(f"publish {event.id} on {event.stream!r} at {event.time}: {event.body}")
        if event is last:
            break
    return "\n".join(f"  {line}" for line in lines)


@settings(max_examples=50, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(histories(messages=8, queries=4))
def test_delivers_what_the_oracle_does(history: History) -> None:
    wanted = list(told_by_oracle(history))
    for tuning in TUNINGS:
        compare(history, wanted, tuning)


@cache
def longer_histories() -> list[tuple[History, list[Told]]]:
    rng = Random(14)
    drawn = [random_history(rng, messages=16, queries=8) for _ in range(44)]
    drawn += [random_likes(rng) for _ in range(28)]
    return [(history, list(told_by_oracle(history))) for history in drawn]


@pytest.mark.parametrize("tuning", TUNINGS)
def test_longer_histories(tuning: str) -> None:
    """Every second of them with an optimisation switched off, and all in `make test-full`."""
    for history, wanted in longer_histories()[:: 1 if FULL or tuning == "everything on" else 2]:
        compare(history, wanted, tuning)


def test_there_is_something_to_compare() -> None:
    tally = Tally()
    for _, wanted in longer_histories():
        tally.add(wanted)
    assert tally.late >= 20
    assert tally.by_blocks[2] >= 700
    assert tally.by_blocks[3] >= 110
    assert tally.of_published >= 60


def test_a_crowd_of_queries() -> None:
    """Hundreds of queries at one broker, and the same evaluated each by itself."""
    tally = Tally()
    rng = Random(8)
    for _ in range(2):
        history = random_history(rng, messages=12, queries=120)
        wanted = list(told_by_oracle(history))
        tally.add(wanted)
        compare(history, wanted, "everything on")
        compare(history, wanted, "each join by itself")
    assert min(tally.by_blocks[2], tally.by_blocks[3], tally.of_published) >= 50


def test_all_spellings_of_a_query_mean_the_same() -> None:
    delivered = [0]

    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(SEEDS)
    def run(rng: Random) -> None:
        query = random_query(rng)
        broker = Broker(NAMESPACES)
        texts = {written(query), *(written(query, rng) for _ in range(8))}
        for text in texts:
            broker.subscribe(text, text)
        for time in range(6):
            got = broker.publish(random_message(rng), stream=rng.choice(_streams(query)), time=time)
            found = Counter((d.meeting and d.meeting.messages, d.body) for d in got)
            assert set(found.values()) <= {len(texts)}, "\n".join(texts)
            delivered[0] += len(got)

    run()
    assert delivered[0] > 150


def _streams(query: Query) -> list[str]:
    return [block.stream for block in query.blocks]
