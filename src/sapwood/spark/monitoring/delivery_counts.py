"""Deliveries counted by subscription and subscriber, and the subscriptions that have ever matched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MOST_SUBSCRIPTIONS = 100
MOST_SUBSCRIBERS = 50
"""Of a batch, so many with the most deliveries are put on record."""


def count_by_subscription(matched: DataFrame, joined: DataFrame | None) -> dict[str, int]:
    """How many deliveries each subscription gets of a batch: of single messages, and of joins."""
    ids = matched.select(F.explode("subscriptions").alias("id"))
    if joined is not None:
        ids = ids.union(joined.select("subscription"))
    table = ids.groupBy("id").count().toArrow()
    return dict(zip(table.column("id").to_pylist(), table.column("count").to_pylist(), strict=True))


def most_frequent(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """Those with the highest counts, highest first."""
    return dict(sorted(Counter(counts).most_common(most), key=lambda entry: (-entry[1], entry[0])))


class MatchedSubscriptions:
    """The subscriptions that have matched a message since a batch, of all runs of a pipeline together."""

    def __init__(self, ids: Iterable[str] = (), since: int | None = None) -> None:
        self.ids = set(ids)
        self.since = since
        """the first batch that was looked at; None if there was none yet"""
        self._new: set[str] = set()

    def add(self, ids: Iterable[str]) -> None:
        """Takes in subscriptions that have matched."""
        self._new |= set(ids) - self.ids
        self.ids |= self._new

    def take_new(self) -> list[str]:
        """Those that are new since this was last asked."""
        new, self._new = sorted(self._new), set()
        return new
