"""The broker for asyncio: order, backpressure, cancellation, callbacks and the end."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sapwood import (
    AsyncBroker,
    Broker,
    Deliveries,
    Delivery,
    FailureKind,
    LateMessage,
    MessageError,
    QueryError,
    SapwoodError,
)
from tests.support.async_steps import settle, until

pytestmark = pytest.mark.anyio
JOIN = "orders/order[@id->i] FOLLOWED BY{i = j, 1 day} payments/payment[@for->j]"


def ids(deliveries: list[Delivery]) -> list[tuple[object, object]]:
    return [(delivery.subscription, delivery.message) for delivery in deliveries]


@contextmanager
def held(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A broker whose evaluations begin, and end when the returned event is set."""
    go_on, publish = threading.Event(), broker.publish

    def wait_and_publish(*args: Any, **kwargs: Any) -> Deliveries:
        assert go_on.wait(10)
        return publish(*args, **kwargs)

    monkeypatch.setattr(broker, "publish", wait_and_publish)
    yield go_on
    go_on.set()


# -- publishing --------------------------------------------------------------------------------------------


async def test_answers_are_those_of_a_broker() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe("filter", "/a")
        await broker.subscribe("made", "for $a in /a return <r>{$a/b}</r>")
        await broker.subscribe("some", "/a", streams=["news"])
        assert await broker.publish("<a><b/></a>", "m") == [
            Delivery("filter", "m", b"<a><b/></a>"),
            Delivery("made", "m", b"<r><b/></r>"),
        ]
        await broker.replace("made", "/c")
        await broker.restrict("some", None)
        assert ids(await broker.publish("<a/>")) == [("filter", 2), ("some", 2)]
        await broker.unsubscribe("filter")
        assert ids(await broker.publish("<a/>")) == [("some", 3)]
        await broker.subscribe_many([("x", "/a"), ("y", "/a")])
        assert len(broker.broker) == 4


async def test_errors_are_raised_where_the_call_is() -> None:
    async with AsyncBroker() as broker:
        with pytest.raises(QueryError):
            await broker.subscribe("s", "/a[")
        for call in (broker.unsubscribe("s"), broker.replace("s", "/a"), broker.set_callback("s", print)):
            with pytest.raises(KeyError):
                await call
        with pytest.raises(MessageError):
            await broker.publish("<a>")
        with pytest.raises(ValueError, match="a function of one delivery"):
            await broker.subscribe("s", "/a", callback=5)  # type: ignore[arg-type]
        assert await broker.publish("<a/>") == []


async def test_a_late_message_is_delivered_to_others_and_raised() -> None:
    calls: list[Delivery] = []
    async with AsyncBroker() as broker:
        await broker.subscribe("join", JOIN)
        await broker.subscribe("filter", "/order", callback=calls.append)
        await broker.publish("<order id='1'/>", "new", stream="orders", time=100)
        with pytest.raises(LateMessage) as caught:
            await broker.publish("<order id='2'/>", "old", stream="orders", time=10)
    assert ids(caught.value.deliveries) == [("filter", "old")]
    assert ids(calls) == [("filter", "new"), ("filter", "old")]


async def test_the_event_loop_runs_while_a_message_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncBroker() as broker:
        with held(broker.broker, monkeypatch) as go_on:
            publishing = asyncio.create_task(broker.publish("<a/>"))
            await settle()
            assert not publishing.done()
            go_on.set()  # which only the event loop does
        assert await publishing == []


async def test_messages_are_published_in_the_order_of_the_calls() -> None:
    calls: list[object] = []

    async def slow_at_first(delivery: Delivery) -> None:
        await asyncio.sleep(0.02 if delivery.message == 0 else 0)
        calls.append(delivery.message)

    async with AsyncBroker() as broker:
        await broker.subscribe("s", "/a", callback=slow_at_first)
        await asyncio.gather(*(broker.publish("<a/>", number) for number in range(50)))
    assert calls == list(range(50))


