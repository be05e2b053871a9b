"""The records of a store: subscriptions, changes between versions, and reports of imports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subscription:
    """A standing query as the store holds it."""

    id: str
    query: str
    subscriber: str
    language: str
    active: bool
    place: int
    """ascends in the order added; a subscription keeps it when its query is replaced"""
    since: int
    """the version in which it got its present state"""
    streams: tuple[str, ...] = ()
    """the streams whose messages it gets; all, if there are none"""

    def same(self, other: Subscription) -> bool:
        """Return whether the other one has the same query, language, subscriber, activity and streams."""
        return (
            self.query == other.query
            and self.active == other.active
            and self.subscriber == other.subscriber
            and self.language == other.language
            and self.streams == other.streams
        )


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A subscription to import.

    A language of None is the one that the query looks like. Where it replaces one, a subscriber, activity or
    streams of None stay as they are; a new one has "", True and no streams, which stands for all.
    """

    id: str
    query: str
    subscriber: str | None = None
    language: str | None = None
    active: bool | None = None
    streams: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The outcome of an import; each row is counted once."""

    added: int
    replaced: int
    refused: int
    version: int
    """the store's version when the import had ended"""
    unchanged: int = 0
    """replacements that change nothing"""


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between the active subscriptions of two versions; an id occurs at most once."""

    removed: list[str]
    """ids that were removed or deactivated"""
    put: list[tuple[str, str]]
    """ids and queries that were added, activated or replaced, in the order added"""
