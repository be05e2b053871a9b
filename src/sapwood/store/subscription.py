"""What goes into a store and what comes out of it."""

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
    """the version since which it has been just so"""

    def same(self, other: Subscription) -> bool:
        """Whether the other one asks the same for the same subscriber."""
        return (
            self.query == other.query
            and self.active == other.active
            and self.subscriber == other.subscriber
            and self.language == other.language
        )


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A subscription to import.

    A language of None is the one that the query looks like. Where it replaces one, a subscriber or activity
    of None stays as it is; a new one has "" and True.
    """

    id: str
    query: str
    subscriber: str | None = None
    language: str | None = None
    active: bool | None = None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of the rows of an import; each is counted once."""

    added: int
    replaced: int
    refused: int
    version: int
    """the store's version when the import had ended"""
    unchanged: int = 0
    """replacements that were as the subscription is already"""


@dataclass(frozen=True, slots=True)
class Changes:
    """How the active subscriptions of one version become those of another, each id named at most once."""

    removed: list[str]
    """ids that are no longer there, or no longer active"""
    put: list[tuple[str, str]]
    """ids and queries that came, or came back, or have another query, in the order added"""