# -- callbacks ---------------------------------------------------------------------------------------------


async def test_callbacks_are_called_in_the_event_loop_before_publish_returns() -> None:
    calls: list[tuple[object, int]] = []

    async def awaited(delivery: Delivery) -> None:
        await asyncio.sleep(0)
        calls.append((delivery.subscription, threading.get_ident()))

    def plain(delivery: Delivery) -> None:
        calls.append((delivery.subscription, threading.get_ident()))

    async with AsyncBroker() as broker:
        await broker.subscribe("awaited", "/a", callback=awaited)
        await broker.subscribe("plain", "/a", callback=plain)
        await broker.publish("<a/>")
    here = threading.get_ident()
    assert calls == [("awaited", here), ("plain", here)]


async def test_an_exception_of_a_callback_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Delivery] = []

    async def fail(_: Delivery) -> None:
        raise ValueError("no room")

    async def cancelled(_: Delivery) -> None:
        task = asyncio.create_task(asyncio.sleep(10))
        task.cancel()
        await task

    async with AsyncBroker() as broker:
        await broker.subscribe("bad", "/a", callback=fail)
        await broker.subscribe("ended", "/a", callback=cancelled)
        await broker.subscribe("good", "/a", callback=calls.append)
        deliveries = await broker.publish("<a/>", "m")
        assert [(failure.subscription, failure.kind, failure.reason) for failure in deliveries.failures] == [
            ("bad", FailureKind.CALLBACK, "its callback raised ValueError: no room"),
            ("ended", FailureKind.CALLBACK, "its callback raised CancelledError: "),
        ]
        assert ids(calls) == [("good", "m")]
        assert await broker.failure_counts() == {
            "bad": {FailureKind.CALLBACK: 1},
            "ended": {FailureKind.CALLBACK: 1},
        }
    assert caplog.text.count("Traceback") == 2


async def test_what_a_callback_publishes_is_delivered_after_what_was_published_before() -> None:
    calls: list[tuple[object, object]] = []
    returned: list[Deliveries] = []

    def note(delivery: Delivery) -> None:
        calls.append((delivery.subscription, delivery.message))

    async with AsyncBroker() as broker:

        async def republish(delivery: Delivery) -> None:
            note(delivery)
            returned.append(await broker.publish("<b/>", "inner"))
            assert calls == [("r", "outer")]

        await broker.subscribe("r", "/a", callback=republish)
        await broker.subscribe("all", "/*", callback=note)
        await asyncio.gather(broker.publish("<a/>", "outer"), broker.publish("<c/>", "next"))
    assert calls == [("r", "outer"), ("all", "outer"), ("all", "inner"), ("all", "next")]
    assert ids(returned[0]) == [("all", "inner")]


async def test_tasks_that_a_callback_starts_may_publish_at_any_time() -> None:
    calls: list[object] = []
    tasks: list[asyncio.Task[Deliveries]] = []
    async with AsyncBroker() as broker:

        async def wait_and_publish(seconds: float) -> Deliveries:
            await asyncio.sleep(seconds)
            return await broker.publish("<b/>", seconds)

        def start(_: Delivery) -> None:
            tasks.extend(asyncio.create_task(wait_and_publish(seconds)) for seconds in (0, 0.05))

        await broker.subscribe("start", "/a", callback=start)
        await broker.subscribe("b", "/b", callback=lambda delivery: calls.append(delivery.message))
        await broker.publish("<a/>")
        await asyncio.gather(*tasks)
    assert calls == [0, 0.05]


async def test_a_publisher_in_a_callback_gets_the_error_of_its_message() -> None:
    caught: list[Exception] = []
    async with AsyncBroker() as broker:

        async def republish(_: Delivery) -> None:
            try:
                await broker.publish("<b>")
            except MessageError as error:
                caught.append(error)

        await broker.subscribe("s", "/a", callback=republish)
        assert (await broker.publish("<a/>")).failures == []
    assert len(caught) == 1


