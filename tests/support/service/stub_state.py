"""The state of a stub of the broker service: a `Broker`, subscriptions, and inboxes, all in memory."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from sapwood import Broker, MessageError, QueryError, SapwoodError
from sapwood.lang.languages import detect_language


class ProblemError(Exception):
    """A problem that the service answers with."""

    def __init__(self, status: int, slug: str, detail: str, **more: Any) -> None:
        self.status = status
        self.details = {
            "type": f"urn:sapwood:problem:{slug}",
            "title": slug,
            "status": status,
            "detail": detail,
            **more,
        }


def describe_error(error: SapwoodError, **more: Any) -> ProblemError:
    """Return the problem of a query or message that is refused."""
    if isinstance(error, QueryError):
        hint = {} if error.hint is None else {"hint": error.hint}
        return ProblemError(
            422, "query", str(error), reason=error.reason, position=error.position, **hint, **more
        )
    assert isinstance(error, MessageError)
    return ProblemError(
        422, "message", str(error), reason=error.reason, line=error.line, column=error.column, **more
    )


@dataclass
class Inbox:
    """The deliveries of a subscriber."""

    deliveries: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    dead: list[dict[str, Any]] = field(default_factory=list)
    acknowledged: int = 0
    acks: list[int] = field(default_factory=list)
    """each acknowledgement that came"""
    suspended: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    def describe(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "backlog": len(self.deliveries) - self.acknowledged,
            "last": len(self.deliveries),
            "acknowledged": self.acknowledged,
            "dropped": sum(gap["count"] for gap in self.gaps),
            "suspended": self.suspended,
            "settings": self.settings,
        }


class StubState:
    """What the service remembers, beyond a restart."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.version = 0
        self.subscriptions: dict[str, dict[str, Any]] = {}
        self.inboxes: dict[str, Inbox] = defaultdict(Inbox)
        self.messages: dict[str, tuple[str, dict[str, Any]]] = {}
        """the digest and the receipt of each message"""
        self.namespaces: dict[str, str] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.required_key: str | None = None

    # -- subscriptions -------------------------------------------------------------------------------------

    def subscribe(self, given: dict[str, Any]) -> dict[str, Any]:
        """Create or replace a subscription."""
        id, query = given["id"], given["query"]
        probe = Broker(self.namespaces)
        try:
            probe.subscribe(id, query)  # or a query that is refused would remove the one before
        except QueryError as error:
            raise describe_error(error) from None
        if id in self.subscriptions and self.subscriptions[id]["active"]:
            self.broker.unsubscribe(id)
        self.version += 1
        described = {
            "id": id,
            "query": query,
            "subscriber": given.get("subscriber") or "",
            "language": detect_language(query),
            "active": given.get("active", True),
            "streams": given.get("streams") or [],
            "version": self.version,
        }
        if described["active"]:
            self.broker.subscribe(id, query, streams=described["streams"] or None)
        self.subscriptions[id] = described
        self.inboxes[described["subscriber"]]  # created by access
        return described

    def unsubscribe(self, id: str) -> int:
        if self.find(id)["active"]:
            self.broker.unsubscribe(id)
        del self.subscriptions[id]
        self.version += 1
        return self.version

    def find(self, id: str) -> dict[str, Any]:
        if id not in self.subscriptions:
            raise ProblemError(404, "not-found", f"there is no subscription {id!r}")
        return self.subscriptions[id]

    # -- messages ------------------------------------------------------------------------------------------

    def publish(self, stream: str, id: str, body: bytes, time: float | None) -> tuple[int, dict[str, Any]]:
        """Evaluate a message, unless it was before; return the status and the receipt."""
        digest = hashlib.sha256(body).hexdigest()
        if id in self.messages:
            known, receipt = self.messages[id]
            if known != digest:
                raise ProblemError(409, "conflict", f"the id {id!r} belongs to another message", id=id)
            return 200, receipt | {"duplicate": True}
        try:
            deliveries = self.broker.publish(body, id, stream=stream, time=time)
        except MessageError as error:
            raise describe_error(error, stream=stream, id=id) from None
        receipt = {
            "id": id,
            "stream": stream,
            "seq": len(self.messages) + 1,
            "version": self.version,
            "deliveries": len(deliveries),
            "duplicate": False,
            "failures": 0,
            "late": None,
        }
        self.messages[id] = digest, receipt
        for delivery in deliveries:
            subscription = str(delivery.subscription)
            name = self.subscriptions[subscription]["subscriber"]
            self.deliver(name, delivery.body, subscription, id, stream, time)
        return 201, receipt

    def deliver(
        self,
        name: str,
        body: bytes,
        subscription: str = "s",
        message: str = "m",
        stream: str = "",
        time: float | None = None,
    ) -> None:
        """Put a delivery into an inbox."""
        inbox = self.inboxes[name]
        number = len(inbox.deliveries) + 1
        inbox.deliveries.append(
            {
                "id": f"{name}-{number}",
                "number": number,
                "subscriptions": [subscription],
                "message": message,
                "stream": stream,
                "time": time,
                "published": 1_800_000_000.0 + number,
                "body": body.decode(),
            }
        )
