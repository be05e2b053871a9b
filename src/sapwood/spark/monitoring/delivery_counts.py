"""Deliveries by subscription, and the subscriptions that have ever matched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

MOST_SUBSCRIPTIONS = 100
MOST_SUBSCRIBERS = 50
"""The subscriptions and subscribers of a batch with the most deliveries, which its outcome names."""


def most_frequent(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """Return the entries with the highest counts, highest first."""
    return dict(sorted(Counter(counts).most_common(most), key=lambda entry: (-entry[1], entry[0])))


class MatchedSubscriptions:
    """The subscriptions that have matched a message since a batch, over all runs of a pipeline."""

    def __init__(self, ids: Iterable[str] = (), since: int | None = None) -> None:
        self.ids = set(ids)
        self.since = since
        """the first batch that is counted; None before it"""
        self._new: set[str] = set()

    def add(self, ids: Iterable[str]) -> None:
        """Add subscriptions that have matched."""
        self._new |= set(ids) - self.ids
        self.ids |= self._new

    def take_new(self) -> list[str]:
        """Return the ids that are new since the last call."""
        new, self._new = sorted(self._new), set()
        return new
