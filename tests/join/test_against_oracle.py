"""Random queries over random histories: a broker delivers what the oracle does, with all sharing on or off.

Each run counts what was delivered, so that nobody has to believe it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from sapwood import Broker, Delivery, LateMessage, Tuning
from tests.join_oracle import Expected, Late, Oracle
from tests.join_queries import NAMESPACES, Query, written
from tests.join_strategies import (
    SEEDS,
    History,
    Publish,
    Subscribe,
    Unsubscribe,
    histories,
    random_history,
    random_message,
    random_query,
)
from tests.saxon import canonical

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
                yield False, Counter(oracle.publish(event.body, event.id, event.stream, event.time))
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
    return Expected(delivery.subscription, delivery.message, messages, canonical(delivery.body))


class Tally:
    """What there was to compare."""

    def __init__(self) -> None:
        self.messages = self.late = self.deliveries = self.of_published = 0
        self.by_blocks: Counter[int] = Counter()

    def add(self, wanted: Told) -> None:
        self.messages += 1
        self.late += wanted[0]
        self.deliveries += wanted[1].total()
        for delivery in wanted[1].elements():
            self.by_blocks[len(delivery.messages)] += 1
            self.of_published += any(str(id).startswith("P") for id in delivery.messages)


def compare(history: History, tunings: dict[str, Tuning], tally: Tally) -> None:
    published = [event for event in history.events if isinstance(event, Publish)]
    wanted = list(told_by_oracle(history))
    for told in wanted:
        tally.add(told)
    for name, tuning in tunings.items():
        for event, expected, got in zip(published, wanted, told_by_broker(history, tuning), strict=True):
            if got != expected:
                differences = _differences(expected, got)
                raise AssertionError(f"{differences}\n{story(history, event)}\n  {name}")


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


def test_delivers_what_the_oracle_does() -> None:
    tally = Tally()

    @settings(max_examples=60, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
    @given(histories(messages=8, queries=4))
    def run(history: History) -> None:
        compare(history, TUNINGS, tally)

    run()
    assert tally.messages >= 400


@pytest.mark.parametrize("name", TUNINGS)
def test_longer_histories(name: str) -> None:
    tally = Tally()
    rng = Random(11)
    for _ in range(40):
        compare(random_history(rng, messages=16, queries=8), {name: TUNINGS[name]}, tally)
    assert tally.messages == 40 * 16
    assert tally.late >= 10
    assert tally.by_blocks[2] >= 200
    assert tally.by_blocks[3] >= 20
    assert tally.of_published >= 50


def test_a_crowd_of_queries() -> None:
    """Hundreds of queries at one broker, and the same evaluated each by itself."""
    tally = Tally()
    rng = Random(7)
    for _ in range(3):
        history = random_history(rng, messages=16, queries=150)
        compare(history, {"everything on": Tuning(), "each": Tuning(share_joins=False)}, tally)
    assert min(tally.by_blocks[2], tally.by_blocks[3], tally.of_published) >= 50


def test_all_spellings_of_a_query_mean_the_same() -> None:
    delivered = [0]

    @settings(max_examples=40, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
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
    assert delivered[0] > 100


def _streams(query: Query) -> list[str]:
    return [block.stream for block in query.blocks]
