"""All webhooks of a broker: one sender each, started, replaced and stopped as settings change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import httpx

from sapwood.serve.webhooks.target_address import (
    Resolver,
    SystemResolver,
    TargetBackend,
    TargetPolicy,
    check_target,
    parse_target,
)
from sapwood.serve.webhooks.webhook_connection import ConnectionLimits, WebhookConnection
from sapwood.serve.webhooks.webhook_sender import (
    SenderClock,
    WebhookCounters,
    WebhookDelivery,
    WebhookSender,
    WebhookSource,
    WebhookStatus,
    encode_payload,
    make_headers,
)
from sapwood.serve.webhooks.webhook_settings import WebhookSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Webhook:
    settings: WebhookSettings
    source: WebhookSource


class WebhookManager:
    """Runs the senders of all webhooks, at most one of each name at a time."""

    def __init__(
        self,
        policy: TargetPolicy | None = None,
        *,
        limits: ConnectionLimits | None = None,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        clock: SenderClock | None = None,
        grace: float = 10.0,
    ) -> None:
        """Send to the targets that a policy allows; an attempt in flight has `grace` seconds to end."""
        self.counters = WebhookCounters()
        self._policy = policy if policy is not None else TargetPolicy()
        self._resolver = resolver if resolver is not None else SystemResolver()
        self._backend = TargetBackend(self._policy, self._resolver)
        self._limits = limits if limits is not None else ConnectionLimits()
        self._ssl_context = ssl_context if ssl_context is not None else httpx.create_ssl_context()
        self._clock = clock if clock is not None else SenderClock()
        self._grace = grace
        self._wanted: dict[str, _Webhook] = {}
        self._senders: dict[str, WebhookSender] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def check(self, settings: WebhookSettings) -> None:
        """Raise `ArgumentError` if the target of a webhook is not allowed or not found."""
        await check_target(settings.url, self._policy, self._resolver)

    def put(self, name: str, settings: WebhookSettings, source: WebhookSource) -> None:
        """Start a webhook, or replace it if its settings have changed; a disabled one is started again.

        A sender that is replaced first ends its attempt in flight; this does not wait for it.
        """
        current = self._senders.get(name)
        wanted = self._wanted.get(name)
        if current is not None and wanted is not None and wanted.settings == settings:
            return
        self._wanted[name] = _Webhook(settings, source)
        if current is None:
            self._start(name)
        else:
            current.stop(self._grace)  # the new one starts when it has ended

    async def remove(self, name: str) -> None:
        """Stop a webhook, if there is one, and wait until it has ended."""
        self._wanted.pop(name, None)
        await self._stop([name])

    async def close(self) -> None:
        """Stop all webhooks, and wait until they have ended."""
        self._wanted.clear()
        await self._stop(list(self._senders))

    async def send_once(
        self, settings: WebhookSettings, deliveries: Sequence[WebhookDelivery]
    ) -> list[str | None]:
        """Send deliveries in order, one attempt each; returns why each failed, or None."""
        connection = self._connect(settings)
        keys = settings.keys()
        failures: list[str | None] = []
        try:
            for delivery in deliveries:
                body = encode_payload(delivery)
                headers = make_headers(keys, delivery.id, int(self._clock.now()), body)
                await connection.reserve()
                answer = await connection.post(headers, body, settings.timeout, settings.connect_timeout)
                failures.append(answer.failure)
        finally:
            await connection.close()
        return failures

    def _connect(self, settings: WebhookSettings) -> WebhookConnection:
        target = parse_target(settings.url)
        return WebhookConnection(target, self._backend, self._ssl_context, self._limits)

    def status(self, name: str) -> WebhookStatus | None:
        """Return how sending goes for a webhook that runs, or None."""
        sender = self._senders.get(name)
        return sender.status if sender is not None else None

    def __len__(self) -> int:
        """Return how many senders run."""
        return len(self._senders)

    async def _stop(self, names: list[str]) -> None:
        tasks = []
        for name in names:
            if name in self._senders:
                self._senders[name].stop(self._grace)
                tasks.append(self._tasks[name])
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, name: str) -> None:
        webhook = self._wanted[name]
        connection = self._connect(webhook.settings)
        sender = WebhookSender(
            name,
            webhook.settings,
            webhook.source,
            connection,
            counters=self.counters,
            clock=self._clock,
        )
        _log.info("webhook of %s starts: deliveries are sent to %s", name, webhook.settings.host())
        self._senders[name] = sender
        task = self._tasks[name] = asyncio.create_task(sender.run(), name=f"webhook {name}")
        task.add_done_callback(partial(self._ended, name, webhook))

    def _ended(self, name: str, webhook: _Webhook, task: asyncio.Task[None]) -> None:
        """Start what has taken the place of a webhook that has ended."""
        del self._senders[name], self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("webhook of %s ended by an error", name, exc_info=error)
        wanted = self._wanted.get(name)
        if wanted is webhook:
            del self._wanted[name]  # it was disabled, or cancelled
        elif wanted is not None:
            self._start(name)
