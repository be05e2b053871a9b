"""The client of a broker service, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Self, TypeVar
from weakref import WeakSet

import httpx

from sapwood.client.async_deliveries import AsyncDeliveries
from sapwood.client.calls import mesh_calls, publish_calls, subscriber_calls, subscription_calls
from sapwood.client.calls.api_call import Call, Page
from sapwood.client.calls.publish_calls import make_message
from sapwood.client.client_errors import TooLarge
from sapwood.client.model.delivery import Acknowledgement, Delivery, DeliveryPage, Gap
from sapwood.client.model.messages import (
    Message,
    MessageBatcher,
    PendingBatch,
    PublishReceipt,
    PublishResult,
    Refusal,
    Time,
    Wait,
)
from sapwood.client.model.resources import (
    DeadLetter,
    ImportReport,
    Key,
    NewSubscription,
    Policy,
    QueryExplanation,
    ReplayReport,
    Scope,
    Subscriber,
    Subscription,
    Trial,
)
from sapwood.client.transport.connection import TIMEOUT, ConnectionSettings
from sapwood.client.transport.delivery_feed import AckMode
from sapwood.client.transport.retry_policy import RetryPolicy
from sapwood.errors import SapwoodError

T = TypeVar("T")


async def _iterate(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


class AsyncClient:
    """A connection to a broker service; the methods are those of `Client`, to be awaited.

    Failed connections, and answers that ask to come back later, are retried with growing delays; every
    message is sent with an id, so that the broker recognises one that is sent again.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        timeout: float = TIMEOUT,
        retries: int | RetryPolicy = 5,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Connect to a URL, by default that of SAPWOOD_URL or http://127.0.0.1:8080; the key defaults to
        SAPWOOD_KEY.
        """
        self.settings = ConnectionSettings(url, key, timeout, retries)
        self._http = httpx.AsyncClient(transport=transport, **self.settings.http_options())
        self._deliveries: WeakSet[AsyncDeliveries] = WeakSet()
        self._sleep = asyncio.sleep

    async def aclose(self) -> None:
        """Close all connections, after telling the broker what has been acknowledged."""
        try:
            for deliveries in list(self._deliveries):
                await deliveries.aclose()
        finally:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({self.settings.url!r})"

    # -- requests ------------------------------------------------------------------------------------------

    async def _send(self, call: Call[T]) -> T:
        """Send a request, again if need be, and return its result."""
        attempts = self.settings.start()
        while True:
            try:
                return await self._send_once(call)
            except SapwoodError as error:
                delay = attempts.delay_after(error)
            await self._sleep(delay)

    async def _send_once(self, call: Call[T]) -> T:
        try:
            answer = await self._http.request(**self.settings.request_options(call))
        except httpx.TransportError as error:
            raise self.settings.transport_error(call, error) from error
        return self.settings.read_answer(call, answer.status_code, answer.headers, answer.content)

    async def _open(self, call: Call[Any], *, retry: bool) -> httpx.Response:
        """Open an event stream, again if need be."""
        attempts = self.settings.start()
        while True:
            try:
                return await self._open_once(call)
            except SapwoodError as error:
                if not retry:
                    raise
                delay = attempts.delay_after(error)
            await self._sleep(delay)

    async def _open_once(self, call: Call[Any]) -> httpx.Response:
        request = self._http.build_request(**self.settings.request_options(call, stream=True))
        try:
            answer = await self._http.send(request, stream=True)
            if answer.status_code != 200:
                await answer.aread()
        except httpx.TransportError as error:
            raise self.settings.transport_error(call, error) from error
        try:
            if answer.status_code != 200:
                raise self.settings.error(call, answer.status_code, answer.headers, answer.content)
            self.settings.check_event_stream(call, answer.headers)
        except SapwoodError:
            await answer.aclose()
            raise
        return answer

    async def _list(self, page: Callable[[str | None], Call[Page[T]]]) -> AsyncIterator[T]:
        """Iterate over a list, page by page."""
        cursor: str | None = None
        while True:
            found = await self._send(page(cursor))
            for item in found.items:
                yield item
            cursor = found.next
            if cursor is None:
                return

    # -- publishing ----------------------------------------------------------------------------------------

    async def publish(
        self,
        stream: str,
        body: bytes | str,
        id: str | None = None,
        time: Time | None = None,
        wait: Wait = "durable",
        timeout: float | None = None,
    ) -> PublishReceipt:
        """Publish a message; the broker has it on disk when this returns.

        With wait="delivered", subscribers have acknowledged it, too, unless that takes longer than `timeout`
        seconds, by default 30.
        """
        message = make_message(body, id, time)
        return await self._send(publish_calls.publish(stream, message, wait, timeout))

    async def publish_many(
        self,
        stream: str,
        messages: Iterable[Message | bytes | str] | AsyncIterable[Message | bytes | str],
        wait: Wait = "durable",
        timeout: float | None = None,
        *,
        batch: int = 500,
        batch_bytes: int = 4 << 20,
    ) -> AsyncIterator[PublishResult]:
        """Publish many messages in requests of limited size; yield a receipt or a refusal for each, in order.

        Messages are read and sent while the results are iterated over.
        """
        batcher = MessageBatcher(batch, batch_bytes)
        async for item in _iterate(messages):
            for full in batcher.add(item):
                for result in await self._publish_batch(stream, full, wait, timeout):
                    yield result
        for result in await self._publish_batch(stream, batcher.take(), wait, timeout):
            yield result

    async def _publish_batch(
        self, stream: str, messages: list[Message], wait: Wait, timeout: float | None
    ) -> list[PublishResult]:
        if not messages:
            return []
        try:
            return await self._publish_pending(stream, PendingBatch(messages), wait, timeout)
        except TooLarge as error:
            if len(messages) == 1:
                return [Refusal(messages[0].id, error)]
            middle = len(messages) // 2
            first = await self._publish_batch(stream, messages[:middle], wait, timeout)
            return first + await self._publish_batch(stream, messages[middle:], wait, timeout)

    async def _publish_pending(
        self, stream: str, batch: PendingBatch, wait: Wait, timeout: float | None
    ) -> list[PublishResult]:
        """Send a batch, and again what the broker could not take at once because an inbox was full."""
        attempts = self.settings.start()
        while True:
            batch.add(await self._send(publish_calls.publish_batch(stream, batch.waiting, wait, timeout)))
            try:
                delay = 0.0 if batch.error is None else attempts.delay_after(batch.error)
            except SapwoodError:
                return batch.results()  # in which it is a refusal
            if not batch.waiting:
                return batch.results()
            await self._sleep(delay)

    # -- subscriptions -------------------------------------------------------------------------------------

    async def subscribe(
        self,
        id: str,
        query: str,
        subscriber: str | None = None,
        streams: Iterable[str] | None = None,
        active: bool | None = None,
        language: str | None = None,
        *,
        replace: bool = False,
    ) -> Subscription:
        """Create a subscription; with `replace`, also in place of one that has the id."""
        given = None if streams is None else tuple(streams)
        new = NewSubscription(id, query, subscriber, given, active, language)
        return await self._send(subscription_calls.subscribe(new, replace))

    async def replace(
        self,
        id: str,
        query: str | None = None,
        subscriber: str | None = None,
        streams: Iterable[str] | None = None,
        active: bool | None = None,
        language: str | None = None,
        *,
        version: int | None = None,
    ) -> Subscription:
        """Change the fields of a subscription that are given, if it still has the `version` that is given."""
        changes = {
            "query": query,
            "subscriber": subscriber,
            "streams": None if streams is None else list(streams),
            "active": active,
            "language": language,
        }
        return await self._send(subscription_calls.change(id, changes, version))

    async def unsubscribe(self, id: str, *, version: int | None = None) -> int:
        """Delete a subscription; return the version of the store."""
        return await self._send(subscription_calls.unsubscribe(id, version))

    async def pause(self, id: str) -> Subscription:
        """Evaluate a subscription no more, until it is resumed."""
        return await self._send(subscription_calls.change(id, {"active": False}, None))

    async def resume(self, id: str) -> Subscription:
        """Evaluate a subscription again."""
        return await self._send(subscription_calls.change(id, {"active": True}, None))

    async def subscription(self, id: str) -> Subscription:
        """Return a subscription."""
        return await self._send(subscription_calls.read_subscription(id))

    def subscriptions(
        self,
        subscriber: str | None = None,
        language: str | None = None,
        stream: str | None = None,
        active: bool | None = None,
        text: str | None = None,
    ) -> AsyncIterator[Subscription]:
        """Iterate over the subscriptions, or those that have what is given."""
        return self._list(
            lambda cursor: subscription_calls.list_subscriptions(
                cursor, subscriber=subscriber, language=language, stream=stream, active=active, text=text
            )
        )

    async def import_many(
        self,
        subscriptions: Iterable[NewSubscription | tuple[str, str]],
        *,
        replace: bool = False,
        batch: int = 1000,
        batch_bytes: int = 1 << 20,
    ) -> ImportReport:
        """Create many subscriptions, given as such or as pairs of id and query; the others are not refused
        with one that is.
        """
        batcher = subscription_calls.ImportBatcher(batch, batch_bytes)
        report, seen = ImportReport(), 0
        for item in subscriptions:
            if full := batcher.add(subscription_calls.as_new_subscription(item)):
                report += await self._send(subscription_calls.import_batch(full, replace, seen))
                seen += len(full)
        if rest := batcher.take():
            report += await self._send(subscription_calls.import_batch(rest, replace, seen))
        return report

    async def explain(self, query: str) -> QueryExplanation:
        """Return how the broker would evaluate a query."""
        return await self._send(subscription_calls.explain(query))

    async def explain_subscription(self, id: str) -> QueryExplanation:
        """Return how the broker evaluates a subscription."""
        return await self._send(subscription_calls.explain_subscription(id))

    async def try_query(
        self, query: str, *messages: Message | bytes | str, stream: str | None = None
    ) -> Trial:
        """Evaluate a query on sample messages, without a subscription."""
        return await self._send(subscription_calls.try_query(query, messages, stream))

    async def namespaces(self) -> dict[str, str]:
        """Return the prefixes that queries may use."""
        return await self._send(subscription_calls.read_namespaces())

    async def declare(self, namespaces: Mapping[str, str]) -> int:
        """Declare prefixes for queries; return the version of the store."""
        return await self._send(subscription_calls.declare(namespaces))

    # -- deliveries ----------------------------------------------------------------------------------------

    def deliveries(
        self,
        subscriber: str,
        ack: AckMode = "auto",
        after: int | None = None,
        *,
        on_gap: Callable[[Gap], None] | None = None,
        on_disconnect: Callable[[SapwoodError], None] | None = None,
    ) -> AsyncDeliveries:
        """Iterate over the deliveries of a subscriber as they come, from the first that is not acknowledged
        or `after` a number.

        In `auto` mode, a delivery is acknowledged when the next one is asked for; in `manual` mode, with all
        before it, by its method ack(); in `none` mode, never. `on_gap` is called where deliveries are lost,
        and `on_disconnect` when the connection is; it is opened again.
        """
        deliveries = AsyncDeliveries(self, subscriber, ack, after, on_gap, on_disconnect)
        self._deliveries.add(deliveries)
        return deliveries

    async def pull(
        self, subscriber: str, limit: int = 100, wait: float = 0.0, after: int | None = None
    ) -> DeliveryPage:
        """Return up to `limit` deliveries that are not acknowledged; wait some seconds if there are none."""
        return await self._send(subscriber_calls.pull(subscriber, limit, wait, after))

    async def ack(self, subscriber: str, upto: int | str | Delivery) -> Acknowledgement:
        """Acknowledge a delivery and all before it."""
        return await self._send(subscriber_calls.ack(subscriber, upto))

    async def gaps(self, subscriber: str) -> list[Gap]:
        """Return where deliveries of a subscriber are lost."""
        return await self._send(subscriber_calls.list_gaps(subscriber))

    def dead_letters(self, subscriber: str) -> AsyncIterator[DeadLetter]:
        """Iterate over the deliveries that the webhook of a subscriber did not accept."""
        return self._list(lambda cursor: subscriber_calls.list_dead_letters(subscriber, cursor))

    async def replay(self, subscriber: str, numbers: Iterable[int] | None = None) -> ReplayReport:
        """Deliver dead letters again: those with these numbers, or the first thousand."""
        return await self._send(subscriber_calls.replay(subscriber, numbers))

    async def delete_dead_letter(self, subscriber: str, number: int) -> None:
        """Delete a dead letter."""
        await self._send(subscriber_calls.delete_dead_letter(subscriber, number))

    # -- subscribers ---------------------------------------------------------------------------------------

    def subscribers(self, text: str | None = None) -> AsyncIterator[Subscriber]:
        """Iterate over the subscribers, or those whose names contain a text."""
        return self._list(lambda cursor: subscriber_calls.list_subscribers(cursor, text))

    async def subscriber(self, name: str) -> Subscriber:
        """Return the state of a subscriber."""
        return await self._send(subscriber_calls.read_subscriber(name))

    async def configure_subscriber(
        self,
        name: str,
        limit: int | None = None,
        policy: Policy | None = None,
        merge: bool = False,
        webhook: Mapping[str, Any] | None = None,
    ) -> Subscriber:
        """Set all settings of a subscriber, which is created if need be; None means the default."""
        return await self._send(subscriber_calls.configure(name, limit, policy, merge, webhook))

    async def delete_subscriber(self, name: str) -> None:
        """Delete a subscriber with its inbox."""
        await self._send(subscriber_calls.delete_subscriber(name))

    async def resume_subscriber(self, name: str) -> None:
        """End the suspension of a subscriber."""
        await self._send(subscriber_calls.resume_subscriber(name))

    # -- operations ----------------------------------------------------------------------------------------

    async def keys(self) -> list[Key]:
        """Return the keys of the tenant, without their secrets."""
        return await self._send(subscriber_calls.list_keys())

    async def create_key(
        self, scopes: Iterable[Scope], name: str | None = None, tenant: str | None = None
    ) -> Key:
        """Create a key; its secret is not shown again."""
        return await self._send(subscriber_calls.create_key(scopes, name, tenant))

    async def delete_key(self, id: str) -> None:
        """Revoke a key."""
        await self._send(subscriber_calls.delete_key(id))

    async def stats(self) -> dict[str, Any]:
        """Return the figures of the broker."""
        return await self._send(publish_calls.read_stats())

    # -- the mesh ------------------------------------------------------------------------------------------

    async def read_mesh(self, *names: str, **filters: object) -> dict[str, Any]:
        """Return what a broker knows of its mesh: itself, `brokers`, `topology`, `tables`, `check`, `explain`
        and an id of a subscription, or `trace` and an id of a message."""
        return await self._send(mesh_calls.read_mesh(*names, **filters))

    async def change_mesh(self, *names: str, body: dict[str, Any], patience: float = 60.0) -> dict[str, Any]:
        """Change a mesh: `drain`, `topology` `move` or `subscriptions` `move`, in `patience` seconds."""
        return await self._send(mesh_calls.change_mesh(*names, body=body, patience=patience))
