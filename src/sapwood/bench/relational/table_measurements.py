"""Results of the isolated measurements, and the check that contenders agree.

Megabytes, 10⁶ bytes each, are the resident memory of the measuring process unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from zlib import crc32

from sapwood.bench.harness import BenchError, ChartAxis

SECONDS = ChartAxis("seconds for all messages", " s")
WALL = "wall time, since DuckDB uses all cores"
PAPER = "paper: DB2 8.1 on a Pentium 4 with 512 MB"


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A database file, and the cost of filling it."""

    file: str
    subscriptions: int
    predicates: int
    seconds: float
    megabytes: float
    """of the file"""
    peak: float


@dataclass(frozen=True, slots=True)
class PlanRounds:
    """Messages matched with one database by one plan, in several rounds."""

    file: str
    plan: str
    batch: int
    seconds: list[float]
    """of each round"""
    reading: float
    """seconds of a round for parsing and shredding messages"""
    notifications: int
    digest: int
    """of the subscriptions notified of the first messages"""
    peak: float

    @property
    def best(self) -> float:
        return min(self.seconds)

    def ratio_to(self, other: PlanRounds) -> float:
        """Divide by another measurement of the same rounds: the median of the rounds' ratios."""
        return median(mine / theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True))


@dataclass(frozen=True, slots=True)
class ServingCost:
    """A process with subscriptions that has matched messages for a while."""

    loading: float
    """seconds to load the queries, or to open the database"""
    single: float
    """microseconds of a single message"""
    batched: float
    """microseconds of a message in a batch; as `single` for the automaton, which has no batches"""
    notifications: int
    digest: int
    resident: float
    peak: float
    duckdb: float = 0.0
    """megabytes that DuckDB reports"""


def digest_answers(answers: Iterable[Iterable[object]]) -> int:
    """Return a checksum of the subscriptions of each message, in whatever order they are listed."""
    found = 0
    for answer in answers:
        found = crc32(",".join(sorted(map(str, answer))).encode() + b";", found)
    return found


def check_agreement(workload: str, *found: PlanRounds | ServingCost) -> None:
    """Raise BenchError unless all measurements found the same notifications."""
    if len({(each.notifications, each.digest) for each in found}) > 1:
        counts = ", ".join(f"{each.notifications:,}" for each in found)
        raise BenchError(f"the contenders do not agree on {workload}: {counts} notifications")
