"""One batch of messages, served: matched with one version of the subscriptions, delivered, put on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from sapwood.spark.dataframe_match import BODIES, RESULT_COLUMNS, Shape, column, match_snapshot, to_pairs
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.io.delivery_columns import TEXT, SubscriberColumn, with_message, with_text
from sapwood.spark.io.sinks import Sink
from sapwood.spark.monitoring.delivery_counts import (
    MOST_SUBSCRIBERS,
    MOST_SUBSCRIPTIONS,
    MatchedSubscriptions,
    count_by_subscription,
    most_frequent,
)

LATENESS = "_late"
"""A column that says why a message is too late for joins, null if it is not."""
FAILURE = "_failure"
"""A column that says why a join makes nothing, null if it makes something."""
_BINS = 24
"""Messages are counted by how many subscriptions they match: none, 1, 2–3, 4–7, and so on."""
_FEW = 10_000
_MOST = 20
"""Of reasons, rejects and slow subscriptions, so many are put on record."""
_LONGEST = 300
"""Characters of an id or a reason that are put on record."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch."""

    batch: int
    version: int
    subscriptions: int
    messages: int
    deliveries: int
    rejects: int
    seconds: float
    finished: str
    matches: list[int] = field(default_factory=list)
    """messages by number of matches: none, 1, 2–3, 4–7, …"""
    reasons: dict[str, int] = field(default_factory=dict)
    """rejects by reason"""
    slow: dict[str, float] = field(default_factory=dict)
    """seconds spent on subscriptions that are decided one by one"""
    kept: int | None = None
    """rows that joins had kept of earlier batches, where there are joins and that is known"""
    left_out: dict[str, str] = field(default_factory=dict)
    """subscriptions that cannot be served, and why"""
    joined: int = 0
    """of the deliveries, those of joins"""
    matched: int = 0
    """subscriptions that got any delivery"""
    by_subscription: dict[str, int] = field(default_factory=dict)
    """deliveries by subscription, of those that got the most"""
    by_subscriber: dict[str, int] = field(default_factory=dict)
    """deliveries by subscriber, of those that got the most; under "", those without a name"""
    rejected: list[list[str]] = field(default_factory=list)
    """ids of some rejects, each with its reason"""
    failures: int = 0
    """messages on which a subscription has no answer, each such subscription counted"""
    failed: dict[str, int] = field(default_factory=dict)
    """the same by subscription and reason"""

    def as_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Outcome:
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in record.items() if name in known})


@dataclass(frozen=True, slots=True)
class Joined:
    """What joins add to a batch."""

    deliveries: DataFrame
    """the columns of messages, `subscription`, `body`, `messages`, and a FAILURE, null but for joins that
    should have made something"""
    late: DataFrame
    """messages that are too late for them, with `body` and why"""


Matching = Callable[[DataFrame, IndexSnapshot], AbstractContextManager[DataFrame]]
"""Messages with what they match, as `match_snapshot` has them with `profile`; to be read in time."""


@contextmanager
def by_broker(messages: DataFrame, edition: IndexSnapshot) -> Iterator[DataFrame]:
    """Matches messages with a broker, which has all subscriptions."""
    yield match_snapshot(messages, edition, profile=True)


