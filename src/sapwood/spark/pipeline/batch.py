"""A micro-batch: its messages are matched with one version of the subscriptions and written to the sinks.

                          ┌──────────── in one pass, in the workers ────────────┐
    messages ─► WorkerStage: read ─► match ─► deliveries and rejects ─► files ──┐
                                                 └─► rows, persisted ─► Spark's writers, for other sinks
                                                 └─► a summary for each task ─► Outcome, for the batch log

With files as sinks, a batch is one job of Spark. Other sinks take a job each, and one for the summaries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import reduce
from time import perf_counter
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, LongType, StructField, StructType

from sapwood.spark.dataframe_match import RESULT_COLUMNS, Shape, match_stage
from sapwood.spark.deliveries.batch_summary import BatchSummary, merge_summaries
from sapwood.spark.deliveries.delivery_rows import (
    LATE_BODY,
    LATENESS,
    DeliverySchema,
    count_by_subscriber,
    keep_late_bodies,
)
from sapwood.spark.deliveries.delivery_stage import (
    DELIVERY,
    REJECT,
    SUMMARY,
    DeliverJoins,
    DeliverMatches,
    DeliveryTargets,
)
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.io.message_text import TEXT, add_text
from sapwood.spark.io.sinks import Sink
from sapwood.spark.monitoring.delivery_counts import (
    MOST_SUBSCRIBERS,
    MOST_SUBSCRIPTIONS,
    MatchedSubscriptions,
    most_frequent,
)
from sapwood.spark.worker_stage import WorkerStage

_LOGGED_ROWS = 20
"""Reasons, rejects and slow subscriptions of a batch that its outcome holds."""
_LOGGED_CHARACTERS = 300
"""Characters of an id or a reason that the outcome holds."""
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
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
    """values in the join state after the batch; None without joins"""
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


MatchFunction = Callable[[WorkerStage, IndexSnapshot], AbstractContextManager[WorkerStage]]
"""Matches messages with a snapshot. Until the context ends, the rows can be read; they have the columns of
`match_stage` with `profile`, and subscriptions are numbers or ids."""


@contextmanager
def match_with_broker(messages: WorkerStage, snapshot: IndexSnapshot) -> Iterator[WorkerStage]:
    """Match messages with a broker on each worker, which holds all subscriptions."""
    yield match_stage(messages, snapshot, profile=True, numbered=True)


@dataclass(frozen=True, slots=True)
class BatchProcessor:
    """Matches micro-batches and writes them to the two sinks."""

    deliveries: Sink
    rejects: Sink
    shape: Shape = "pairs"
    match: MatchFunction = match_with_broker
    body: bool = False
    """whether deliveries of filters have the message itself as their body"""
    matched: MatchedSubscriptions = field(default_factory=MatchedSubscriptions)

    def process(
        self,
        messages: WorkerStage,
        snapshot: IndexSnapshot,
        subscriptions: int,
        batch: int,
        joined: Sequence[WorkerStage] | None = None,
        subscribers: Mapping[str, str] = _NO_NAMES,
    ) -> Outcome:
        """Write the deliveries and rejects of a batch, and return its outcome.

        It is idempotent in a sink that is exactly once: the same batch and snapshot give the same rows.
        `joined` are stages whose rows are what joins emit; then messages have the column LATENESS.
        `subscribers` has the names of subscribers by subscription, for the counts of the outcome.
        """
        started = perf_counter()
        if self.body:
            messages = add_text(messages)
        if joined is not None:
            late = StructField(LATE_BODY, BinaryType())
            messages = messages.then(keep_late_bodies, StructType([*messages.schema.fields, late]))
        with self.match(messages, snapshot) as matched:
            targets = self._targets(matched.schema, snapshot, batch, joined is not None)
            summary = self._write(_deliver(matched, targets, joined or ()), targets, batch)
        self.matched.add(summary.by_subscription)
        return Outcome(
            batch=batch,
            version=snapshot.version,
            subscriptions=subscriptions,
            messages=summary.messages,
            deliveries=summary.deliveries,
            rejects=summary.rejects,
            seconds=perf_counter() - started,
            finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
            matches=summary.matches,
            reasons=dict(summary.reasons.most_common(_LOGGED_ROWS)),
            slow=dict(summary.costs.most_common(_LOGGED_ROWS)),
            joined=summary.joined,
            matched=len(summary.by_subscription),
            by_subscription=most_frequent(summary.by_subscription, MOST_SUBSCRIPTIONS),
            by_subscriber=most_frequent(
                count_by_subscriber(summary.by_subscription, subscribers), MOST_SUBSCRIBERS
            ),
            rejected=sorted([text[:_LOGGED_CHARACTERS] for text in pair] for pair in summary.rejected),
            failures=summary.failures,
            failed=dict(summary.failed.most_common(_LOGGED_ROWS)),
        )

    def _targets(
        self, matched: StructType, snapshot: IndexSnapshot, batch: int, joins: bool
    ) -> DeliveryTargets:
        """Return the columns of the batch's rows, and the folders that workers write them to."""
        added = (*RESULT_COLUMNS, LATENESS, LATE_BODY, TEXT)
        own = StructType([field for field in matched.fields if field.name not in added])
        text = TEXT if self.body else None
        schema = DeliverySchema(to_arrow_schema(own, timezone="UTC"), self.shape, text, joins)
        return DeliveryTargets(
            schema,
            snapshot,
            self.deliveries.folder(batch, schema.deliveries),
            self.rejects.folder(batch, schema.rejects),
        )

    def _write(self, output: DataFrame, targets: DeliveryTargets, batch: int) -> BatchSummary:
        """Run the stage, write what workers have not written, and return the summary of all tasks."""
        by_spark = targets.deliveries is None or targets.rejects is None
        for folder in (targets.deliveries, targets.rejects):
            if folder is not None:
                folder.clear()
        if by_spark:  # each sink reads it, and the driver; it can be large: many subscriptions may match
            output = output.persist(StorageLevel.DISK_ONLY)
        try:
            rows = output.filter(F.col(SUMMARY).isNotNull()).select(SUMMARY) if by_spark else output
            summary = merge_summaries(bytes(row[0]) for row in rows.collect())
            refused = self._deliver(output, targets, summary, batch)
            if summary.rejects or summary.failures:
                _log.info("batch %s: %s rejects, %s failures", batch, summary.rejects, summary.failures)
                self._reject(output, targets, summary, batch, refused)
        finally:
            if by_spark:
                output.unpersist()
        return summary

    def _deliver(
        self, output: DataFrame, targets: DeliveryTargets, summary: BatchSummary, batch: int
    ) -> pa.Table | None:
        """Make the deliveries visible that workers have written, or have Spark write them. Return rejects for
        those that the sink refuses."""
        if targets.deliveries is not None:
            targets.deliveries.commit(_list_files(summary, DELIVERY), targets.schema.deliveries)
            return None
        refused = self.deliveries.write(_select(output, DELIVERY), batch)
        return targets.reject_refused(refused.toArrow(), summary) if refused is not None else None

    def _reject(
        self,
        output: DataFrame,
        targets: DeliveryTargets,
        summary: BatchSummary,
        batch: int,
        refused: pa.Table | None,
    ) -> None:
        """Make the rejects visible that workers have written, or have Spark write them; add the refused."""
        if targets.rejects is not None:
            names = _list_files(summary, REJECT)
            if refused is not None:
                names.append(targets.rejects.write(refused))
            targets.rejects.commit(names, targets.schema.rejects)
            return
        rejects = _select(output, REJECT)
        if refused is not None:
            more = output.sparkSession.createDataFrame(refused, rejects.schema)
            rejects = rejects.unionByName(more)
        self.rejects.write(rejects, batch)


def _deliver(matched: WorkerStage, targets: DeliveryTargets, joined: Sequence[WorkerStage]) -> DataFrame:
    """Add deliveries and rejects to a stage of matched messages, and to what joins emit."""
    schema = targets.spark_schema
    numbered = matched.schema["subscriptions"].dataType == ArrayType(LongType(), containsNull=False)
    stages = [matched.then(DeliverMatches(targets, numbered), schema)]
    stages += [stage.then(DeliverJoins(targets), schema) for stage in joined]
    return reduce(DataFrame.union, [stage.to_frame() for stage in stages])


def _select(output: DataFrame, name: str) -> DataFrame:
    return output.filter(F.col(name).isNotNull()).select(f"{name}.*")


def _list_files(summary: BatchSummary, name: str) -> list[str]:
    prefix = f"{name}/"
    return [file.removeprefix(prefix) for file in summary.files if file.startswith(prefix)]
