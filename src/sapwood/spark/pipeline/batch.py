"""A micro-batch: its messages are matched with one version of the subscriptions and written to the sinks.

    messages ─► match ─► matched, persisted on disk ─┬─► deliveries ─► sink
                                                      ├─► rejects ────► sink
                                                      └─► counts ─────► Outcome, for the batch log

The counts are observed while Spark writes the deliveries, so that the rows are not read once more for them.
"""

from __future__ import annotations

import logging
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
from sapwood.spark.io.delivery_columns import TEXT, SubscriberColumn, add_text, fill_bodies
from sapwood.spark.io.sinks import Sink
from sapwood.spark.monitoring.delivery_counts import (
    MOST_SUBSCRIBERS,
    MOST_SUBSCRIPTIONS,
    MatchedSubscriptions,
    count_by_subscription,
    most_frequent,
)

LATENESS = "_late"
"""The column with the reason why a message is too late for joins; null if it is not."""
FAILURE = "_failure"
"""The column with the reason why a join has no result; null if it has one."""
_BINS = 24
"""Messages are counted by how many subscriptions they match: none, 1, 2–3, 4–7, and so on."""
_COLLECT_LIMIT = 10_000
"""Rejects that are counted on the driver; of more, Spark counts them."""
_LOGGED_ROWS = 20
"""Reasons, rejects and slow subscriptions of a batch that its outcome holds."""
_LOGGED_CHARACTERS = 300
"""Characters of an id or a reason that the outcome holds."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a micro-batch, as the batch log has it; its fields are keys of the JSON there."""

    batch: int
    """number of the batch, from 0"""
    version: int
    """version of the subscriptions"""
    subscriptions: int
    """number of subscriptions in that version"""
    messages: int
    """number of messages, including rejects"""
    deliveries: int
    """number of deliveries, including those of joins"""
    rejects: int
    """messages that are malformed, over a limit, or too late for joins"""
    seconds: float
    """time from the first message read to the last delivery written"""
    finished: str
    """ISO 8601 time of the last delivery, in UTC"""
    matches: list[int] = field(default_factory=list)
    """messages by number of matches: none, 1, 2–3, 4–7, …"""
    reasons: dict[str, int] = field(default_factory=dict)
    """rejects by reason"""
    slow: dict[str, float] = field(default_factory=dict)
    """seconds spent on subscriptions that are evaluated one by one"""
    kept: int | None = None
    """rows in the join state before the batch; None without joins, or where Spark does not report it"""
    left_out: dict[str, str] = field(default_factory=dict)
    """subscriptions that are excluded from matching, each with the reason"""
    joined: int = 0
    """deliveries of joins, which `deliveries` includes"""
    matched: int = 0
    """number of subscriptions with at least one delivery"""
    by_subscription: dict[str, int] = field(default_factory=dict)
    """deliveries by subscription, for those with the most"""
    by_subscriber: dict[str, int] = field(default_factory=dict)
    """deliveries by subscriber, for those with the most; the key "" is for no subscriber"""
    rejected: list[list[str]] = field(default_factory=list)
    """pairs of id and reason, for some of the rejects"""
    failures: int = 0
    """pairs of a message and a subscription whose evaluation failed"""
    failed: dict[str, int] = field(default_factory=dict)
    """failures by subscription and reason"""

    def as_record(self) -> dict[str, Any]:
        """Return the outcome as a JSON object."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Outcome:
        """Return the outcome in a JSON object; keys of other versions are ignored."""
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in record.items() if name in known})


@dataclass(frozen=True, slots=True)
class JoinOutput:
    """The rows that joins add to a micro-batch."""

    deliveries: DataFrame
    """the columns of messages, `subscription`, `body`, `messages`, and FAILURE, null for a result"""
    late: DataFrame
    """messages older than the watermark, with `body` and LATENESS"""


MatchFunction = Callable[[DataFrame, IndexSnapshot], AbstractContextManager[DataFrame]]
"""Matches messages with a snapshot. Until the context ends, the rows can be read; they have the columns of
`match_snapshot` with `profile`."""


@contextmanager
def match_with_broker(messages: DataFrame, snapshot: IndexSnapshot) -> Iterator[DataFrame]:
    """Match messages with a broker on each worker, which holds all subscriptions."""
    yield match_snapshot(messages, snapshot, profile=True)


@dataclass(frozen=True, slots=True)
class BatchProcessor:
    """Matches micro-batches and writes them to the two sinks."""

    deliveries: Sink
    rejects: Sink
    shape: Shape = "pairs"
    match: MatchFunction = match_with_broker
    body: bool = False
    """whether deliveries of filters have the message itself as their body"""
    subscribers: SubscriberColumn = field(default_factory=SubscriberColumn)
    matched: MatchedSubscriptions = field(default_factory=MatchedSubscriptions)

    def process(
        self,
        messages: DataFrame,
        snapshot: IndexSnapshot,
        subscriptions: int,
        batch: int,
        joined: JoinOutput | None = None,
    ) -> Outcome:
        """Write the deliveries and rejects of a batch, and return its outcome.

        It is idempotent in a sink that is exactly once: the same batch and snapshot give the same rows.
        """
        started = perf_counter()
        if joined is not None:
            joined = replace(
                joined, deliveries=joined.deliveries.withColumn("version", F.lit(snapshot.version))
            )
        if self.body:
            messages = add_text(messages)
        with self.match(messages, snapshot) as matched:
            counts, details = self._write(matched, snapshot.version, batch, joined)
        return Outcome(
            batch=batch,
            version=snapshot.version,
            subscriptions=subscriptions,
            messages=counts["messages"],
            deliveries=counts["deliveries"],
            rejects=counts["rejects"],
            seconds=perf_counter() - started,
            finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
            matches=[counts[f"bin{i}"] for i in range(_BINS)],
            joined=counts.get("joined", 0),
            failures=counts["failures"],
            **details,
        )

    def _write(
        self, matched: DataFrame, version: int, batch: int, joined: JoinOutput | None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        """Write deliveries and rejects; return the counts, and the further fields of the outcome."""
        # Both sinks read it, and it can be large: a third of 500,000 subscriptions may match one message.
        matched = matched.withColumn("version", F.lit(version)).persist(StorageLevel.DISK_ONLY)
        try:
            counts = self._deliver(matched, batch, *((joined,) if joined is not None else ()))
            rejects = _select_rejects(matched)
            if joined is not None and counts["late"]:  # all other subscriptions got them
                rejects = rejects.unionByName(_select_late(joined.late, version))
            reasons = _count_reasons(rejects, counts["rejects"]) if counts["rejects"] else {}
            failed: dict[str, int] = {}
            if counts["failures"]:
                failures = _select_failures(matched, joined)
                by_query = F.concat_ws(": ", "subscription", "reason")
                failed = _count_reasons(failures, counts["failures"], by_query)
                rejects = rejects.unionByName(failures)
            if counts["rejects"] or counts["failures"]:
                _log.info("batch %s: rejects %s, failures of queries %s", batch, reasons, failed)
                self.rejects.write(rejects, batch)
            details = {
                "reasons": reasons,
                "failed": failed,
                "rejected": _sample_rejects(rejects) if counts["rejects"] else [],
                "slow": _sum_costs(matched) if counts["costs"] else {},
                **self._count_deliveries(matched, joined, counts["deliveries"]),
            }
        finally:
            matched.unpersist()
        return counts, details

    def _count_deliveries(
        self, matched: DataFrame, joined: JoinOutput | None, deliveries: int
    ) -> dict[str, Any]:
        """Count the deliveries of a batch by subscription and subscriber."""
        if not deliveries:
            return {}
        counts = count_by_subscription(matched, joined.deliveries if joined is not None else None)
        self.matched.add(counts)
        return {
            "matched": len(counts),
            "by_subscription": most_frequent(counts, MOST_SUBSCRIPTIONS),
            "by_subscriber": most_frequent(self.subscribers.count(counts), MOST_SUBSCRIBERS),
        }

    def _deliver(self, matched: DataFrame, batch: int, joined: JoinOutput | None = None) -> dict[str, int]:
        """Write the deliveries, and count messages, deliveries, rejects and failures on the way."""
        counts = _counts() if joined is None else [*_counts(), F.count(LATENESS).alias("late")]
        counter = _RowCounter(matched, counts, self.deliveries.may_skip)
        accepted = counter.rows.filter("error is null").drop("error", "undecided", "costs")
        if joined is None:
            rows = (
                self._complete(to_pairs(accepted)) if self.shape == "pairs" else _select_delivered(accepted)
            )
            self.deliveries.write(rows, batch)
            return counter.result()
        single = to_pairs(accepted.drop(LATENESS)).withColumn("messages", F.lit(None).cast("array<string>"))
        join_counts = [
            F.count_if(F.col(FAILURE).isNull()).alias("deliveries"),
            F.count(FAILURE).alias("failures"),
        ]
        join_counter = _RowCounter(joined.deliveries, join_counts, self.deliveries.may_skip)
        results = join_counter.rows.filter(F.col(FAILURE).isNull()).drop(FAILURE)
        rows = self._complete(single.unionByName(results, allowMissingColumns=True))
        self.deliveries.write(rows, batch)
        total = counter.result()
        of_joins = join_counter.result()
        total["joined"] = of_joins["deliveries"]
        total["deliveries"] += of_joins["deliveries"]
        total["failures"] += of_joins["failures"]
        total["rejects"] += total["late"]
        return total

    def _complete(self, deliveries: DataFrame) -> DataFrame:
        """Add the subscriber, and where it is configured the message itself."""
        return self.subscribers.add_to(fill_bodies(deliveries) if self.body else deliveries)


class _RowCounter:
    """Counts rows while they are written; with a query of its own if the sink may skip the write."""

    def __init__(self, rows: DataFrame, counts: list[Column], separate: bool) -> None:
        self._aggregate = rows.agg(*counts) if separate else None
        self._observation = Observation()
        self.rows = rows if separate else rows.observe(self._observation, *counts)

    def result(self) -> dict[str, int]:
        """Return the counts, after the rows were written."""
        found = self._observation.get if self._aggregate is None else self._aggregate.collect()[0].asDict()
        return {name: int(count or 0) for name, count in found.items()}


def _counts() -> list[Column]:
    size = F.size("subscriptions")
    accepted = F.col("error").isNull()
    # the position of the highest bit: 0 for none, 1 for 1, 2 for 2–3, …
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


def _select_delivered(messages: DataFrame) -> DataFrame:
    """Select messages with at least one match; with `bodies` in any case, so that all batches have the same
    columns."""
    if "bodies" not in messages.columns:
        messages = messages.withColumn("bodies", F.lit(None).cast(BODIES))
    if TEXT in messages.columns:
        messages = messages.withColumnRenamed(TEXT, "message")
    return messages.filter(F.size("subscriptions") > 0)


def _select_rejects(matched: DataFrame) -> DataFrame:
    """Select the messages that are malformed or over a limit; `subscription` is null, since all miss them."""
    subscription = F.lit(None).cast("string").alias("subscription")
    return matched.filter("error is not null").select(*_message_columns(matched), "error.*", subscription)


def _message_columns(matched: DataFrame) -> list[Column]:
    """Return the columns of the message, without those that matching added."""
    return [column(name) for name in matched.columns if name not in (*RESULT_COLUMNS, LATENESS, TEXT)]


def _select_failures(matched: DataFrame, joined: JoinOutput | None) -> DataFrame:
    """Select failures of single subscriptions, as rejects; without a body, since the message is accepted."""
    columns = _message_columns(matched)
    failures = matched.select(*columns, F.explode("undecided").alias("failure")).select(
        *columns, F.concat_ws(": ", "failure.kind", "failure.reason").alias("reason"), "failure.subscription"
    )
    if joined is not None:
        failed = joined.deliveries.filter(F.col(FAILURE).isNotNull()).drop("body", "messages")
        failures = failures.unionByName(failed.withColumnRenamed(FAILURE, "reason"))
    absent = {"line": "int", "column": "int", "body": "binary"}
    return failures.withColumns({name: F.lit(None).cast(kind) for name, kind in absent.items()})


def _select_late(messages: DataFrame, version: int) -> DataFrame:
    """Select messages that are too late for joins, as rejects."""
    no_position = F.lit(None).cast("int")
    return messages.withColumns(
        {
            "version": F.lit(version),
            "reason": F.col(LATENESS),
            "line": no_position,
            "column": no_position,
            "body": F.col("body").cast("binary"),
            "subscription": F.lit(None).cast("string"),
        }
    ).drop(LATENESS)


def _count_reasons(rejects: DataFrame, count: int, reason: Column | None = None) -> dict[str, int]:
    """Count rejects by reason, the most frequent first."""
    reasons = rejects.select((F.col("reason") if reason is None else reason).alias("reason"))
    if count <= _COLLECT_LIMIT:  # not worth a shuffle
        return dict(Counter(row["reason"] for row in reasons.collect()).most_common(_LOGGED_ROWS))
    rows = reasons.groupBy("reason").count().orderBy(F.desc("count")).limit(_LOGGED_ROWS).collect()
    return {row["reason"]: row["count"] for row in rows}


def _sample_rejects(rejects: DataFrame) -> list[list[str]]:
    """Return the id and the reason of some rejects."""
    rows = rejects.select("message_id", "reason").limit(_LOGGED_ROWS).collect()
    return sorted([str(value)[:_LOGGED_CHARACTERS] for value in row] for row in rows)


def _sum_costs(matched: DataFrame) -> dict[str, float]:
    """Add up the seconds by subscription, for the slowest."""
    total: Counter[str] = Counter()
    for row in matched.filter(F.size("costs") > 0).select("costs").collect():  # one row an Arrow batch
        for cost in row["costs"]:
            total[cost["subscription"]] += cost["seconds"]
    return dict(total.most_common(_LOGGED_ROWS))