async def test_callbacks_may_change_subscriptions() -> None:
    calls: list[str] = []
    async with AsyncBroker() as broker:

        async def end_second(_: Delivery) -> None:
            calls.append("first")
            await broker.unsubscribe("second")
            await broker.subscribe("third", "/a", callback=lambda _: calls.append("third"))

        await broker.subscribe("first", "/a", callback=end_second)
        await broker.subscribe("second", "/a", callback=lambda _: calls.append("second"))
        assert len(await broker.publish("<a/>")) == 2
        assert calls == ["first"]
        await broker.set_callback("first", None)
        await broker.publish("<a/>")
        assert calls == ["first", "third"]


async def test_callbacks_of_the_broker_itself_are_called_in_the_worker_thread() -> None:
    threads: list[int] = []
    inner = Broker()
    inner.subscribe("s", "/a", callback=lambda _: threads.append(threading.get_ident()))
    async with AsyncBroker(inner) as broker:
        assert len(await broker.publish("<a/>")) == 1
    assert threads and threads[0] != threading.get_ident()


# -- cancellation ------------------------------------------------------------------------------------------


async def test_a_publisher_cancelled_before_its_turn_publishes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Delivery] = []
    async with AsyncBroker() as broker:
        await broker.subscribe("s", "/a", callback=calls.append)
        with held(broker.broker, monkeypatch) as go_on:
            tasks = [asyncio.create_task(broker.publish("<a/>", number)) for number in range(3)]
            await settle()
            tasks[1].cancel()
            await settle()
            go_on.set()
        assert ids(await tasks[0]) == [("s", 0)]
        assert ids(await tasks[2]) == [("s", 2)]
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
    assert ids(calls) == [("s", 0), ("s", 2)]


async def test_a_publisher_cancelled_in_its_turn_has_published(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Delivery] = []
    async with AsyncBroker() as broker:
        await broker.subscribe("s", "/a", callback=calls.append)
        with held(broker.broker, monkeypatch) as go_on:
            for message in ("<a/>", "<a>"):  # the second is refused, after nobody waits for it any more
                go_on.clear()
                publishing = asyncio.create_task(broker.publish(message, "cancelled"))
                await settle()
                publishing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await publishing
                go_on.set()
            await broker.publish("<a/>", "next")
    assert ids(calls) == [("s", "cancelled"), ("s", "next")]
    assert "refused after its publisher was cancelled: line 1, column 4" in caplog.text


async def test_a_publisher_cancelled_while_it_waits_for_a_reader_has_published() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a")
        iterator = broker.deliveries("a", limit=1)
        await broker.publish("<a/>", 1)
        for number in (2, 3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(broker.publish("<a/>", number), 0.1)
        publishing = asyncio.create_task(broker.publish("<a/>", 4))
        # The second had its turn when it was cancelled, the third had not.
        assert [(await anext(iterator)).message for _ in range(3)] == [1, 2, 4]
        await publishing


async def test_a_cancelled_change_is_made_completely_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Delivery] = []
    async with AsyncBroker() as broker:
        with held(broker.broker, monkeypatch) as go_on:
            publishing = asyncio.create_task(broker.publish("<a/>"))
            await settle()
            subscribing = asyncio.create_task(broker.subscribe("s", "/a", callback=calls.append))
            await settle()
            subscribing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await subscribing
            go_on.set()
        await publishing
        assert len(broker.broker) == 0
        await broker.subscribe("s", "/a", callback=calls.append)
        await broker.publish("<a/>", "m")
    assert ids(calls) == [("s", "m")]


