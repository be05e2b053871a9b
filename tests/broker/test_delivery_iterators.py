"""Iterators over deliveries in an event loop: order, backpressure and the end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from sapwood import AsyncBroker, Delivery, SapwoodError
from tests.support.async_steps import settle, until

pytestmark = pytest.mark.anyio


def ids(deliveries: list[Delivery]) -> list[tuple[object, object]]:
    return [(delivery.subscription, delivery.message) for delivery in deliveries]


async def test_an_iterator_yields_the_deliveries_of_its_subscriptions_in_order() -> None:
    async with AsyncBroker() as broker:
        for id in "abc":
            await broker.subscribe(id, "/a")
        iterator = broker.deliveries("c", "a")
        for number in range(3):
            await broker.publish("<a/>", number)
        read = [await anext(iterator) for _ in range(6)]
        assert ids(read) == [(id, number) for number in range(3) for id in "ac"]


async def test_several_iterators_over_a_subscription_get_all_of_its_deliveries() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a", callback=lambda _: None)
        iterators = [broker.deliveries("a"), broker.deliveries("a")]
        await broker.publish("<a/>", "m")
        assert [ids([await anext(iterator)]) for iterator in iterators] == [[("a", "m")]] * 2


async def test_publishers_wait_for_a_slow_reader() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a")
        iterator = broker.deliveries("a", limit=2)
        published: list[int] = []

        async def publish() -> None:
            for number in range(10):
                await broker.publish("<a/>", number)
                published.append(number)

        publishing = asyncio.create_task(publish())
        await until(lambda: published == [0, 1])
        assert (await anext(iterator)).message == 0
        await until(lambda: published == [0, 1, 2])
        await broker.subscribe("b", "/b")  # changes do not wait
        assert [(await anext(iterator)).message for _ in range(9)] == list(range(1, 10))
        await publishing


async def test_a_message_with_more_deliveries_than_the_limit_is_read_in_full() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe_many((number, "/a") for number in range(1_000))
        iterator = broker.deliveries(*range(1_000), limit=1)
        publishing = asyncio.create_task(broker.publish("<a/>"))
        assert [(await anext(iterator)).subscription for _ in range(1_000)] == list(range(1_000))
        assert len(await publishing) == 1_000


async def test_an_iterator_ends_with_its_last_subscription() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a")
        await broker.subscribe("b", "/a")
        iterator = broker.deliveries("a", "b")
        await broker.publish("<a/>", 1)
        await broker.unsubscribe("a")
        await broker.publish("<a/>", 2)
        await broker.unsubscribe("b")
        await broker.subscribe("a", "/a")
        await broker.publish("<a/>", 3)
        assert ids([delivery async for delivery in iterator]) == [("a", 1), ("b", 1), ("b", 2)]


async def test_a_reader_that_waits_is_woken_by_the_end() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a")

        async def read() -> list[Delivery]:
            return [delivery async for delivery in broker.deliveries("a")]

        reading = asyncio.create_task(read())
        await settle()
        await broker.publish("<a/>", "m")
        await broker.unsubscribe("a")
        assert ids(await reading) == [("a", "m")]


@pytest.mark.parametrize("end", ["unsubscribe", "aclose"])
async def test_publishers_do_not_wait_for_an_iterator_that_has_ended(end: str) -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe_many([("a", "/a"), ("b", "/none")])
        iterator = broker.deliveries("a", "b", limit=1)
        publishing = [asyncio.create_task(broker.publish("<a/>")) for _ in range(5)]
        await until(lambda: [task.done() for task in publishing] == [True, False, False, False, False])
        await (broker.unsubscribe("a") if end == "unsubscribe" else iterator.aclose())
        await asyncio.wait_for(asyncio.gather(*publishing), 5)


@pytest.mark.parametrize("end", ["break", "cancel"])
async def test_publishers_do_not_wait_for_a_reader_that_has_gone(end: str) -> None:
    """An iterator that nobody refers to any more is closed."""
    leave = asyncio.Event()

    async def read(broker: AsyncBroker) -> None:
        async for _ in broker.deliveries("a", limit=1):
            await leave.wait()
            break

    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a")
        reading = asyncio.create_task(read(broker))
        await settle()
        publishing = [asyncio.create_task(broker.publish("<a/>")) for _ in range(5)]
        await until(lambda: [task.done() for task in publishing] == [True, True, False, False, False])
        if end == "break":
            leave.set()
        else:
            reading.cancel()
        await asyncio.wait([reading])
        del reading  # with the exception that has its frame
        await asyncio.wait_for(asyncio.gather(*publishing), 5)


async def test_a_closed_iterator_gives_no_more() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a")
        async with aclosing(broker.deliveries("a")) as iterator:
            await broker.publish("<a/>")
        assert [delivery async for delivery in iterator] == []
        async with broker.deliveries("a") as another:
            await broker.publish("<a/>", "m")
            assert (await anext(another)).message == "m"


async def test_a_cancelled_reader_loses_nothing() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a")
        iterator = broker.deliveries("a")
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(iterator), 0.01)
        await broker.publish("<a/>", "m")
        assert ids([await anext(iterator)]) == [("a", "m")]


async def test_wrong_iterators_are_refused() -> None:
    async with AsyncBroker() as broker:
        await broker.subscribe("a", "/a")
        with pytest.raises(KeyError, match="nobody"):
            await anext(broker.deliveries("a", "nobody"))
        with pytest.raises(SapwoodError, match="at least one"):
            broker.deliveries()
        with pytest.raises(SapwoodError, match="at least 1 delivery"):
            broker.deliveries("a", limit=0)
        for number in range(5):
            await broker.publish("<a/>", number)  # waits for none of them
