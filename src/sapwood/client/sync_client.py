"""The client of a broker service, for code that waits."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar
from weakref import WeakSet

import httpx

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
from sapwood.client.sync_deliveries import Deliveries
from sapwood.client.transport.connection import TIMEOUT, ConnectionSettings
from sapwood.client.transport.delivery_feed import AckMode
from sapwood.client.transport.retry_policy import RetryPolicy
from sapwood.errors import SapwoodError

T = TypeVar("T")


class Client:
    """A connection to a broker service; safe to use from several threads.

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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect to a URL, by default that of SAPWOOD_URL or http://127.0.0.1:8080; the key defaults to
        SAPWOOD_KEY.
        """
        self.settings = ConnectionSettings(url, key, timeout, retries)
        self._http = httpx.Client(transport=transport, **self.settings.http_options())
        self._deliveries: WeakSet[Deliveries] = WeakSet()
        self._sleep = clock.sleep

    def close(self) -> None:
        """Close all connections, after telling the broker what has been acknowledged."""
        try:
            for deliveries in list(self._deliveries):
                deliveries.close()
        finally:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.settings.url!r})"

    # -- requests ------------------------------------------------------------------------------------------

    def _send(self, call: Call[T]) -> T:
        """Send a request, again if need be, and return its result."""
        attempts = self.settings.start()
        while True:
            try:
                return self._send_once(call)
            except SapwoodError as error:
                delay = attempts.delay_after(error)
            self._sleep(delay)

    def _send_once(self, call: Call[T]) -> T:
        try:
            answer = self._http.request(**self.settings.request_options(call))
        except httpx.TransportError as error:
            raise self.settings.transport_error(call, error) from error
        return self.settings.read_answer(call, answer.status_code, answer.headers, answer.content)

    def _open(self, call: Call[Any], *, retry: bool) -> httpx.Response:
        """Open an event stream, again if need be."""
        attempts = self.settings.start()
        while True:
            try:
                return self._open_once(call)
            except SapwoodError as error:
                if not retry:
                    raise
                delay = attempts.delay_after(error)
            self._sleep(delay)

    def _open_once(self, call: Call[Any]) -> httpx.Response:
        request = self._http.build_request(**self.settings.request_options(call, stream=True))
        try:
            answer = self._http.send(request, stream=True)
            if answer.status_code != 200:
                answer.read()
        except httpx.TransportError as error:
            raise self.settings.transport_error(call, error) from error
        try:
            if answer.status_code != 200:
                raise self.settings.error(call, answer.status_code, answer.headers, answer.content)
            self.settings.check_event_stream(call, answer.headers)
        except SapwoodError:
            answer.close()
            raise
        return answer

    def _list(self, page: Callable[[str | None], Call[Page[T]]]) -> Iterator[T]:
        """Iterate over a list, page by page."""
        cursor: str | None = None
        while True:
            found = self._send(page(cursor))
            yield from found.items
            cursor = found.next
            if cursor is None:
                return

    # -- publishing ----------------------------------------------------------------------------------------

    def publish(
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
        return self._send(publish_calls.publish(stream, message, wait, timeout))

    def publish_many(
        self,
        stream: str,
        messages: Iterable[Message | bytes | str],
        wait: Wait = "durable",
        timeout: float | None = None,
        *,
        batch: int = 500,
        batch_bytes: int = 4 << 20,
    ) -> Iterator[PublishResult]:
        """Publish many messages in requests of limited size; yield a receipt or a refusal for each, in order.

        Messages are read and sent while the results are iterated over.
        """
        batcher = MessageBatcher(batch, batch_bytes)
        for item in messages:
            for full in batcher.add(item):
                yield from self._publish_batch(stream, full, wait, timeout)
        yield from self._publish_batch(stream, batcher.take(), wait, timeout)

    def _publish_batch(
        self, stream: str, messages: list[Message], wait: Wait, timeout: float | None
    ) -> list[PublishResult]:
        if not messages:
            return []
        try:
            return self._publish_pending(stream, PendingBatch(messages), wait, timeout)
        except TooLarge as error:
            if len(messages) == 1:
                return [Refusal(messages[0].id, error)]
            middle = len(messages) // 2
            first = self._publish_batch(stream, messages[:middle], wait, timeout)
            return first + self._publish_batch(stream, messages[middle:], wait, timeout)

    def _publish_pending(
        self, stream: str, batch: PendingBatch, wait: Wait, timeout: float | None
    ) -> list[PublishResult]:
        """Send a batch, and again what the broker could not take at once because an inbox was full."""
        attempts = self.settings.start()
        while True:
            batch.add(self._send(publish_calls.publish_batch(stream, batch.waiting, wait, timeout)))
            try:
                delay = 0.0 if batch.error is None else attempts.delay_after(batch.error)
            except SapwoodError:
                return batch.results()  # in which it is a refusal
            if not batch.waiting:
                return batch.results()
            self._sleep(delay)

    # -- subscriptions -------------------------------------------------------------------------------------

    def subscribe(
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
        return self._send(subscription_calls.subscribe(new, replace))

    def replace(
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
        return self._send(subscription_calls.change(id, changes, version))

    def unsubscribe(self, id: str, *, version: int | None = None) -> int:
        """Delete a subscription; return the version of the store."""
        return self._send(subscription_calls.unsubscribe(id, version))

    def pause(self, id: str) -> Subscription:
        """Evaluate a subscription no more, until it is resumed."""
        return self._send(subscription_calls.change(id, {"active": False}, None))

    def resume(self, id: str) -> Subscription:
        """Evaluate a subscription again."""
        return self._send(subscription_calls.change(id, {"active": True}, None))

    def subscription(self, id: str) -> Subscription:
        """Return a subscription."""
        return self._send(subscription_calls.read_subscription(id))

    def subscriptions(
        self,
        subscriber: str | None = None,
        language: str | None = None,
        stream: str | None = None,
        active: bool | None = None,
        text: str | None = None,
    ) -> Iterator[Subscription]:
        """Iterate over the subscriptions, or those that have what is given."""
        return self._list(
            lambda cursor: subscription_calls.list_subscriptions(
                cursor, subscriber=subscriber, language=language, stream=stream, active=active, text=text
            )
        )

    def import_many(
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
                report += self._send(subscription_calls.import_batch(full, replace, seen))
                seen += len(full)
        if rest := batcher.take():
            report += self._send(subscription_calls.import_batch(rest, replace, seen))
        return report

    def explain(self, query: str) -> QueryExplanation:
        """Return how the broker would evaluate a query."""
        return self._send(subscription_calls.explain(query))

    def explain_subscription(self, id: str) -> QueryExplanation:
        """Return how the broker evaluates a subscription."""
        return self._send(subscription_calls.explain_subscription(id))

    def try_query(self, query: str, *messages: Message | bytes | str, stream: str | None = None) -> Trial:
        """Evaluate a query on sample messages, without a subscription."""
        return self._send(subscription_calls.try_query(query, messages, stream))

    def namespaces(self) -> dict[str, str]:
        """Return the prefixes that queries may use."""
        return self._send(subscription_calls.read_namespaces())

    def declare(self, namespaces: Mapping[str, str]) -> int:
        """Declare prefixes for queries; return the version of the store."""
        return self._send(subscription_calls.declare(namespaces))

    # -- deliveries ----------------------------------------------------------------------------------------

    def deliveries(
        self,
        subscriber: str,
        ack: AckMode = "auto",
        after: int | None = None,
        *,
        on_gap: Callable[[Gap], None] | None = None,
        on_disconnect: Callable[[SapwoodError], None] | None = None,
    ) -> Deliveries:
        """Iterate over the deliveries of a subscriber as they come, from the first that is not acknowledged
        or `after` a number.

        In `auto` mode, a delivery is acknowledged when the next one is asked for; in `manual` mode, with all
        before it, by its method ack(); in `none` mode, never. `on_gap` is called where deliveries are lost,
        and `on_disconnect` when the connection is; it is opened again.
        """
        deliveries = Deliveries(self, subscriber, ack, after, on_gap, on_disconnect)
        self._deliveries.add(deliveries)
        return deliveries

    def pull(
        self, subscriber: str, limit: int = 100, wait: float = 0.0, after: int | None = None
    ) -> DeliveryPage:
        """Return up to `limit` deliveries that are not acknowledged; wait some seconds if there are none."""
        return self._send(subscriber_calls.pull(subscriber, limit, wait, after))

    def ack(self, subscriber: str, upto: int | str | Delivery) -> Acknowledgement:
        """Acknowledge a delivery and all before it."""
        return self._send(subscriber_calls.ack(subscriber, upto))

    def gaps(self, subscriber: str) -> list[Gap]:
        """Return where deliveries of a subscriber are lost."""
        return self._send(subscriber_calls.list_gaps(subscriber))

    def dead_letters(self, subscriber: str) -> Iterator[DeadLetter]:
        """Iterate over the deliveries that the webhook of a subscriber did not accept."""
        return self._list(lambda cursor: subscriber_calls.list_dead_letters(subscriber, cursor))

    def replay(self, subscriber: str, numbers: Iterable[int] | None = None) -> ReplayReport:
        """Deliver dead letters again: those with these numbers, or the first thousand."""
        return self._send(subscriber_calls.replay(subscriber, numbers))

    def delete_dead_letter(self, subscriber: str, number: int) -> None:
        """Delete a dead letter."""
        self._send(subscriber_calls.delete_dead_letter(subscriber, number))

    # -- subscribers ---------------------------------------------------------------------------------------

    def subscribers(self, text: str | None = None) -> Iterator[Subscriber]:
        """Iterate over the subscribers, or those whose names contain a text."""
        return self._list(lambda cursor: subscriber_calls.list_subscribers(cursor, text))

    def subscriber(self, name: str) -> Subscriber:
        """Return the state of a subscriber."""
        return self._send(subscriber_calls.read_subscriber(name))

    def configure_subscriber(
        self,
        name: str,
        limit: int | None = None,
        policy: Policy | None = None,
        merge: bool = False,
        webhook: Mapping[str, Any] | None = None,
    ) -> Subscriber:
        """Set all settings of a subscriber, which is created if need be; None means the default."""
        return self._send(subscriber_calls.configure(name, limit, policy, merge, webhook))

    def delete_subscriber(self, name: str) -> None:
        """Delete a subscriber with its inbox."""
        self._send(subscriber_calls.delete_subscriber(name))

    def resume_subscriber(self, name: str) -> None:
        """End the suspension of a subscriber."""
        self._send(subscriber_calls.resume_subscriber(name))

    # -- operations ----------------------------------------------------------------------------------------

    def keys(self) -> list[Key]:
        """Return the keys of the tenant, without their secrets."""
        return self._send(subscriber_calls.list_keys())

    def create_key(self, scopes: Iterable[Scope], name: str | None = None, tenant: str | None = None) -> Key:
        """Create a key; its secret is not shown again."""
        return self._send(subscriber_calls.create_key(scopes, name, tenant))

    def delete_key(self, id: str) -> None:
        """Revoke a key."""
        self._send(subscriber_calls.delete_key(id))

    def stats(self) -> dict[str, Any]:
        """Return the figures of the broker."""
        return self._send(publish_calls.read_stats())

    # -- the mesh ------------------------------------------------------------------------------------------

    def read_mesh(self, *names: str, **filters: object) -> dict[str, Any]:
        """Return what a broker knows of its mesh: itself, `brokers`, `topology`, `tables`, `check`, `explain`
        and an id of a subscription, or `trace` and an id of a message."""
        return self._send(mesh_calls.read_mesh(*names, **filters))

    def change_mesh(self, *names: str, body: dict[str, Any], patience: float = 60.0) -> dict[str, Any]:
        """Change a mesh: `drain`, `topology` `move` or `subscriptions` `move`, in `patience` seconds."""
        return self._send(mesh_calls.change_mesh(*names, body=body, patience=patience))
