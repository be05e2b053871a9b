"""Deliveries and gaps, as a subscriber receives them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sapwood.errors import ArgumentError


def _refuse_ack(number: int) -> None:
    raise ArgumentError(
        "a delivery of pull() or of dead letters cannot acknowledge itself: client.ack(subscriber, delivery)"
    )


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one subscriber receives for one message: the message itself, or XML built from it."""

    id: str
    """the same each time that it is delivered"""
    number: int
    """its place in the inbox of the subscriber"""
    subscriptions: tuple[str, ...]
    message: str
    """the id of the message; of joined messages, the last"""
    stream: str
    time: float | None
    """when the message happened, in seconds since the epoch"""
    published: float
    """when it was published, in seconds since the epoch"""
    body: bytes
    _acknowledge: Callable[[int], None] = field(default=_refuse_ack, repr=False, compare=False)

    def ack(self) -> None:
        """Acknowledge this delivery and all before it; the broker is told within half a second."""
        self._acknowledge(self.number)


@dataclass(frozen=True, slots=True)
class Gap:
    """Deliveries that a subscriber will never receive, because its inbox was full or kept no longer."""

    after: int
    """the number of the last delivery before the gap"""
    count: int
    reason: str
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Deliveries from one call of pull()."""

    deliveries: tuple[Delivery, ...]
    cursor: int
    """the position to pull from next"""
    backlog: int
    """deliveries that are not acknowledged"""
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The state of an inbox after an acknowledgement."""

    acknowledged: int
    backlog: int


def delivery_from_json(data: dict[str, Any], acknowledge: Callable[[int], None] = _refuse_ack) -> Delivery:
    """Return the delivery that a broker sends as JSON."""
    encoded = data.get("body_base64")
    return Delivery(
        id=data["id"],
        number=data["number"],
        subscriptions=tuple(data["subscriptions"]),
        message=data["message"],
        stream=data["stream"],
        time=data.get("time"),
        published=data["published"],
        body=data["body"].encode() if encoded is None else b64decode(encoded, validate=True),
        _acknowledge=acknowledge,
    )


def gap_from_json(data: dict[str, Any]) -> Gap:
    """Return the gap that a broker sends as JSON."""
    return Gap(data["after"], data["count"], data.get("reason", ""), data.get("since"), data.get("until"))


def page_from_json(data: dict[str, Any]) -> DeliveryPage:
    """Return the answer of a pull."""
    return DeliveryPage(
        tuple(delivery_from_json(one) for one in data["deliveries"]),
        data["cursor"],
        data["backlog"],
        tuple(gap_from_json(one) for one in data.get("gaps", ())),
    )
