"""The demo while it runs: it fills the broker by its HTTP API, and then publishes and listens."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from sapwood.client import AsyncClient, Refusal
from sapwood.errors import MessageError, SapwoodError
from sapwood.serve.demo.demo_messages import DemoMessage, MessageSource
from sapwood.serve.demo.demo_subscriptions import BEHIND, FOR_YOU, LISTENERS, make_subscriptions

_log = logging.getLogger(__name__)
_AT_FIRST = 400
"""messages that are published before the commands are shown"""
_PAUSE = 0.25
"""seconds from one message to the next"""
_BACKLOG = 60
"""deliveries that the subscriber which is behind leaves unread"""
_LIMIT = 10_000
"""deliveries that wait for whoever tries the demo"""


@dataclass(frozen=True, slots=True)
class DemoSize:
    """What the broker was filled with."""

    subscriptions: int
    messages: int


async def run_demo(url: str, on_filled: Callable[[DemoSize], None]) -> None:
    """Fill the broker at a URL, then publish and listen until cancelled."""
    async with AsyncClient(url) as client:
        try:
            messages = iter(MessageSource())
            on_filled(await _fill(client, messages))
            async with asyncio.TaskGroup() as group:
                group.create_task(_publish(client, messages))
                group.create_task(_fall_behind(client))
                for name in LISTENERS:
                    group.create_task(_listen(client, name))
        except* SapwoodError as errors:
            _log.warning("the demo publishes no more: %s", errors.exceptions[0])


async def _fill(client: AsyncClient, messages: Iterator[DemoMessage]) -> DemoSize:
    await client.configure_subscriber(FOR_YOU, limit=_LIMIT, policy="drop-oldest", merge=True)
    report = await client.import_many(make_subscriptions())
    streams: dict[str, list[bytes | str]] = defaultdict(list)
    for message in islice(messages, _AT_FIRST):
        streams[message.stream].append(message.body)
    published = 0
    for stream, bodies in streams.items():
        async for result in client.publish_many(stream, bodies):
            published += not isinstance(result, Refusal)
    return DemoSize(report.added, published)


async def _publish(client: AsyncClient, messages: Iterator[DemoMessage]) -> None:
    for message in messages:
        try:
            await client.publish(message.stream, message.body)
        except MessageError as error:
            _log.debug("a message was refused, as it should be: %s", error)
        await asyncio.sleep(_PAUSE)


async def _listen(client: AsyncClient, name: str) -> None:
    async for _ in client.deliveries(name):
        pass


async def _fall_behind(client: AsyncClient) -> None:
    """Read and acknowledge deliveries, but never the last ones."""
    while True:
        page = await client.pull(BEHIND, limit=1_000)
        if len(page.deliveries) > _BACKLOG:
            await client.ack(BEHIND, page.deliveries[-_BACKLOG - 1])
        await asyncio.sleep(5)
