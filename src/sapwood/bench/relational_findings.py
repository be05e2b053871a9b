"""What the experiments with tables find out in processes of their own.

Megabytes, 10⁶ bytes each, are resident ones of such a process, unless something else is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from zlib import crc32

from sapwood.bench.sources import BenchError


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file of tables, and what it took to fill it."""

    file: str
    subscriptions: int
    predicates: int
    seconds: float
    megabytes: float
    """of the file"""
    peak: float

    @property
    def microseconds(self) -> float:
        """Of one subscription."""
        return self.seconds / self.subscriptions * 1e6


@dataclass(frozen=True, slots=True)
class Matched:
    """Messages matched with one file by one plan, in some rounds."""

    file: str
    plan: str
    batch: int
    filing: float
    """seconds to file subscriptions by the plan; about 0 if they were"""
    seconds: list[float]
    """of each round"""
    reading: float
    """seconds of a round that go into parsing messages and making rows of them"""
    notifications: int
    digest: int
    """of who is notified of the first messages"""
    resident: float
    peak: float

    @property
    def best(self) -> float:
        return min(self.seconds)

    def times(self, other: Matched) -> float:
        """How many times as long as another, timed by turns with it, it takes: the median of the rounds."""
        return median(mine / yours for mine, yours in zip(self.seconds, other.seconds, strict=True))


@dataclass(frozen=True, slots=True)
class Served:
    """A process that has subscriptions at hand and has matched messages for a while."""

    loading: float
    """seconds from the queries; of tables, to open them"""
    single: float
    """microseconds of a message that comes by itself"""
    batched: float | None
    """microseconds of a message in a batch; None where there are no batches"""
    notifications: int
    digest: int
    resident: float
    peak: float
    duckdb: float
    """megabytes that DuckDB says it uses"""


@dataclass(frozen=True, slots=True)
class Grown:
    """Tables that have grown to so many subscriptions."""

    subscriptions: int
    predicates: int
    paths: int
    """linear paths, all different"""
    tags: int
    """tag paths that some of them match"""
    matches: int
    """pairs of both"""
    loading: float
    """seconds since the size before"""
    path_match: float
    """seconds to find all these pairs, none being known"""
    megabytes: float
    """of the file"""
    before: float
    """megabytes of the process when there were no tables yet: messages, and what makes queries"""


def digest(answers: Iterable[Iterable[object]]) -> int:
    """A number that tells answers apart, whatever the order in which each names its subscriptions."""
    found = 0
    for answer in answers:
        found = crc32(",".join(sorted(map(str, answer))).encode() + b";", found)
    return found


def check_agreed(workload: str, *found: Matched | Served) -> None:
    """BenchError unless all found the same."""
    if len({(each.notifications, each.digest) for each in found}) > 1:
        counts = ", ".join(f"{each.notifications:,}" for each in found)
        raise BenchError(f"not all ways to match agree on {workload}: {counts} notifications")
