"""What the experiments with joins are given: sizes, and the workloads of Hong et al. (SIGMOD 2007)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sapwood.bench.setting import Notebook
from sapwood.workload import JoinGenerator, JoinSchema, flat_schema, levels_schema

WINDOW = 60
"""seconds: pairs of messages that are further apart do not meet"""


@dataclass(frozen=True, slots=True)
class JoinScale:
    """Sizes of all experiments. The bars are promises about `FULL` only."""

    rounds: int
    pass_seconds: float
    """about so long a pass joins one pair of messages after the other; at least one pair"""

    # Two messages.
    sizes: tuple[int, ...]
    """queries, where all ways are measured"""
    queries: int
    """where something else varies"""
    leaf_counts: tuple[int, ...]
    equality_counts: tuple[int, ...]
    skews: tuple[float, ...]

    # Feeds.
    feed_sizes: tuple[int, ...]
    feed_items: int
    """for the fewest and the most queries"""
    feed_first_items: int
    """for all numbers of queries"""
    feed_compared_items: int
    """for all ways of joining, one query at a time among them"""
    feed_spark_items: int = 0
    """on Spark; 0 leaves it out"""
    feed_spark_queries: int = 0


FULL = JoinScale(
    rounds=7,
    pass_seconds=0.1,
    sizes=(10, 100, 1_000, 10_000, 100_000),
    queries=1_000,
    leaf_counts=(4, 6, 8, 10, 12),
    equality_counts=(2, 3, 4, 5),
    skews=(0.0, 0.4, 0.8, 1.2, 1.6),
    feed_sizes=(10, 100, 1_000, 10_000, 100_000),
    feed_items=225_000,
    feed_first_items=20_000,
    feed_compared_items=200,
    feed_spark_items=4_000,
    feed_spark_queries=300,
)

QUICK = JoinScale(
    rounds=3,
    pass_seconds=0.02,
    sizes=(10, 100, 1_000, 10_000),
    queries=1_000,
    leaf_counts=(4, 8, 12),
    equality_counts=FULL.equality_counts,
    skews=(0.0, 0.8, 1.6),
    feed_sizes=(10, 1_000, 10_000),
    feed_items=2_000,
    feed_first_items=2_000,
    feed_compared_items=100,
    feed_spark_items=800,
    feed_spark_queries=100,
)


@dataclass(slots=True)
class JoinSetting(Notebook):
    """The surroundings of an experiment with joins."""

    scale: JoinScale


@dataclass(frozen=True, slots=True)
class Workload:
    """Messages of a schema, and queries that join two of them."""

    schema: JoinSchema
    equalities: int
    skew: float = 0.8

    def queries(self, count: int, window: str = f"{WINDOW} s") -> list[str]:
        """So many, as people would leave them: the same may come again."""
        made = JoinGenerator(self.schema, seed=1, equalities=self.equalities, skew=self.skew, window=window)
        return made.take(count)

    def skewed(self, skew: float) -> Workload:
        return replace(self, skew=skew)


def flat(leaves: int = 6) -> Workload:
    """Two levels; up to as many equalities as leaves."""
    return Workload(flat_schema(leaves), leaves)


def levels(equalities: int = 4) -> Workload:
    """Three levels with sixteen leaves."""
    return Workload(levels_schema(), equalities)
