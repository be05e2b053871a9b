"""Bounded queues of deliveries in an event loop, and the asynchronous iterators that read them.

The broker holds the queue and its reader the iterator, so that an iterator that nobody holds any more, as
after a `break`, can end its queue: publishers would wait for a reader that never comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from math import inf
from typing import Self

from sapwood.broker.delivery import Delivery
from sapwood.errors import ArgumentError


class DeliveryQueue:
    """The deliveries of some subscriptions that have not been read yet; used in one event loop only."""

    def __init__(self, ids: Iterable[Hashable], limit: int, on_end: Callable[[DeliveryQueue], None]) -> None:
        if limit < 1:
            raise ArgumentError(f"limit must be at least 1 delivery, not {limit!r}")
        self.ids = dict.fromkeys(ids)
        """the subscriptions that have not ended"""
        self._limit: float = limit
        self._on_end = on_end
        self._deliveries: deque[Delivery] = deque()
        self._has_ended = False
        self._space = asyncio.Event()
        self._filled = asyncio.Event()

    async def put(self, delivery: Delivery) -> None:
        """Append a delivery as soon as there is space; it is dropped if its subscription or the queue ends
        meanwhile."""
        while self._takes(delivery) and len(self._deliveries) >= self._limit:
            self._space.clear()
            await self._space.wait()
        if self._takes(delivery):
            self._deliveries.append(delivery)
            self._filled.set()

    def _takes(self, delivery: Delivery) -> bool:
        return delivery.subscription in self.ids and not self._has_ended

    async def get(self) -> Delivery | None:
        """Return the next delivery as soon as there is one, or None at the end."""
        while not self._deliveries:
            if self._has_ended:
                return None
            self._filled.clear()
            await self._filled.wait()
        self._space.set()
        return self._deliveries.popleft()

    def remove(self, id: Hashable) -> None:
        """End one subscription, and with the last one the queue; deliveries that it has can still be read."""
        self.ids.pop(id, None)
        self._space.set()
        if not self.ids:
            self.end()

    def lift_limit(self) -> None:
        """Let publishers wait no longer, so that the last message can be delivered completely."""
        self._limit = inf
        self._space.set()

    def end(self) -> None:
        """Take no more deliveries, and let those who wait go on."""
        if not self._has_ended:
            self._has_ended = True
            self._on_end(self)
            self._space.set()
            self._filled.set()

    def clear(self) -> None:
        """End the queue and drop the deliveries that have not been read."""
        self.end()
        self._deliveries.clear()


class DeliveryIterator(AsyncIterator[Delivery]):
    """An asynchronous iterator over the deliveries of some subscriptions.

    It ends when all of them have ended, or the broker is closed. Until it is closed or not referenced any
    more, publishers wait while its queue is full.
    """

    def __init__(
        self,
        queue: DeliveryQueue,
        loop: asyncio.AbstractEventLoop,
        check: Callable[[Iterable[Hashable]], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._loop = loop
        self._check = check
        self._is_checked = False

    async def __anext__(self) -> Delivery:
        if not self._is_checked:
            try:
                await self._check(tuple(self._queue.ids))
            except KeyError:
                self._queue.clear()
                raise
            self._is_checked = True
        delivery = await self._queue.get()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def aclose(self) -> None:
        """End the iteration; deliveries that have not been read are dropped."""
        self._queue.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(self._queue.clear)
