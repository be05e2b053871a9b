"""Sending dead letters again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from sapwood.errors import SapwoodError
from sapwood.serve.delivery.delivery_feed import DeliveryFeed
from sapwood.serve.engine.engine_client import EngineClient
from sapwood.serve.engine.frames import DeleteDeadLetters
from sapwood.serve.webhooks.webhook_manager import WebhookManager
from sapwood.serve.webhooks.webhook_sender import WebhookDelivery
from sapwood.serve.webhooks.webhook_settings import WebhookSettings


class NoWebhook(SapwoodError):
    """Raised where dead letters are to be sent, and there is no webhook."""


class ReplayHost(Protocol):
    """What sending dead letters needs of the service."""

    feed: DeliveryFeed
    engine: EngineClient
    webhooks: WebhookManager


async def replay_dead_letters(
    host: ReplayHost, inbox: int, letters: Sequence[dict[str, Any]]
) -> tuple[list[int], list[dict[str, Any]]]:
    """Send dead letters to the webhook of an inbox, one attempt each, and delete those that are accepted.

    Returns the numbers of these, and the others with the reason.
    """
    settings = host.feed.inboxes.get_setting(inbox, "webhook")
    if not settings:
        raise NoWebhook("the subscriber has no webhook that dead letters could be sent to: set one")
    deliveries = [
        WebhookDelivery(
            letter["delivery"]["id"],
            letter["delivery"]["number"],
            letter["delivery"]["published"],
            json.dumps(letter["delivery"], ensure_ascii=False, separators=(",", ":")).encode(),
        )
        for letter in letters
    ]
    failures = await host.webhooks.send_once(WebhookSettings.model_validate(settings), deliveries)
    accepted = [letter["number"] for letter, why in zip(letters, failures, strict=True) if why is None]
    if accepted:
        await host.engine.request(lambda n: DeleteDeadLetters(n, accepted))
    failed = [
        {"number": letter["number"], "reason": why}
        for letter, why in zip(letters, failures, strict=True)
        if why is not None
    ]
    return accepted, failed
