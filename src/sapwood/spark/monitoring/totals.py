"""Totals and rankings of the outcomes of many batches."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Any

from sapwood.spark.pipeline.batch import Outcome

_RECENT = 1_000
"""The batches whose latencies are stored, so that the memory of a long stream is bounded."""


def per_second(count: int, seconds: float) -> float:
    """Return a rate, which is 0 where no time has passed."""
    return count / seconds if seconds > 0 else 0.0


def format_duration(seconds: float) -> str:
    """Format seconds: 85 ms, 2.4 s, 3 min 05 s."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


class Totals:
    """Running totals of outcomes."""

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self.batches = self.messages = self.deliveries = self.joined = self.rejects = self.failures = 0
        self.seconds = 0.0
        self.first: Outcome | None = None
        self.last: Outcome | None = None
        self.recent: deque[Outcome] = deque(maxlen=_RECENT)
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a batch."""
        self.batches += 1
        self.messages += outcome.messages
        self.deliveries += outcome.deliveries
        self.joined += outcome.joined
        self.rejects += outcome.rejects
        self.failures += outcome.failures
        self.seconds += outcome.seconds
        self.first = self.first or outcome
        self.last = outcome
        self.recent.append(outcome)

    @property
    def messages_per_second(self) -> float:
        """The throughput while batches were processed."""
        return per_second(self.messages, self.seconds)

    @property
    def deliveries_per_second(self) -> float:
        """The deliveries a second while batches were processed."""
        return per_second(self.deliveries, self.seconds)

    @property
    def latency(self) -> float:
        """The mean time of all batches in seconds."""
        return self.seconds / self.batches if self.batches else 0.0

    @property
    def latency_95(self) -> float:
        """The 95th percentile of the time of recent batches in seconds."""
        ordered = sorted(outcome.seconds for outcome in tuple(self.recent))
        return ordered[ceil(len(ordered) * 0.95) - 1] if ordered else 0.0

    @property
    def versions(self) -> tuple[int, int] | None:
        """The versions of the subscriptions in the first and the last batch."""
        if self.first is None or self.last is None:
            return None
        return self.first.version, self.last.version

    def as_record(self) -> dict[str, Any]:
        """Return the totals as a JSON object."""
        return {
            "batches": self.batches,
            "messages": self.messages,
            "deliveries": self.deliveries,
            "joined": self.joined,
            "rejects": self.rejects,
            "failures": self.failures,
            "seconds": round(self.seconds, 6),
            "messages_per_second": round(self.messages_per_second, 1),
            "deliveries_per_second": round(self.deliveries_per_second, 1),
            "latency_mean": round(self.latency, 6),
            "latency_95": round(self.latency_95, 6),
            "subscriptions": self.last.subscriptions if self.last is not None else None,
            "versions": list(self.versions) if self.versions is not None else None,
        }


def count_matches(outcomes: Iterable[Outcome]) -> list[tuple[str, int]]:
    """Count messages by the number of subscriptions they match: none, 1, 2–3, 4–7, … up to the last bin."""
    total: Counter[int] = Counter()
    for outcome in outcomes:
        total.update(dict(enumerate(outcome.matches)))
    last = max((bin for bin, count in total.items() if count), default=-1)
    return [(_format_bin(bin), total[bin]) for bin in range(last + 1)]


def _format_bin(bin: int) -> str:
    if bin < 2:
        return ("none", "1")[bin]
    return f"{1 << (bin - 1):,}–{(1 << bin) - 1:,}"


def count_reasons(outcomes: Iterable[Outcome]) -> list[tuple[str | None, int]]:
    """Count rejects by reason, most frequent first; None, last, is for reasons that are not in the log."""
    known: Counter[str] = Counter()
    rejects = 0
    for outcome in outcomes:
        known.update(outcome.reasons)
        rejects += outcome.rejects
    counted: list[tuple[str | None, int]] = list(known.most_common())
    rest = rejects - known.total()
    return [*counted, (None, rest)] if rest > 0 else counted


def count_failures(outcomes: Iterable[Outcome], most: int = 20) -> list[tuple[str, int]]:
    """Count failures by subscription and reason, most frequent first."""
    total: Counter[str] = Counter()
    for outcome in outcomes:
        total.update(outcome.failed)
    return total.most_common(most)


def rank_slowest(outcomes: Iterable[Outcome], most: int = 12) -> list[tuple[str, float]]:
    """Return the subscriptions with the most seconds of their own, slowest first."""
    total: dict[str, float] = {}
    for outcome in outcomes:
        for id, seconds in outcome.slow.items():
            total[id] = total.get(id, 0.0) + seconds
    return sorted(total.items(), key=lambda entry: (-entry[1], entry[0]))[:most]


def rank_subscriptions(outcomes: Iterable[Outcome], most: int = 12) -> list[tuple[str, int]]:
    """Return the subscriptions with the most deliveries in the log, most first."""
    return _rank((outcome.by_subscription for outcome in outcomes), most)


def rank_subscribers(outcomes: Iterable[Outcome], most: int = 12) -> list[tuple[str, int]]:
    """Return the subscribers with the most deliveries, most first; "" is for no subscriber."""
    return _rank((outcome.by_subscriber for outcome in outcomes), most)


def _rank(counts: Iterable[Mapping[str, int]], most: int) -> list[tuple[str, int]]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return sorted(total.items(), key=lambda entry: (-entry[1], entry[0]))[:most]


def list_latest_rejects(outcomes: Sequence[Outcome], most: int = 50) -> list[tuple[int, str, str]]:
    """Return batch, id and reason of the rejects in the log, newest batches first."""
    newest = (
        (outcome.batch, id, reason) for outcome in reversed(outcomes) for id, reason in outcome.rejected
    )
    return list(islice(newest, most))
