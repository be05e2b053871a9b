"""Both clients behind one face, so that one test serves both: asynchronous calls are run to their end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self

from sapwood.client import AsyncClient, AsyncDeliveries, Client, Deliveries, Delivery, RetryPolicy

QUICK = RetryPolicy(retries=5, first=0.01, longest=0.05, total=5)
"""retries that do not slow down tests"""


class SyncFace:
    """The client for code that waits."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self.client: Any = Client(url, **{"retries": QUICK, **options})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method; a list is returned for an iterator."""
        found = getattr(self.client, name)(*arguments, **options)
        return list(found) if isinstance(found, Iterator) else found

    def iterate(self, name: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        """Call a method that iterates."""
        yield from getattr(self.client, name)(*arguments, **options)

    def deliveries(self, *arguments: Any, **options: Any) -> SyncStream:
        return SyncStream(self.client.deliveries(*arguments, **options))

    def on_sleep(self, note: Callable[[float], None]) -> None:
        """Do not wait before repetitions, but note the seconds."""
        self.client._sleep = note


class SyncStream:
    """Deliveries of the client for code that waits."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    def take(self, count: int = 1) -> list[Delivery]:
        return [next(self._deliveries) for _ in range(count)]

    def ends(self) -> bool:
        return next(self._deliveries, None) is None

    def ack(self, delivery: Delivery) -> None:
        delivery.ack()

    def flush(self) -> None:
        self._deliveries.flush()

    def close(self) -> None:
        self._deliveries.close()

    @property
    def position(self) -> int | None:
        return self._deliveries.position

    def rest(self, seconds: float) -> None:
        """Do nothing for a while, during which the client may work."""
        import time

        time.sleep(seconds)


class AsyncFace:
    """The client for asyncio, in an event loop that runs during calls."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self.client: Any = AsyncClient(url, **{"retries": QUICK, **options})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.client.aclose())
        self._runner.close()

    def run(self, work: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await work

        return self._runner.run(wait())

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        found = getattr(self.client, name)(*arguments, **options)
        return self.run(found) if inspect.isawaitable(found) else list(self._steps(found))

    def iterate(self, name: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        yield from self._steps(getattr(self.client, name)(*arguments, **options))

    def _steps(self, items: Any) -> Iterator[Any]:
        end = object()
        while (item := self.run(anext(items, end))) is not end:
            yield item

    def deliveries(self, *arguments: Any, **options: Any) -> AsyncStream:
        return AsyncStream(self, self.client.deliveries(*arguments, **options))

    def on_sleep(self, note: Callable[[float], None]) -> None:
        async def sleep(seconds: float) -> None:
            note(seconds)

        self.client._sleep = sleep


class AsyncStream:
    """Deliveries of the client for asyncio."""

    def __init__(self, face: AsyncFace, deliveries: AsyncDeliveries) -> None:
        self._face = face
        self._deliveries = deliveries

    def take(self, count: int = 1) -> list[Delivery]:
        return [self._face.run(anext(self._deliveries)) for _ in range(count)]

    def ends(self) -> bool:
        return self._face.run(anext(self._deliveries, None)) is None

    def ack(self, delivery: Delivery) -> None:
        async def ack() -> None:
            delivery.ack()

        self._face.run(ack())

    def flush(self) -> None:
        self._face.run(self._deliveries.flush())

    def close(self) -> None:
        self._face.run(self._deliveries.aclose())

    @property
    def position(self) -> int | None:
        return self._deliveries.position

    def rest(self, seconds: float) -> None:
        self._face.run(asyncio.sleep(seconds))


Face = SyncFace | AsyncFace
