"""What many batches come to: totals for as long as a pipeline runs, latencies of those not long ago."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Any

from sapwood.spark.pipeline.batch import Outcome

_RECENT = 1_000
"""Batches whose latencies are kept, so that a stream of months takes no more memory than one of hours."""


def per_second(count: int, seconds: float) -> float:
    """A rate; none where no time has passed."""
    return count / seconds if seconds > 0 else 0.0


def format_duration(seconds: float) -> str:
    """A time as people say it: 85 ms, 2.4 s, 3 min 05 s."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


class Totals:
    """Adds up outcomes as they come."""

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self.batches = self.messages = self.deliveries = self.joined = self.rejects = self.failures = 0
        self.seconds = 0.0
        self.first: Outcome | None = None
        self.last: Outcome | None = None
        self.recent: deque[Outcome] = deque(maxlen=_RECENT)
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Outcome) -> None:
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
        return per_second(self.messages, self.seconds)

    @property
    def deliveries_per_second(self) -> float:
        return per_second(self.deliveries, self.seconds)

    @property
    def latency(self) -> float:
        """Seconds that a batch took on average, of all."""
        return self.seconds / self.batches if self.batches else 0.0

    @property
    def latency_95(self) -> float:
        """Seconds within which 95 of 100 batches were served, of the recent ones."""
        ordered = sorted(outcome.seconds for outcome in tuple(self.recent))
        return ordered[ceil(len(ordered) * 0.95) - 1] if ordered else 0.0

    @property
    def versions(self) -> tuple[int, int] | None:
        """The versions of the subscriptions that served the first batch and the last."""
        if self.first is None or self.last is None:
            return None
        return self.first.version, self.last.version

    def as_record(self) -> dict[str, Any]:
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
    """Messages by how many subscriptions they match: none, 1, 2–3, 4–7, … as far as there are any."""
    total: Counter[int] = Counter()
    for outcome in outcomes:
        total.update(dict(enumerate(outcome.matches)))
    last = max((place for place, count in total.items() if count), default=-1)
    return [(_span(place), total[place]) for place in range(last + 1)]


def _span(place: int) -> str:
    if place < 2:
        return ("none", "1")[place]
    return f"{1 << (place - 1):,}–{(1 << place) - 1:,}"


def count_reasons(outcomes: Iterable[Outcome]) -> list[tuple[str | None, int]]:
    """Rejects by reason, most frequent first; under None, last, those whose reason is not on record."""
    known: Counter[str] = Counter()
    rejects = 0
    for outcome in outcomes:
        known.update(outcome.reasons)
        rejects += outcome.rejects
    told: list[tuple[str | None, int]] = list(known.most_common())
    rest = rejects - known.total()
    return [*told, (None, rest)] if rest > 0 else told


def count_failures(outcomes: Iterable[Outcome], most: int = 20) -> list[tuple[str, int]]:
    """Subscriptions that had no answer, with the reason, by how many messages; most frequent first."""
    total: Counter[str] = Counter()
    for outcome in outcomes:
        total.update(outcome.failed)
    return total.most_common(most)


def rank_slowest(outcomes: Iterable[Outcome], most: int = 12) -> list[tuple[str, float]]:
    """The subscriptions that took the most seconds of their own, slowest first."""
    total: dict[str, float] = {}
    for outcome in outcomes:
        for id, seconds in outcome.slow.items():
            total[id] = total.get(id, 0.0) + seconds
    return sorted(total.items(), key=lambda entry: (-entry[1], entry[0]))[:most]


def rank_subscriptions(outcomes: Iterable[Outcome], most: int = 12) -> list[tuple[str, int]]:
    """The subscriptions with the most deliveries, as far as they are on record, most first."""
    return _added_up((outcome.by_subscription for outcome in outcomes), most)


def rank_subscribers(outcomes: Iterable[Outcome], most: int = 12) -> list[tuple[str, int]]:
    """The subscribers with the most deliveries, most first; "" is for all that have no name."""
    return _added_up((outcome.by_subscriber for outcome in outcomes), most)


def _added_up(counts: Iterable[Mapping[str, int]], most: int) -> list[tuple[str, int]]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return sorted(total.items(), key=lambda entry: (-entry[1], entry[0]))[:most]


def list_latest_rejects(outcomes: Sequence[Outcome], most: int = 50) -> list[tuple[int, str, str]]:
    """Batch, id and reason of rejects, of the newest batches first, as far as they are on record."""
    newest = (
        (outcome.batch, id, reason) for outcome in reversed(outcomes) for id, reason in outcome.rejected
    )
    return list(islice(newest, most))
