"""Publishing: what is checked before a message goes to the engine, and what is counted after."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sapwood.errors import ArgumentError, SapwoodError
from sapwood.join.state.event_time import to_seconds
from sapwood.serve.engine.frames import MessageProblem, Publish, Receipt
from sapwood.serve.service import Service
from sapwood.serve.tenants.evaluation import Publication
from sapwood.serve.tracing import trace

LONGEST_ID = 500
LONGEST_STREAM = 200


class RateExceeded(SapwoodError):
    """Raised for a publisher that is to try again later."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds


class NotDurable(SapwoodError):
    """Raised for a message of which it is not known in time whether it is in the log."""


@dataclass(frozen=True, slots=True)
class PublishOutcome:
    """What became of the messages of a request, in order."""

    results: Sequence[Receipt | MessageProblem]
    delivered: bool | None = None
    """whether all deliveries were acknowledged in time, if the publisher waited for that"""


async def publish(service: Service, messages: list[Publication], wait: float | None = None) -> PublishOutcome:
    """Publish messages of one tenant and stream; returns when they are in the log.

    With `wait`, when all their deliveries are acknowledged, or after so many seconds.
    """
    started = time.perf_counter()
    tenant = messages[0].tenant if messages else ""
    later = service.rates.take(tenant, len(messages))
    if later:
        service.metrics.refusals.labels("rate").inc()
        raise RateExceeded("the publish rate of the quota is reached", later)
    if service.mesh is not None:
        check_mesh_load(service)
    number = 0

    def build(request: int) -> Publish:
        nonlocal number
        number = request
        return Publish(request, messages, wait is not None)

    task = asyncio.ensure_future(service.engine.request(build))
    try:
        with trace("evaluate and commit"):
            results = await asyncio.wait_for(asyncio.shield(task), service.publish_wait)
    except TimeoutError:
        task.add_done_callback(_ignore)
        raise NotDurable(
            "the message is not in the log yet, because the log cannot be written at present; publish it "
            "again with the same id, which does not make two of it"
        ) from None
    service.metrics.publish_seconds.observe(time.perf_counter() - started)
    _count(service, tenant, messages, results)
    if wait is None:
        return PublishOutcome(results)
    try:
        await asyncio.wait_for(service.feed.delivered.wait(number), wait)
    except TimeoutError:
        return PublishOutcome(results, False)
    return PublishOutcome(results, True)


def check_mesh_load(service: Service) -> None:
    """Raise MeshOverloaded if messages wait for a link that is far behind."""
    assert service.mesh is not None
    try:
        service.mesh.check_load()
    except SapwoodError:
        service.metrics.refusals.labels("mesh").inc()
        raise


def _ignore(task: asyncio.Future[object]) -> None:
    if not task.cancelled():
        task.exception()


def _count(
    service: Service,
    tenant: str,
    messages: Sequence[Publication],
    results: Sequence[Receipt | MessageProblem],
) -> None:
    metrics = service.metrics
    for message, result in zip(messages, results, strict=True):
        if isinstance(result, MessageProblem):
            metrics.rejected.labels(tenant).inc()
        elif result.duplicate:
            metrics.duplicates.labels(tenant).inc()
        else:
            metrics.published.labels(tenant).inc()
            metrics.published_bytes.labels(tenant).inc(len(message.body))
            metrics.matched.labels(tenant).inc(result.deliveries)
            if result.failures:
                metrics.failures.labels(tenant).inc(result.failures)


# -- checks ------------------------------------------------------------------------------------------------


def check_stream(stream: str) -> None:
    """Raise ArgumentError for a text that cannot be the name of a stream."""
    _check_text(stream, "the name of a stream", LONGEST_STREAM)


def check_message_id(id: str) -> None:
    """Raise ArgumentError for a text that cannot be the id of a message."""
    _check_text(id, "the id of a message", LONGEST_ID)


def _check_text(text: str, what: str, longest: int) -> None:
    if not text:
        raise ArgumentError(f"{what} must not be empty")
    if len(text) > longest:
        raise ArgumentError(f"{what} has at most {longest} characters, not {len(text):,}")
    if not text.isprintable():
        raise ArgumentError(f"{what} must not hold control characters")


def make_message_id() -> str:
    """Return a new id; later ones are greater, so that the index of ids grows at its end."""
    return f"{time.time_ns() // 1_000:014x}{os.urandom(8).hex()}"


def parse_time(text: str) -> float:
    """Return a time, ISO 8601 or seconds since the epoch, in seconds; raises ArgumentError."""
    try:
        return to_seconds(float(text))
    except ArgumentError:
        raise
    except ValueError:
        pass
    try:
        return to_seconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise ArgumentError(f"a time is ISO 8601 or seconds since the epoch, not {text[:100]!r}") from None