@dataclass(frozen=True, slots=True)
class Server:
    """Serves batches into two sinks."""

    deliveries: Sink
    rejects: Sink
    shape: Shape = "pairs"
    matching: Matching = by_broker
    body: bool = False
    """whether filters get the message itself"""
    subscribers: SubscriberColumn = field(default_factory=SubscriberColumn)
    matched: MatchedSubscriptions = field(default_factory=MatchedSubscriptions)

    def serve(
        self,
        messages: DataFrame,
        edition: IndexSnapshot,
        subscriptions: int,
        batch: int,
        joined: Joined | None = None,
    ) -> Outcome:
        """Delivers a batch; serving it again with the same edition changes nothing in an exact sink."""
        started = perf_counter()
        if joined is not None:
            joined = replace(
                joined, deliveries=joined.deliveries.withColumn("version", F.lit(edition.version))
            )
        if self.body:
            messages = with_text(messages)
        with self.matching(messages, edition) as matched:
            counted, told = self._written(matched, edition.version, batch, joined)
        return Outcome(
            batch=batch,
            version=edition.version,
            subscriptions=subscriptions,
            messages=counted["messages"],
            deliveries=counted["deliveries"],
            rejects=counted["rejects"],
            seconds=perf_counter() - started,
            finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
            matches=[counted[f"bin{i}"] for i in range(_BINS)],
            joined=counted.get("joined", 0),
            failures=counted["failures"],
            **told,
        )

    def _written(
        self, matched: DataFrame, version: int, batch: int, joined: Joined | None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        """Writes deliveries and rejects: the counts, and what else is told of them in an outcome."""
        # Both sinks read it, and it can be large: a third of 500,000 subscriptions may match one message.
        matched = matched.withColumn("version", F.lit(version)).persist(StorageLevel.DISK_ONLY)
        try:
            counted = self._deliver(matched, batch, *((joined,) if joined is not None else ()))
            refused = _refused(matched)
            if joined is not None and counted["late"]:  # they were delivered to all others
                refused = refused.unionByName(_late(joined.late, version))
            reasons = _reasons(refused, counted["rejects"]) if counted["rejects"] else {}
            failed: dict[str, int] = {}
            if counted["failures"]:
                failures = _failures(matched, joined)
                failed = _reasons(failures, counted["failures"], F.concat_ws(": ", "subscription", "reason"))
                refused = refused.unionByName(failures)
            if counted["rejects"] or counted["failures"]:
                self.rejects.write(refused, batch)
            told = {
                "reasons": reasons,
                "failed": failed,
                "rejected": _some_rejects(refused) if counted["rejects"] else [],
                "slow": _slow(matched) if counted["costs"] else {},
                **self._most_delivered(matched, joined, counted["deliveries"]),
            }
        finally:
            matched.unpersist()
        return counted, told

    def _most_delivered(self, matched: DataFrame, joined: Joined | None, count: int) -> dict[str, Any]:
        """Who got deliveries of a batch."""
        if not count:
            return {}
        counts = count_by_subscription(matched, joined.deliveries if joined is not None else None)
        self.matched.add(counts)
        return {
            "matched": len(counts),
            "by_subscription": most_frequent(counts, MOST_SUBSCRIPTIONS),
            "by_subscriber": most_frequent(self.subscribers.counted(counts), MOST_SUBSCRIBERS),
        }

    def _deliver(self, matched: DataFrame, batch: int, joined: Joined | None = None) -> dict[str, int]:
        """Writes the deliveries, and counts everything on the way."""
        counts = _counts() if joined is None else [*_counts(), F.count(LATENESS).alias("late")]
        counting = _Counting(matched, counts, self.deliveries.passes_over)
        accepted = counting.rows.filter("error is null").drop("error", "undecided", "costs")
        if joined is None:
            rows = self._finished(to_pairs(accepted)) if self.shape == "pairs" else _delivered(accepted)
            self.deliveries.write(rows, batch)
            return counting.result()
        one = to_pairs(accepted.drop(LATENESS)).withColumn("messages", F.lit(None).cast("array<string>"))
        number = [
            F.count_if(F.col(FAILURE).isNull()).alias("deliveries"),
            F.count(FAILURE).alias("failures"),
        ]
        several = _Counting(joined.deliveries, number, self.deliveries.passes_over)
        made = several.rows.filter(F.col(FAILURE).isNull()).drop(FAILURE)
        rows = self._finished(one.unionByName(made, allowMissingColumns=True))
        self.deliveries.write(rows, batch)
        counted = counting.result()
        of_joins = several.result()
        counted["joined"] = of_joins["deliveries"]
        counted["deliveries"] += of_joins["deliveries"]
        counted["failures"] += of_joins["failures"]
        counted["rejects"] += counted["late"]
        return counted

    def _finished(self, deliveries: DataFrame) -> DataFrame:
        """Deliveries with all their columns."""
        return self.subscribers.add_to(with_message(deliveries) if self.body else deliveries)


class _Counting:
    """Rows that are counted while they are written; or if they may not be written, by themselves."""

    def __init__(self, rows: DataFrame, counts: list[Column], apart: bool) -> None:
        self._apart = rows.agg(*counts) if apart else None
        self._observation = Observation()
        self.rows = rows if apart else rows.observe(self._observation, *counts)

    def result(self) -> dict[str, int]:
        found = self._observation.get if self._apart is None else self._apart.collect()[0].asDict()
        return {name: int(count or 0) for name, count in found.items()}


def _counts() -> list[Column]:
    size = F.size("subscriptions")
    accepted = F.col("error").isNull()
    # the place of the highest bit, which is 0 for none, 1 for 1, 2 for 2–3, …
    bin_of = F.least(F.length(F.regexp_replace(F.bin(size), "^0$", "")), F.lit(_BINS - 1))
    bins = [F.count_if(accepted & (bin_of == i)).alias(f"bin{i}") for i in range(_BINS)]
    return [
        F.count(F.lit(1)).alias("messages"),
        F.sum(size).alias("deliveries"),
        F.count("error").alias("rejects"),
        F.sum(F.coalesce(F.size("undecided"), F.lit(0))).alias("failures"),
        F.sum(F.coalesce(F.size("costs"), F.lit(0))).alias("costs"),
        *bins,
    ]


def _delivered(messages: DataFrame) -> DataFrame:
    """The messages that anyone gets; with `bodies` in any case, so that every batch has the same columns."""
    if "bodies" not in messages.columns:
        messages = messages.withColumn("bodies", F.lit(None).cast(BODIES))
    if TEXT in messages.columns:
        messages = messages.withColumnRenamed(TEXT, "message")
    return messages.filter(F.size("subscriptions") > 0)


def _refused(matched: DataFrame) -> DataFrame:
    whole = F.lit(None).cast("string").alias("subscription")
    return matched.filter("error is not null").select(*_kept(matched), "error.*", whole)


def _kept(matched: DataFrame) -> list[Column]:
    """What comes with a message, without what was found out about it."""
    return [column(name) for name in matched.columns if name not in (*RESULT_COLUMNS, LATENESS, TEXT)]


def _failures(matched: DataFrame, joined: Joined | None) -> DataFrame:
    """Subscriptions that have no answer on a message, as rejects; without the body, which is not refused."""
    kept = _kept(matched)
    failures = matched.select(*kept, F.explode("undecided").alias("failure")).select(
        *kept, F.concat_ws(": ", "failure.kind", "failure.reason").alias("reason"), "failure.subscription"
    )
    if joined is not None:
        failed = joined.deliveries.filter(F.col(FAILURE).isNotNull()).drop("body", "messages")
        failures = failures.unionByName(failed.withColumnRenamed(FAILURE, "reason"))
    nothing = {"line": "int", "column": "int", "body": "binary"}
    return failures.withColumns({name: F.lit(None).cast(kind) for name, kind in nothing.items()})


def _late(messages: DataFrame, version: int) -> DataFrame:
    """Messages that are too late for joins, as rejects."""
    nowhere = F.lit(None).cast("int")
    return messages.withColumns(
        {
            "version": F.lit(version),
            "reason": F.col(LATENESS),
            "line": nowhere,
            "column": nowhere,
            "body": F.col("body").cast("binary"),
            "subscription": F.lit(None).cast("string"),
        }
    ).drop(LATENESS)


def _reasons(refused: DataFrame, count: int, reason: Column | None = None) -> dict[str, int]:
    told = refused.select((F.col("reason") if reason is None else reason).alias("reason"))
    if count <= _FEW:  # not worth a shuffle
        return dict(Counter(row["reason"] for row in told.collect()).most_common(_MOST))
    rows = told.groupBy("reason").count().orderBy(F.desc("count")).limit(_MOST).collect()
    return {row["reason"]: row["count"] for row in rows}


def _some_rejects(refused: DataFrame) -> list[list[str]]:
    rows = refused.select("message_id", "reason").limit(_MOST).collect()
    return sorted([str(row["message_id"])[:_LONGEST], str(row["reason"])[:_LONGEST]] for row in rows)


def _slow(matched: DataFrame) -> dict[str, float]:
    total: Counter[str] = Counter()
    for row in matched.filter(F.size("costs") > 0).select("costs").collect():  # one row an Arrow batch
        for cost in row["costs"]:
            total[cost["subscription"]] += cost["seconds"]
    return dict(total.most_common(_MOST))