@pytest.mark.parametrize("seed", range(3))
async def test_readers_get_all_messages_in_order_while_others_come_go_and_are_cancelled(seed: int) -> None:
    rng = random.Random(seed)
    called: list[object] = []
    read: list[object] = []
    returned: set[int] = set()

    async def publish(number: int) -> None:
        await asyncio.sleep(rng.random() / 50)
        async with asyncio.timeout(rng.choice([None, rng.random() / 50])):
            await broker.publish("<a/>", number)
        returned.add(number)

    async def come_and_go(name: str) -> None:
        for _ in range(10):
            await broker.subscribe(name, "/a")
            async for _ in broker.deliveries(name, limit=rng.randint(1, 3)):
                await asyncio.sleep(rng.random() / 500)
                if rng.random() < 0.5:
                    break
            await broker.unsubscribe(name)

    async def read_all() -> None:
        async for delivery in broker.deliveries("all", limit=2):
            read.append(delivery.message)

    async with AsyncBroker() as broker:
        await broker.subscribe("all", "/a", callback=lambda delivery: called.append(delivery.message))
        reading = asyncio.create_task(read_all())
        await settle()
        others = [asyncio.create_task(come_and_go(name)) for name in "xyz"]
        await asyncio.gather(*map(publish, range(200)), return_exceptions=True)
        while not all(task.done() for task in others):
            await broker.publish("<a/>", "more")
        await asyncio.gather(*others)
    await reading
    assert read == called and len(called) > 50
    assert returned <= set(called)
    assert len(called) - called.count("more") == len(set(called) - {"more"}), "each at most once"


# -- the end -----------------------------------------------------------------------------------------------


async def test_a_closed_broker_refuses_calls_and_ends_iterators() -> None:
    broker = AsyncBroker()
    await broker.subscribe("a", "/a")
    iterator = broker.deliveries("a")
    await broker.publish("<a/>", "m")
    await broker.close()
    await broker.close()
    assert ids([delivery async for delivery in iterator]) == [("a", "m")]
    for call in (broker.publish("<a/>"), broker.subscribe("b", "/a"), broker.unsubscribe("a")):
        with pytest.raises(SapwoodError, match="closed"):
            await call
    with pytest.raises(SapwoodError, match="closed"):
        broker.deliveries("a")


async def test_closing_completes_the_message_that_is_published_and_refuses_those_that_wait() -> None:
    broker = AsyncBroker()
    await broker.subscribe_many((number, "/a") for number in range(5))
    iterator = broker.deliveries(*range(5), limit=2)
    publishing = [asyncio.create_task(broker.publish("<a/>", number)) for number in range(2)]
    await settle()
    assert not publishing[0].done()
    await broker.close()
    assert len(await publishing[0]) == 5
    with pytest.raises(SapwoodError, match="closed"):
        await publishing[1]
    assert ids([delivery async for delivery in iterator]) == [(number, 0) for number in range(5)]


async def test_a_callback_may_close_the_broker() -> None:
    broker, calls = AsyncBroker(), list[Delivery]()

    async def close(_: Delivery) -> None:
        await broker.close()

    await broker.subscribe("close", "/a", callback=close)
    await broker.subscribe("last", "/a", callback=calls.append)
    assert len(await broker.publish("<a/>", "m")) == 2
    assert ids(calls) == [("last", "m")]
    await broker.close()
    with pytest.raises(SapwoodError, match="closed"):
        await broker.publish("<a/>")


async def test_a_closed_broker_leaves_no_thread() -> None:
    def count() -> int:
        return sum(thread.name.startswith("sapwood-broker") for thread in threading.enumerate())

    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a")
        assert count() == 1
    await until(lambda: count() == 0)


def test_the_end_of_an_event_loop_ends_all() -> None:
    """Nobody waits for a broker that was not closed, and nothing is warned of."""
    calls: list[Delivery] = []

    async def main() -> None:
        broker = AsyncBroker()
        await broker.subscribe("a", "/a", callback=calls.append)
        iterator = broker.deliveries("a", limit=1)
        await broker.publish("<a/>")
        waiting = asyncio.create_task(broker.publish("<a/>"))
        await until(lambda: len(calls) == 2)
        assert not waiting.done()
        assert iterator is not None

    asyncio.run(main())
    gc.collect()
    assert len(calls) == 2
