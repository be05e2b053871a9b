"""Subscriptions, subscribers, dead letters and keys of a broker, as its answers describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sapwood.client.model.delivery import Delivery, delivery_from_json
from sapwood.errors import SapwoodError

Policy = Literal["wait", "drop-oldest", "suspend"]
"""for an inbox that is full: publishers wait, its oldest deliveries are dropped, or it is suspended"""
Scope = Literal["publish", "subscribe", "admin"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A standing query of a subscriber."""

    id: str
    query: str
    subscriber: str
    language: str
    active: bool
    streams: tuple[str, ...]
    """the streams that it is restricted to; none means all"""
    version: int
    """the version of the store in which it became what it is"""
    confirmed: bool | None = None
    """after a change in a mesh, whether all brokers have it: no message published anywhere is missed then"""


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A subscription to import; None leaves a field to the broker."""

    id: str
    query: str
    subscriber: str | None = None
    streams: tuple[str, ...] | None = None
    active: bool | None = None
    language: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are given."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """A subscription that was not imported, and the reason."""

    number: int
    """its place among the subscriptions of the import, from 1"""
    id: str | None
    error: SapwoodError


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The outcome of an import."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    refused: int = 0
    version: int = 0
    errors: tuple[ImportFailure, ...] = ()
    confirmed: bool | None = None
    """in a mesh, whether all brokers have the changes"""

    def __add__(self, later: ImportReport) -> ImportReport:
        return ImportReport(
            self.added + later.added,
            self.replaced + later.replaced,
            self.unchanged + later.unchanged,
            self.refused + later.refused,
            max(self.version, later.version),
            self.errors + later.errors,
            later.confirmed,  # which holds for all versions before
        )


@dataclass(frozen=True, slots=True)
class QueryExplanation:
    """How a broker evaluates a query."""

    language: str
    text: str
    """for people"""
    native: bool
    """whether the shared index evaluates all of it"""
    details: Mapping[str, Any] = field(repr=False)
    """the whole answer"""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a query on sample messages, without a subscription."""

    language: str
    matches: bool
    why: str
    """which step fails, or why all hold"""
    nodes: tuple[Mapping[str, Any], ...]
    """the selected nodes of a filter"""
    results: tuple[str, ...]
    """the XML that a transformation or a join builds"""


@dataclass(frozen=True, slots=True)
class SubscriberSettings:
    """The settings of an inbox."""

    limit: int | None = None
    """deliveries that it holds before the policy applies; None: as configured for the broker"""
    policy: str | None = None
    merge: bool = False
    """whether subscriptions that match the same message give one delivery"""
    webhook: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Subscriber:
    """An inbox, and how far it has been read."""

    name: str
    backlog: int
    last: int
    """the number of its newest delivery"""
    acknowledged: int
    dropped: int
    """the number of the last delivery that was dropped before it was acknowledged"""
    suspended: bool
    settings: SubscriberSettings


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A delivery that a webhook did not accept."""

    number: int
    delivery: Delivery
    attempts: int
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What became of dead letters that were sent again."""

    replayed: tuple[int, ...]
    """the numbers of those that were accepted"""
    failed: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a tenant; its secret is in the answer to its creation only."""

    id: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    created: float
    """in seconds since the epoch"""
    secret: str | None = field(default=None, repr=False)
    """the whole key, as requests send it"""


def subscription_from_json(data: dict[str, Any]) -> Subscription:
    """Return the subscription of an answer."""
    return Subscription(
        data["id"],
        data["query"],
        data.get("subscriber") or "",
        data["language"],
        data["active"],
        tuple(data.get("streams") or ()),
        data["version"],
        data.get("confirmed"),
    )


def explanation_from_json(data: dict[str, Any]) -> QueryExplanation:
    """Return the explanation of an answer."""
    return QueryExplanation(data["language"], data["text"], data.get("native", True), data)


def trial_from_json(data: dict[str, Any]) -> Trial:
    """Return the result of a trial."""
    return Trial(
        data["language"],
        data["matches"],
        data.get("why") or "",
        tuple(data.get("nodes") or ()),
        tuple(data.get("results") or ()),
    )


def subscriber_from_json(data: dict[str, Any]) -> Subscriber:
    """Return the subscriber of an answer."""
    settings = data.get("settings") or {}
    return Subscriber(
        data["name"],
        data["backlog"],
        data["last"],
        data["acknowledged"],
        data.get("dropped", 0),
        bool(data.get("suspended")),
        SubscriberSettings(
            settings.get("limit"),
            settings.get("policy"),
            bool(settings.get("merge")),
            settings.get("webhook"),
        ),
    )


def dead_letter_from_json(data: dict[str, Any]) -> DeadLetter:
    """Return the dead letter of an answer."""
    return DeadLetter(
        data["number"],
        delivery_from_json(data["delivery"]),
        data["attempts"],
        data["reason"],
        data["since"],
    )


def key_from_json(data: dict[str, Any]) -> Key:
    """Return the key of an answer."""
    return Key(
        data["id"],
        data.get("name") or "",
        data.get("tenant") or "",
        tuple(data["scopes"]),
        data["created"],
        data.get("key"),
    )


def replay_from_json(data: dict[str, Any]) -> ReplayReport:
    """Return the report of a replay."""
    return ReplayReport(tuple(data["replayed"]), tuple(data.get("failed") or ()))
