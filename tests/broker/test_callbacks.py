"""Callbacks of subscriptions: their order, exceptions, and calls of the broker from within."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sapwood import Broker, Deliveries, Delivery, Failure, FailureKind, LateMessage, MessageError, QueryError

JOIN = "orders/order[@id->i] FOLLOWED BY{i = j, 1 day} payments/payment[@for->j]"


def ids(calls: list[Delivery]) -> list[tuple[object, object]]:
    return [(delivery.subscription, delivery.message) for delivery in calls]


def test_callbacks_get_what_publish_returns_in_the_same_order() -> None:
    broker, calls = Broker(), list[Delivery]()
    broker.subscribe("made", "for $a in /a return <r>{$a/b}</r>", callback=calls.append)
    broker.subscribe("silent", "//b")
    broker.subscribe("filter", "/a", callback=calls.append)
    deliveries = broker.publish("<a><b/></a>", "m")
    assert ids(deliveries) == [("made", "m"), ("silent", "m"), ("filter", "m")]
    assert calls == [deliveries[0], deliveries[2]]
    assert broker.publish("<c/>") == []
    assert len(calls) == 2


def test_a_join_and_what_queries_publish_reach_callbacks() -> None:
    broker, calls = Broker(), list[Delivery]()
    broker.subscribe("join", f"{JOIN} PUBLISH pairs", callback=calls.append)
    broker.subscribe("pairs", "/joined", streams=["pairs"], callback=calls.append)
    broker.publish('<order id="7"/>', "o", stream="orders", time=1)
    broker.publish('<payment for="7"/>', "p", stream="payments", time=2)
    assert ids(calls) == [("join", "p"), ("pairs", "pairs(orders:o, payments:p)")]
    assert calls[0].meeting is not None


def test_only_publish_calls_callbacks() -> None:
    broker, calls = Broker(), list[Delivery]()
    broker.subscribe("a", "/a", callback=calls.append)
    broker.answer("<a/>")
    broker.answer_alone("<a/>")
    broker.list_filters([b"<a/>"])
    with pytest.raises(MessageError):
        broker.publish("<a>")
    assert calls == []


def test_a_late_message_reaches_the_callbacks_of_filters() -> None:
    broker, calls = Broker(), list[Delivery]()
    broker.subscribe("join", JOIN, callback=calls.append)
    broker.subscribe("filter", "/order", callback=calls.append)
    broker.publish("<order id='1'/>", "new", stream="orders", time=100)
    with pytest.raises(LateMessage) as caught:
        broker.publish("<order id='2'/>", "old", stream="orders", time=10)
    assert ids(calls) == [("filter", "new"), ("filter", "old")]
    assert ids(caught.value.deliveries) == [("filter", "old")]


# -- exceptions --------------------------------------------------------------------------------------------


def fail(_: Delivery) -> None:
    raise ValueError("no room")


FAILED = Failure("bad", FailureKind.CALLBACK, "its callback raised ValueError: no room", "m")


def test_an_exception_is_a_failure_and_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    broker, calls = Broker(), list[Delivery]()
    broker.subscribe("bad", "/a", callback=fail)
    broker.subscribe("good", "/a", callback=calls.append)
    deliveries = broker.publish("<a/>", "m")
    assert ids(deliveries) == [("bad", "m"), ("good", "m")]
    assert ids(calls) == [("good", "m")]
    assert deliveries.failures == [FAILED]
    assert "'bad' raised an exception on message 'm'" in caplog.text
    assert "Traceback" in caplog.text
    broker.publish("<a/>")
    assert broker.failure_counts() == {"bad": {FailureKind.CALLBACK: 2}}


def test_failures_of_a_callback_are_counted_beside_those_of_its_query() -> None:
    broker = Broker()
    broker.subscribe("bad", "for $x in //b, $y in //b, $z in //b return <r/>", callback=fail)
    broker.publish("<b/>")
    broker.publish("<a>" + "<b/>" * 60 + "</a>")
    assert broker.failure_counts() == {"bad": {FailureKind.CALLBACK: 1, FailureKind.FAILED: 1}}


def test_a_late_message_has_the_failures_of_callbacks() -> None:
    broker = Broker()
    broker.subscribe("join", JOIN)
    broker.subscribe("bad", "/order", callback=fail)
    broker.publish("<order id='1'/>", stream="orders", time=100)
    with pytest.raises(LateMessage) as caught:
        broker.publish("<order id='2'/>", "m", stream="orders", time=10)
    assert caught.value.failures == [FAILED]


def test_an_interrupt_ends_publishing_at_once_and_leaves_nothing_pending() -> None:
    broker, calls = Broker(), list[Delivery]()

    def interrupt(_: Delivery) -> None:
        raise KeyboardInterrupt

    broker.subscribe("stop", "/stop", callback=interrupt)
    broker.subscribe("all", "/*", callback=calls.append)
    with pytest.raises(KeyboardInterrupt):
        broker.publish("<stop/>")
    assert calls == []
    broker.publish("<go/>", "m")
    assert ids(calls) == [("all", "m")]


# -- calls of the broker -----------------------------------------------------------------------------------


def test_what_a_callback_publishes_is_delivered_after_what_was_published_before() -> None:
    broker, calls, returned = Broker(), list[Delivery](), list[Deliveries]()

    def republish(delivery: Delivery) -> None:
        calls.append(delivery)
        if delivery.message == "first":
            returned.append(broker.publish("<b/>", "second"))
            assert ids(calls) == [("r", "first")], "callbacks are called later"

    broker.subscribe("r", "/a", callback=republish)
    broker.subscribe("all", "/*", callback=calls.append)
    broker.subscribe("bad", "/b", callback=fail)
    outer = broker.publish("<a/>", "first")
    assert ids(calls) == [("r", "first"), ("all", "first"), ("all", "second")]
    assert ids(returned[0]) == [("all", "second"), ("bad", "second")]
    assert [failure.message for failure in returned[0].failures] == ["second"]
    assert outer.failures == [], "a failure belongs to its message"


def test_what_callbacks_publish_is_delivered_in_order_at_any_depth() -> None:
    broker, calls = Broker(), list[object]()

    def count_down(delivery: Delivery) -> None:
        calls.append(delivery.message)
        assert isinstance(delivery.message, int)
        if delivery.message > 0:
            broker.publish("<a/>", delivery.message - 1)

    broker.subscribe("x", "/a", callback=count_down)
    broker.publish("<a/>", 3_000)  # deeper than Python's stack
    assert calls == list(range(3_000, -1, -1))


@pytest.mark.parametrize("resubscribe", [False, True])
def test_an_unsubscribed_callback_is_not_called_any_more(resubscribe: bool) -> None:
    broker, calls = Broker(), list[str]()

    def end(_: Delivery) -> None:
        calls.append("first")
        broker.unsubscribe("second")
        if resubscribe:
            broker.subscribe("second", "/a", callback=lambda _: calls.append("again"))

    broker.subscribe("first", "/a", callback=end)
    broker.subscribe("second", "/a", callback=lambda _: calls.append("second"))
    assert ids(broker.publish("<a/>", "m")) == [("first", "m"), ("second", "m")]
    assert calls == ["first"], "a new subscription gets later messages only"


def test_a_callback_may_end_its_own_subscription() -> None:
    broker, calls = Broker(), list[Delivery]()

    def once(delivery: Delivery) -> None:
        calls.append(delivery)
        broker.unsubscribe(delivery.subscription)

    broker.subscribe("once", "/a", callback=once)
    for number in range(3):
        broker.publish("<a/>", number)
    assert ids(calls) == [("once", 0)]
    assert len(broker) == 0


def test_threads_take_turns_with_callbacks() -> None:
    """Callbacks of two messages never run at the same time, and all of one message come before the next."""
    broker, calls = Broker(), list[object]()
    for id in "abc":
        broker.subscribe(id, "/a", callback=lambda delivery: calls.append(delivery.message))

    def publish(thread: int) -> None:
        for number in range(50):
            broker.publish("<a/>", (thread, number))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 600
    assert all(len(set(calls[start : start + 3])) == 1 for start in range(0, 600, 3))


# -- changes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query", ["//a", "for $a in //a return $a", "/a[@k->x] FOLLOWED BY{x = y, 1 day} /b[@k->y]"]
)
def test_replace_keeps_the_callback(query: str) -> None:
    broker, calls = Broker(), list[Delivery]()
    broker.subscribe("s", "//b", callback=calls.append)
    broker.replace("s", query)
    broker.publish("<a k='1'/>")
    broker.publish("<b k='1'/>")
    assert len(calls) == 1


def test_a_callback_can_be_set_changed_and_removed() -> None:
    broker, first, second = Broker(), list[Delivery](), list[Delivery]()
    broker.subscribe_many([("s", "/a")])
    broker.set_callback("s", first.append)
    broker.publish("<a/>", 1)
    broker.set_callback("s", second.append)
    broker.publish("<a/>", 2)
    broker.set_callback("s", None)
    broker.publish("<a/>", 3)
    assert (ids(first), ids(second)) == ([("s", 1)], [("s", 2)])
    with pytest.raises(KeyError):
        broker.set_callback("nobody", first.append)


def test_a_changed_callback_gets_what_is_pending() -> None:
    broker, calls = Broker(), list[Delivery]()
    broker.subscribe("first", "/a", callback=lambda _: broker.set_callback("second", calls.append))
    broker.subscribe("second", "/a", callback=fail)
    assert broker.publish("<a/>", "m").failures == []
    assert ids(calls) == [("second", "m")]


def test_a_subscription_that_is_refused_leaves_no_callback() -> None:
    broker, calls = Broker(), list[Delivery]()
    with pytest.raises(QueryError):
        broker.subscribe("s", "/a[", callback=calls.append)
    broker.subscribe("s", "/a")
    broker.publish("<a/>")
    with pytest.raises(ValueError, match="subscribed already"):
        broker.subscribe("s", "/a", callback=calls.append)
    broker.publish("<a/>")
    assert calls == []


class Awaited:
    async def __call__(self, delivery: Delivery) -> None: ...


async def coroutine(_: int, delivery: Delivery) -> None: ...


@pytest.mark.parametrize("function", [partial(coroutine, 1), Awaited()])
def test_functions_that_would_have_to_be_awaited_are_refused(function: Callable[[Delivery], Any]) -> None:
    broker = Broker()
    with pytest.raises(ValueError, match="AsyncBroker"):
        broker.subscribe("s", "/a", callback=function)
    assert len(broker) == 0
    broker.subscribe("s", "/a")
    with pytest.raises(ValueError, match="a function of one delivery, not 5"):
        broker.set_callback("s", 5)  # type: ignore[arg-type]


def test_callbacks_are_not_packed() -> None:
    broker, calls = Broker(), list[Delivery]()
    broker.subscribe("s", "/a", callback=lambda delivery: calls.append(delivery))  # which no pickle can hold
    unpacked = Broker.unpack(broker.pack())
    assert ids(unpacked.publish("<a/>", 1)) == [("s", 1)]
    assert calls == []
    unpacked.set_callback("s", calls.append)
    unpacked.publish("<a/>", 2)
    broker.publish("<a/>", 3)
    assert ids(calls) == [("s", 2), ("s", 3)]
