"""Messages and subscriptions of the service's experiments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from sapwood import Broker
from sapwood.bench.harness.datasets import Dataset
from sapwood.bench.serve.http_load import HttpConnections
from sapwood.store import NewSubscription, SubscriptionStore

STREAM = "news"
SUBSCRIBERS = 100
_CONNECTIONS = 3
LOG = "sapwood.db"


def to_lines(messages: Sequence[bytes]) -> list[bytes]:
    """Return messages without line breaks, which is what a file of lines has."""
    return [message.replace(b"\r", b" ").replace(b"\n", b" ") for message in messages]


def write_store(folder: Path, queries: Sequence[str]) -> None:
    """Write subscriptions into the database that a server will use."""
    folder.mkdir(parents=True, exist_ok=True)
    with SubscriptionStore(str(folder / LOG)) as store:
        store.import_many(
            NewSubscription(f"s{number}", query, f"u{number % SUBSCRIBERS}")
            for number, query in enumerate(queries)
        )


def prepare_queries(dataset: Dataset, count: int) -> list[str]:
    """Return queries with a predicate each, as many as there are."""
    return dataset.queries("predicates", count)


def measure_broker(queries: Sequence[str], messages: Sequence[bytes], seconds: float) -> tuple[float, float]:
    """Return the messages that a broker in one process publishes in a second, and the deliveries of each."""
    with Broker() as broker:
        broker.subscribe_many(enumerate(queries))
        for message in messages:
            broker.publish(message)
        published = deliveries = 0
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            for message in messages:
                deliveries += len(broker.publish(message))
            published += len(messages)
        return published / (time.perf_counter() - started), deliveries / published


async def publish_for(port: int, lines: Sequence[bytes], seconds: float, batch: int) -> tuple[float, float]:
    """Publish batches over some connections for some seconds; returns messages and deliveries a second."""
    published = deliveries = 0
    started = time.perf_counter()

    async def publish(number: int) -> None:
        nonlocal published, deliveries
        connection = connections.open()
        turn = number
        while time.perf_counter() - started < seconds:
            first = turn * batch % len(lines)
            some = [lines[(first + i) % len(lines)] for i in range(batch)]
            answer = await connection.publish(STREAM, b"\n".join(some), f"{started}-{number}-{turn}")
            published += answer["published"]
            deliveries += answer["deliveries"]
            turn += _CONNECTIONS

    async with HttpConnections(port) as connections:
        await asyncio.gather(*(publish(number) for number in range(_CONNECTIONS)))
    elapsed = time.perf_counter() - started
    return published / elapsed, deliveries / elapsed
