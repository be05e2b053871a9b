"""The deliveries of an inbox as a webhook takes them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from sapwood.serve.delivery.delivery_feed import DeliveryFeed
from sapwood.serve.delivery.inbox_reader import InboxReader
from sapwood.serve.engine.engine_client import EngineClient
from sapwood.serve.engine.frames import AddDeadLetter
from sapwood.serve.webhooks.webhook_sender import WebhookDelivery

_log = logging.getLogger(__name__)
_AT_ONCE = 50


class InboxHost(Protocol):
    """What an inbox needs of the service."""

    feed: DeliveryFeed
    engine: EngineClient

    async def acknowledge(self, inbox: int, upto: int) -> int | None:
        """Acknowledge deliveries."""

    async def configure(
        self, tenant: str, subscriber: str, settings: dict[str, Any] | None, resume: bool = False
    ) -> int:
        """Set the settings of an inbox."""


class InboxWebhook:
    """An inbox that a webhook's sender reads, always from what is not acknowledged yet."""

    def __init__(self, host: InboxHost, inbox: int) -> None:
        self._host = host
        self._inbox = inbox

    async def next(self) -> Sequence[WebhookDelivery]:
        """Wait until there are deliveries that are not acknowledged, and return the first ones in order."""
        with InboxReader(self._host.feed, self._inbox) as reader:
            while True:
                _, deliveries = await reader.next(_AT_ONCE, None)
                if deliveries:
                    return [
                        WebhookDelivery(each.id, each.number, each.content.published, each.as_json().encode())
                        for each in deliveries
                    ]
                if self._host.feed.is_stopped:  # then a reader does not wait, and this loop would not end
                    return []

    async def acknowledge(self, upto: int) -> None:
        """Acknowledge the deliveries up to a number."""
        await self._host.acknowledge(self._inbox, upto)

    async def dead_letter(self, delivery: WebhookDelivery, attempts: int, reason: str) -> None:
        """Store a delivery that cannot be sent, and acknowledge it."""
        payload = delivery.payload
        assert isinstance(payload, bytes)
        await self._host.engine.request(
            lambda n: AddDeadLetter(n, self._inbox, delivery.number, payload.decode(), attempts, reason)
        )
        tenant, name = self._host.feed.inboxes.names.get(self._inbox, ("", ""))
        fields = {"tenant": tenant, "subscriber": name, "delivery_id": delivery.id}
        _log.info("the subscriber %r has a dead letter, %s", name, delivery.id, extra=fields)

    async def disable(self, reason: str) -> None:
        """Record that the webhook gets nothing more until it is configured anew."""
        inboxes = self._host.feed.inboxes
        tenant, subscriber = inboxes.names[self._inbox]
        settings = inboxes.get_settings(self._inbox) | {"webhook_disabled": reason}
        await self._host.configure(tenant, subscriber, settings)
