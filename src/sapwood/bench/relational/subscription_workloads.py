"""Workloads of subscriptions and messages: stock quotes, which differ in values, and news, in paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sapwood.bench.harness import BenchError
from sapwood.bench.harness.datasets import open_dataset
from sapwood.workload.studies.stock_workload import StockWorkload


@dataclass(frozen=True, slots=True)
class StockQuotes:
    """Flat messages, and subscriptions that cause `notifications` when `quotes` messages are published."""

    symbols: int
    subscriptions: int
    quotes: int
    notifications: int

    @property
    def key(self) -> str:
        """A name for files."""
        return f"stocks-{self.subscriptions}-{self.notifications}"

    def queries(self) -> Iterator[str]:
        return StockWorkload(self.symbols).queries(self.subscriptions, self.quotes, self.notifications)

    def messages(self, count: int) -> list[bytes]:
        return list(StockWorkload(self.symbols).messages(count))


@dataclass(frozen=True, slots=True)
class NewsPaths:
    """Documents, and distinct paths through them with a predicate each."""

    subscriptions: int

    @property
    def key(self) -> str:
        """A name for files."""
        return f"news-{self.subscriptions}"

    def queries(self) -> Iterator[str]:
        found = open_dataset().queries("predicates", self.subscriptions)
        if len(found) < self.subscriptions:
            raise BenchError(f"there are only {len(found):,} distinct queries, not {self.subscriptions:,}")
        return iter(found)

    def messages(self, count: int) -> list[bytes]:
        return open_dataset().messages(count)


SubscriptionWorkload = StockQuotes | NewsPaths
"""a number of subscriptions, and messages that some of them match; the same ones in every run"""
