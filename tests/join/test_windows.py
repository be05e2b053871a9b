"""The join state: no more than windows reach, and nothing after the last has closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from random import Random
from typing import Any

import pytest

from sapwood import Broker, Tuning
from sapwood.join.evaluation import shared_evaluation
from sapwood.join.evaluation.residual_check import is_satisfiable
from tests.support.cases.joins import broker_of

HOUR, DAY, WEEK = 3_600, 86_400, 604_800
ORDERS = "orders/order->o[id->i][customer->c] FOLLOWED BY{i=j AND c=d, 24 h} paid/payment->p[of->j][by->d]"
KINDS = {
    "one after the other": ORDERS,
    "either first": ORDERS.replace("FOLLOWED BY", "JOIN"),
    "with an inequality": ORDERS.replace("c=d", "c <= d"),
    "three": ORDERS + " FOLLOWED BY{j=k, 12 h} sent/parcel->s[of->k]",
}
Event = tuple[float, str, str]
"""time, stream and message"""


def week(rng: Random, an_hour: int = 5) -> Iterator[Event]:
    """Orders, payments and parcels with ids that come back again and again, for a week."""
    time = 0.0
    while time < WEEK:
        id, customer = rng.randrange(20), rng.randrange(2)
        yield (
            time,
            *rng.choice(
                [
                    ("orders", f"<order><id>{id}</id><customer>{customer}</customer></order>"),
                    ("paid", f"<payment><of>{id}</of><by>{customer}</by></payment>"),
                    ("sent", f"<parcel><of>{id}</of></parcel>"),
                ]
            ),
        )
        time += rng.uniform(0, 2 * HOUR / an_hour)


def shuffled(rng: Random, events: Iterator[Event], lateness: float) -> Iterator[Event]:
    """The same messages in another order, in which none is later than the lateness."""
    return iter(sorted(events, key=lambda event: event[0] + rng.uniform(0, lateness)))


def meetings(events: list[Event]) -> int:
    """How many orders are followed by their payment within a day, counted by hand."""
    words = [(time, stream, tuple(body.replace("<", ">").split(">")[4:9:4])) for time, stream, body in events]
    orders = [(time, key) for time, stream, key in words if stream == "orders"]
    payments = [(time, key) for time, stream, key in words if stream == "paid"]
    return sum(0 < paid - ordered <= DAY and a == b for ordered, a in orders for paid, b in payments)


def close(broker: Broker, time: float, stream: str = "other") -> None:
    """Lets time go by."""
    broker.publish("<unrelated/>", stream=stream, time=time)


def assert_empty(broker: Broker) -> None:
    state = broker.state()
    assert (state.messages, state.rows, state.values) == (0, 0, 0)
    assert all((template.messages, template.rows) == (0, 0) for template in state.templates)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "tuning"),
    [*((kind, Tuning()) for kind in KINDS), ("three", Tuning(share_joins=False))],
    ids=[*KINDS, "each join by itself"],
)
def test_a_day_is_kept_of_a_week(kind: str, tuning: Tuning) -> None:
    broker = broker_of(KINDS[kind], tuning=tuning)
    recent: list[float] = []
    most = 0
    for number, (time, stream, body) in enumerate(week(Random(1))):
        broker.publish(body, stream=stream, time=time)
        recent = [*(t for t in recent if t >= time - DAY), time]
        if number % 20 == 0:
            state = broker.state()
            assert state.messages <= len(recent)
            most = max(most, state.rows)
    assert 0 < most <= 4 * 5 * 24 * 1.5  # a message has two values, or four with those it has met in a chain
    close(broker, WEEK + 3 * DAY)
    assert_empty(broker)


def test_nothing_is_dropped_too_early() -> None:
    events = list(week(Random(2)))
    broker = broker_of(ORDERS)
    delivered = sum(len(broker.publish(body, stream=stream, time=time)) for time, stream, body in events)
    assert delivered == meetings(events) > 250


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_out_of_order_a_week_gives_the_same(kind: str) -> None:
    lateness = 6 * HOUR
    in_order, out_of_order = broker_of(KINDS[kind]), broker_of(KINDS[kind], lateness=lateness)
    told: list[Counter[tuple[object, ...]]] = []
    events = list(week(Random(3), an_hour=4))
    ids = {event: number for number, event in enumerate(events)}
    for broker, each in ((in_order, events), (out_of_order, shuffled(Random(4), iter(events), lateness))):
        told.append(Counter())
        for event in each:
            time, stream, body = event
            for delivery in broker.publish(body, ids[event], stream=stream, time=time):
                assert delivery.meeting is not None
                told[-1][delivery.meeting.messages] += 1
        close(broker, WEEK + 3 * DAY)
        assert_empty(broker)
    assert told[0] == told[1]
    assert told[0].total() > 100


def test_the_last_moment_counts() -> None:
    broker = broker_of(ORDERS)
    broker.publish("<order><id>1</id><customer>2</customer></order>", stream="orders", time=0)
    close(broker, DAY)
    assert broker.state().messages == 1
    close(broker, DAY + 0.001)
    assert_empty(broker)
    assert broker.state().watermark == DAY + 0.001


@pytest.mark.parametrize("stream", ["", "other", "orders", "paid"])
def test_messages_of_any_stream_let_time_go_by(stream: str) -> None:
    broker = broker_of(ORDERS)
    broker.publish("<order><id>1</id><customer>2</customer></order>", stream="orders", time=0)
    assert broker.state().messages == 1
    close(broker, 2 * DAY, stream)
    assert_empty(broker)


def test_lateness_is_waited_for() -> None:
    broker = broker_of(ORDERS, lateness=HOUR)
    broker.publish("<order><id>1</id><customer>2</customer></order>", stream="orders", time=0)
    close(broker, DAY + HOUR)
    assert broker.state().watermark == DAY
    payment = "<payment><of>1</of><by>2</by></payment>"
    assert len(broker.publish(payment, stream="paid", time=DAY)) == 1
    close(broker, DAY + HOUR + 1)
    assert broker.publish(payment, stream="paid", time=DAY + 1) == []
    close(broker, DAY + 3 * HOUR)
    assert_empty(broker)


def test_messages_that_no_later_message_can_join_are_not_stored() -> None:
    """Without lateness, no message comes before a payment."""
    broker = broker_of(ORDERS)
    broker.publish("<payment><of>1</of><by>2</by></payment>", stream="paid", time=0)
    close(broker, 1)
    assert_empty(broker)


@pytest.mark.parametrize("window", ["24 h", "INF"])
def test_a_larger_window_is_not_kept_for_others(window: str) -> None:
    """State kept for a day, or for ever, is evicted at the latest when that day is over."""
    broker = broker_of({"large": ORDERS.replace("24 h", window), "small": ORDERS.replace("24 h", "1 h")})
    broker.publish("<order><id>1</id><customer>2</customer></order>", stream="orders", time=0)
    close(broker, 2 * HOUR)
    assert broker.state().messages == 1
    broker.unsubscribe("large")
    close(broker, DAY + 1)
    assert_empty(broker)


def test_comparisons_are_checked_within_the_window_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages may be a day late, so the state has a day; a window of a minute reaches little of it."""
    checked = 0

    def count(*arguments: Any) -> bool:
        nonlocal checked
        checked += 1
        return is_satisfiable(*arguments)

    monkeypatch.setattr(shared_evaluation, "is_satisfiable", count)
    query = "orders/order[id->i][total->t] FOLLOWED BY{i=j AND t < u, 60 s} paid/payment[of->j][sum->u]"
    with broker_of(query, lateness=DAY) as broker:
        for minute in range(200):
            broker.publish("<order><id>1</id><total>5</total></order>", stream="orders", time=minute * 60)
        late = broker.publish("<payment><of>1</of><sum>9</sum></payment>", stream="paid", time=6_030)
    assert len(late) == 1
    assert 1 <= checked <= 2


