"""The summary of a micro-batch: counts that each task makes of its own messages, and the driver adds up."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

BINS = 24
"""Messages are counted by how many subscriptions they match: none, 1, 2–3, 4–7, and so on."""
SAMPLE = 20
"""Rejects that a summary names."""
_MOST_REASONS = 5_000
"""Different reasons that are counted; of more, the most frequent."""


@dataclass(slots=True)
class BatchSummary:
    """The counts of a task, or of all tasks of a micro-batch."""

    messages: int = 0
    deliveries: int = 0
    joined: int = 0
    """deliveries of joins, which `deliveries` includes"""
    rejects: int = 0
    failures: int = 0
    """pairs of a message and a subscription whose evaluation failed"""
    matches: list[int] = field(default_factory=lambda: [0] * BINS)
    """messages by number of matches"""
    reasons: Counter[str] = field(default_factory=Counter)
    """rejects by reason"""
    failed: Counter[str] = field(default_factory=Counter)
    """failures by subscription and reason"""
    costs: Counter[str] = field(default_factory=Counter)
    """seconds by subscription, of those that are evaluated one by one"""
    by_subscription: Counter[str] = field(default_factory=Counter)
    """deliveries by subscription"""
    rejected: list[tuple[str, str]] = field(default_factory=list)
    """id and reason of some rejects"""
    files: Counter[str] = field(default_factory=Counter)
    """names of the files that were written, with their numbers of rows"""

    def count_matches(self, sizes: NDArray[np.int64]) -> None:
        """Count accepted messages by the number of subscriptions that they match."""
        _, exponents = np.frexp(sizes)  # 0 for none, 1 for 1, 2 for 2–3, …
        counts = np.bincount(np.minimum(exponents, BINS - 1), minlength=BINS)
        self.matches = [one + int(other) for one, other in zip(self.matches, counts, strict=True)]

    def count_rejects(self, ids: Iterable[str], reasons: Iterable[str]) -> None:
        """Count rejected messages, and name some of them."""
        for id, reason in zip(ids, reasons, strict=True):
            self.rejects += 1
            self.reasons[reason] += 1
            if len(self.rejected) < SAMPLE:
                self.rejected.append((id, reason))
        self.reasons = _bound(self.reasons)

    def count_failures(self, subscriptions: Iterable[str], reasons: Iterable[str]) -> None:
        """Count failures of single subscriptions."""
        for subscription, reason in zip(subscriptions, reasons, strict=True):
            self.failures += 1
            self.failed[f"{subscription}: {reason}"] += 1
        self.failed = _bound(self.failed)

    def merge(self, other: BatchSummary) -> None:
        """Add the counts of another task."""
        self.matches = [one + two for one, two in zip(self.matches, other.matches, strict=True)]
        self.rejected = (self.rejected + other.rejected)[:SAMPLE]
        for each in fields(self):
            if each.name not in ("matches", "rejected"):
                own = getattr(self, each.name)
                own += getattr(other, each.name)
                setattr(self, each.name, own)

    def to_bytes(self) -> bytes:
        """Return the summary as bytes, for the driver."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)

    @classmethod
    def from_bytes(cls, data: bytes) -> BatchSummary:
        """The inverse of `to_bytes`."""
        return cls(**pickle.loads(data))


def merge_summaries(summaries: Iterable[bytes]) -> BatchSummary:
    """Add up the summaries of all tasks."""
    total = BatchSummary()
    for each in summaries:
        total.merge(BatchSummary.from_bytes(each))
    return total


def _bound(counts: Counter[str]) -> Counter[str]:
    """Keep the most frequent of very many texts."""
    return counts if len(counts) <= _MOST_REASONS else Counter(dict(counts.most_common(_MOST_REASONS // 2)))
