"""The streaming plan of a pipeline with joins, and what joins emit for a batch.

    sources ── ExtractWitnesses ──► rows ──► ValueStateProcessor ──► MessageStateProcessor ──► foreachBatch
                                     ▲                 state in the checkpoint                     │
                                     └─────────────── feedback for the next batch ◄────────────────┘

Each of several sources has a watermark of its own, and the whole stream has that of the slowest, or of the
fastest. Which messages are late is decided by the watermark that Spark has written to its checkpoint for the
batch, so a batch that runs again has the same result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from sapwood.errors import SapwoodError
from sapwood.join.state.event_time import TimePath
from sapwood.spark.dataframe_match import MATCHES, PROBLEM
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.io.source import Sources, align_columns, schema_before_body
from sapwood.spark.joins.feedback import FeedbackFolder, ReadFeedback
from sapwood.spark.joins.join_emitter import EmitJoins, RestoreMessages
from sapwood.spark.joins.join_state import STATE_FORMAT, MessageStateProcessor, ValueStateProcessor
from sapwood.spark.joins.schema import (
    CANDIDATE_SCHEMA,
    CHAIN,
    DELIVERY_SCHEMA,
    FEEDBACK,
    JOIN_SCHEMA,
    JOINABLE,
    LATE,
    PAIR,
    PLAIN,
    WITNESS_SCHEMA,
    spark_schema,
)
from sapwood.spark.joins.witness_extraction import ExtractWitnesses
from sapwood.spark.pipeline.batch import LATENESS, JoinOutput
from sapwood.spark.pipeline.batch_log import CheckpointError
from sapwood.spark.pipeline.config import ConfigError, JoinConfig, SourceConfig
from sapwood.spark.pipeline.toml_lines import find_source_line

_log = logging.getLogger(__name__)
_CONFIG = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # a batch without messages would only evict state; the next one with messages does so, too
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


class MissingLibrary(SapwoodError):
    """Raised when a library that joins on Spark need is not installed; says what to do."""


def check_protobuf() -> None:
    """Raise MissingLibrary unless Spark's stateful operators can run; its own error is hard to understand."""
    try:
        from pyspark.sql.streaming.proto import StateMessage_pb2  # noqa: F401
    except ImportError as error:
        raise MissingLibrary(
            f"joins on Spark need protobuf ({error}): in a clone of Sapwood, pip install '.[spark]'"
        ) from None
    except Exception as error:  # one that is too old has an error of its own
        reason = str(error).splitlines()[0]
        raise MissingLibrary(
            f"joins on Spark need a newer protobuf ({reason}): "
            "in a clone of Sapwood, pip install -U '.[spark]'"
        ) from None


def state_settings(settings: JoinConfig) -> dict[str, Any]:
    """The settings that the state of a checkpoint depends on."""
    return {"format": STATE_FORMAT, "buckets": settings.buckets}


def check_state(recorded: Mapping[str, Any], settings: JoinConfig, checkpoint: str) -> None:
    """Raise an error if the state of a checkpoint cannot be read with these settings."""
    found = recorded.get("format", 1)
    if found != STATE_FORMAT:
        raise CheckpointError(
            f"{checkpoint} has the state of joins in format {found}, and this version of Sapwood reads format"
            f" {STATE_FORMAT}. Either keep using the version that wrote it, or set run.checkpoint to a new"
            " folder, and deliveries.path and rejects.path too: the sources are then read from the beginning,"
            " and the state is built again from the messages that they still have; earlier ones are lost to"
            " joins"
        )
    if recorded.get("buckets") != settings.buckets:
        raise ConfigError(
            f"joins.buckets: it began with {recorded.get('buckets')}, which cannot change; give it a new"
            " checkpoint, in which it begins anew"
        )