def test_the_state_of_an_unsubscribed_query_is_dropped() -> None:
    broker = broker_of({"q": ORDERS.replace("24 h", "INF"), "same": ORDERS.replace("24 h", "INF")})
    for time, stream, body in week(Random(5), an_hour=2):
        broker.publish(body, stream=stream, time=time)
    kept = broker.state()
    broker.unsubscribe("q")
    assert broker.state().messages == kept.messages > 0
    broker.unsubscribe("same")
    close(broker, WEEK + 1)
    assert_empty(broker)
    assert broker.state().templates == ()


def test_without_a_bound_all_is_kept_and_grows_no_faster_than_the_messages() -> None:
    broker = broker_of(ORDERS.replace("24 h", "INF"))
    rows: list[int] = []
    for number in range(1, 401):
        order = f"<order><id>{number}</id><customer>{number % 3}</customer></order>"
        broker.publish(order, stream="orders", time=number * DAY)
        rows.append(broker.state().rows)
        assert broker.state().messages == number
    assert rows[-1] == 400 * rows[0] > 0
    assert broker.state().bytes > 0


def test_messages_that_take_no_part_are_not_kept() -> None:
    broker = broker_of(ORDERS.replace("24 h", "INF"))
    for number in range(50):
        broker.publish("<order/>", stream="orders", time=number)
        broker.publish("<payment><of>1</of><by>2</by></payment>", stream="orders", time=number)
    assert_empty(broker)
    assert broker.state().watermark == 49 < inf


def test_eviction_is_logged_with_the_watermark(caplog: pytest.LogCaptureFixture) -> None:
    broker = broker_of("S/a->x JOIN{x = y, 10 s} S/b->y")
    with caplog.at_level("DEBUG", logger="sapwood.join"):
        for time in range(300):
            broker.publish(f"<a>{time}</a>", stream="S", time=time)
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("watermark ") and "in the join state" in line for line in lines)
    assert any(line.startswith("evicted ") for line in lines)
    assert len(lines) < 30  # not one for each message