@dataclass(slots=True)
class JoinStream:
    """The streaming plan of a pipeline with joins."""

    sources: Sources
    settings: JoinConfig
    snapshots: str
    """the folder of the snapshots"""
    feedback: FeedbackFolder
    body: bool = False
    """whether a query without a template delivers the message itself"""
    _columns: StructType = field(default_factory=StructType)
    _text: bool = False

    def open(self, spark: SparkSession) -> DataFrame:
        """Open the stream; each of its batches is to be passed to `join_batch`."""
        _silence_state_server(spark)
        frames = []
        for source in self.sources.each:
            messages = source.add_time(source.messages(source.open(spark, streaming=True)))
            if PROBLEM not in messages.columns:
                messages = messages.withColumn(PROBLEM, F.lit(None).cast("string"))
            frames.append(messages)
        frames = align_columns(frames)
        self._columns = schema_before_body(frames[0])
        if "messages" in self._columns.names:
            raise ConfigError("source.keep: the deliveries of joins have a column 'messages'; rename yours")
        self._text = isinstance(frames[0].schema["body"].dataType, StringType)
        rows = [self._extract(number, frame) for number, frame in enumerate(frames)]
        reader = ReadFeedback(self.snapshots, self._published_columns(), self._types, self.settings.buckets)
        # which has no event time, so the watermark does not wait for it
        rows.append(self.feedback.open(spark, reader))
        return self._join_state(reduce(DataFrame.union, rows))

    def _published_columns(self) -> tuple[str | None, ...]:
        """The columns that messages published by queries have a value for; None for the others."""
        known = {"message_id"}
        if any(source.config.stream is not None for source in self.sources.each):
            known.add("stream")
        stamps = {field.name for field in self._columns if field.dataType == TimestampType()}
        known |= stamps & {"published_at"}
        return tuple([name if name in known else None for name in self._columns.names])

    def _extract(self, number: int, messages: DataFrame) -> DataFrame:
        given = self.sources.each[number].config
        extract = ExtractWitnesses(
            self.snapshots, given.stream or "", given.time, self._types, self.settings.buckets
        )
        # mapInArrow takes a name with a dot for a path, so it gets numbers
        numbered = messages.toDF(*(f"_{number}" for number in range(len(messages.columns))))
        lateness = round(self.settings.lateness_seconds * 1000)
        rows = numbered.mapInArrow(extract, spark_schema(WITNESS_SCHEMA))
        return rows.withWatermark("event_time", f"{lateness} milliseconds")

    def _join_state(self, rows: DataFrame) -> DataFrame:
        buckets = self.settings.buckets
        candidates = rows.groupBy("bucket").transformWithStateInPandas(
            ValueStateProcessor(buckets),
            spark_schema(CANDIDATE_SCHEMA),
            "Append",
            "EventTime",
            eventTimeColumnName="event_time",
        )
        return candidates.groupBy("bucket").transformWithStateInPandas(
            MessageStateProcessor(buckets), spark_schema(JOIN_SCHEMA), "Append", "EventTime"
        )

    @contextmanager
    def join_batch(
        self, batch: DataFrame, snapshot: IndexSnapshot, number: int
    ) -> Iterator[tuple[DataFrame, JoinOutput]]:
        """Yield the messages of a batch and what joins emit for them; then write the feedback."""
        batch = batch.persist(StorageLevel.DISK_ONLY)  # or everything that is written runs the plan again
        emitted = self._emit(batch, snapshot).persist(StorageLevel.DISK_ONLY)  # it is written, and counted
        messages = self._restore(batch)
        try:
            deliveries = emitted.filter(F.col(FEEDBACK).isNull()).drop(FEEDBACK)
            late = messages.filter(F.col(LATENESS).isNotNull()).drop(PROBLEM, MATCHES)
            yield messages, JoinOutput(deliveries, late)
            feedback = emitted.filter(F.col(FEEDBACK).isNotNull()).select(f"{FEEDBACK}.*")
            if snapshot.has_feedback and not feedback.isEmpty():
                self.feedback.write(feedback, number)
            else:
                self.feedback.remove(number)
        finally:
            emitted.unpersist()
            batch.unpersist()

    def _restore(self, batch: DataFrame) -> DataFrame:
        """All messages, also those that no join reads, with the filters and transformations they match."""
        body = StructField("body", StringType() if self._text else BinaryType())
        texts = [StructField(name, StringType()) for name in (PROBLEM, LATENESS)]
        restored = StructType([*self._columns.fields, body, *texts, StructField(MATCHES, BinaryType())])
        messages = batch.filter(F.col("kind").isin(PLAIN, JOINABLE, LATE))
        return messages.mapInArrow(RestoreMessages(self._types, self._text), restored)

    def _emit(self, batch: DataFrame, snapshot: IndexSnapshot) -> DataFrame:
        """The deliveries, failures and feedback of joins."""
        emitted = StructType([*self._columns.fields, *spark_schema(DELIVERY_SCHEMA).fields])
        rows = batch.filter(F.col("kind").isin(JOINABLE, CHAIN, LATE, PAIR))
        rows = rows.withColumn("matches", F.lit(b"")).repartition("name")  # which joins do not need
        return rows.sortWithinPartitions("name").mapInArrow(
            EmitJoins(snapshot, self._types, self.body), emitted
        )

    @property
    def _types(self) -> list[pa.DataType]:
        return list(to_arrow_schema(self._columns, timezone="UTC").types)


def _silence_state_server(spark: SparkSession) -> None:
    """Keep this machine's Spark from logging every key that is not in the state yet."""
    jvm: Any = spark._jvm
    package = "org.apache.spark.sql.execution.python.streaming"
    level = jvm.org.apache.logging.log4j.Level.ERROR
    name = f"{package}.TransformWithStateInPySparkStateServer"
    jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(name, level)


def check_times(
    sources: Sequence[SourceConfig], namespaces: Mapping[str, str], file: Path | None = None
) -> None:
    """Raise ConfigError for a `time` of a source that is not a path, with its line in the pipeline file."""
    for number, source in enumerate(sources, 1):
        if source.time is not None:
            try:
                TimePath(source.time, namespaces)
            except ValueError as error:
                where = "source.time" if len(sources) == 1 else f"source #{number}.time"
                raise ConfigError(f"{_format_place(file, number, 'time')}{where}: {error}") from None


def _format_place(file: Path | None, number: int, key: str) -> str:
    """Return file and line of a source's key, as a prefix of an error; empty without a file."""
    if file is None:
        return ""
    line = find_source_line(file.read_text("utf-8"), number, key)
    return f"{file}: " if line is None else f"{file}:{line}: "


@contextmanager
def stateful_session(spark: SparkSession, settings: JoinConfig, own: Mapping[str, object]) -> Iterator[None]:
    """Set what a stateful stream needs of its session while it is started. The pipeline's `own` settings take
    precedence."""
    policy = "min" if settings.wait_for == "slowest" else "max"
    wanted = {key: value for key, value in (_CONFIG | {_POLICY: policy}).items() if key not in own}
    former = {key: spark.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in former.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def count_state_rows(query: StreamingQuery | None) -> int | None:
    """The rows in the state after the last batch; None if that is not known."""
    progress = query.lastProgress if query is not None else None
    operators = progress["stateOperators"] if progress is not None else []
    if not operators:
        return None
    rows: int = sum(operator["numRowsTotal"] for operator in operators)
    removed = sum(operator["numRowsRemoved"] for operator in operators)
    _log.debug("state of joins: %d rows, %d evicted by the last batch", rows, removed)
    return rows
