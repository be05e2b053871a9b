"""The streaming plan of a pipeline with joins, and what joins emit for a batch.

    sources ── ExtractWitnesses ──┬─► messages of the batch ──────────────────────────────► BatchProcessor
                    ▲             └─► message log ──► EmitJoins, bucket by bucket ──► deliveries ──┘
                    └─────────────── feedback for the next batch ◄──┘

A batch is two jobs of Spark: the extraction, and, after the driver has described what that wrote to the
message log, the join with all that is written to the sinks. The streaming query itself has no state. The
watermark is made of the event times of earlier batches, which the log has too, so a batch that runs again
finds the same messages late.

A bucket of the state stays in the memory of a Python worker. Two things take its task to that worker again: a
cached row for each bucket, because Spark prefers the executor that has a task's input in its cache; and an
environment variable, because Spark has a pool of workers, here of one, for each environment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType, TimestampType

from sapwood.config_file import ConfigError
from sapwood.join.state.event_time import TimePath
from sapwood.join.state.portable_state import EquatedVariables
from sapwood.spark.dataframe_match import PROBLEM
from sapwood.spark.distribution.checkpoint_transport import CheckpointTransport
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.io.source import Sources, align_columns, schema_before_body
from sapwood.spark.joins.feedback import FeedbackFolder, ReadFeedback
from sapwood.spark.joins.join_emitter import EmitJoins
from sapwood.spark.joins.schema import (
    STATE_FORMAT,
    SUMMARY,
    ExtractionSummary,
    batch_schema,
    delivery_schema,
    spark_schema,
)
from sapwood.spark.joins.segment_catalog import Segment, SegmentCatalog
from sapwood.spark.joins.witness_extraction import BatchPlan, ExtractWitnesses
from sapwood.spark.pipeline.batch_log import CheckpointError
from sapwood.spark.pipeline.config import JoinConfig
from sapwood.spark.pipeline.endpoint_config import SourceConfig
from sapwood.spark.pipeline.toml_lines import find_source_line
from sapwood.spark.worker_stage import WorkerStage

_log = logging.getLogger(__name__)
_MOST_BUCKETS = 8
"""buckets unless the pipeline file has another number: each of them joins all messages"""
_BUCKET_VARIABLE = "SAPWOOD_BUCKET"


def state_settings() -> dict[str, Any]:
    """What the state of a checkpoint depends on."""
    return {"format": STATE_FORMAT}


def check_state(recorded: Mapping[str, Any], checkpoint: str) -> None:
    """Raise an error if the state of a checkpoint cannot be read."""
    found = recorded.get("format", 1)
    if found != STATE_FORMAT:
        raise CheckpointError(
            f"{checkpoint} has the state of joins in format {found}, and this version of Sapwood reads format"
            f" {STATE_FORMAT}. Either keep using the version that wrote it, or set run.checkpoint to a new"
            " folder, and deliveries.path and rejects.path too: the sources are then read from the beginning,"
            " and the state is built again from the messages that they still have; earlier ones are lost to"
            " joins"
        )


class _MergedSizes(AccumulatorParam[dict[int, tuple[int, int]]]):
    """Messages and values by bucket."""

    def zero(self, value: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        return {}

    def addInPlace(
        self, value1: dict[int, tuple[int, int]], value2: dict[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        return value1 | value2


@dataclass(slots=True)
class JoinStream:
    """The streaming plan of a pipeline with joins."""

    sources: Sources
    settings: JoinConfig
    transport: CheckpointTransport
    """takes the plans of batches to the workers"""
    log: SegmentCatalog
    feedback: FeedbackFolder
    body: bool = False
    """whether a query without a template delivers the message itself"""
    run: str = field(default_factory=lambda: uuid4().hex)
    """the name of this run: workers have nothing in memory that an earlier one has left"""
    _columns: StructType = field(default_factory=StructType)
    _text: bool = False
    _sizes: Accumulator[dict[int, tuple[int, int]]] | None = None
    _buckets: int = 0
    _cached: set[int] = field(default_factory=set)
    """the buckets whose row is cached"""
    _watermark: float = -inf
    """that of the last batch, in milliseconds, behind which nothing is needed any more"""

    def open(self, spark: SparkSession) -> DataFrame:
        """Open the stream; each of its batches is to be passed to `join_batch`."""
        self._sizes = spark.sparkContext.accumulator({}, _MergedSizes())
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
        self.log.reload()
        self.log.check_columns({field.name: field.dataType.simpleString() for field in self._columns})
        self._text = isinstance(frames[0].schema["body"].dataType, StringType)
        body = pa.string() if self._text else pa.binary()
        schema = spark_schema(batch_schema(self._types, body), self._columns)
        rows = [self._extract(number, frame, schema) for number, frame in enumerate(frames)]
        reader = ReadFeedback(
            self.transport.folder, self.log.messages, self._published_columns(), self._types, self._text
        )
        rows.append(self.feedback.open(spark, reader, schema))
        return reduce(DataFrame.union, rows)

    def _published_columns(self) -> tuple[str | None, ...]:
        """The columns that messages published by queries have a value for; None for the others."""
        known = {"message_id"}
        if any(source.config.stream is not None for source in self.sources.each):
            known.add("stream")
        stamps = {field.name for field in self._columns if field.dataType == TimestampType()}
        known |= stamps & {"published_at"}
        return tuple([name if name in known else None for name in self._columns.names])

    def _extract(self, number: int, messages: DataFrame, schema: StructType) -> DataFrame:
        given = self.sources.each[number].config
        extract = ExtractWitnesses(
            self.transport.folder,
            self.log.messages,
            number,
            given.stream or "",
            given.time,
            self._types,
            self._text,
        )
        # mapInArrow takes a name with a dot for a path, so it gets numbers
        numbered = messages.toDF(*(f"_{number}" for number in range(len(messages.columns))))
        return numbered.mapInArrow(extract, schema)

    # -- a batch ---------------------------------------------------------------------------------------

    @contextmanager
    def join_batch(
        self, batch: DataFrame, snapshot: IndexSnapshot, number: int
    ) -> Iterator[tuple[DataFrame, list[WorkerStage]]]:
        """Yield the messages of a batch and, as rows of stages, what joins emit for them."""
        watermark = self.log.begin(number, self.settings)
        self.transport.put(number, BatchPlan(snapshot, watermark))
        start = self.log.end
        batch = batch.persist(StorageLevel.DISK_ONLY)  # its summaries are needed before it is delivered
        try:
            summaries = _collect_summaries(batch)
            segment = self.log.commit(number, watermark, len(self.sources.each), summaries)
            floors = [summary.floor for summary in summaries if summary.floor is not None]
            self._watermark = min([-inf if watermark is None else watermark, *floors])
            emitted = self._emit(batch.sparkSession, snapshot, segment, start, number)
            yield batch.filter(F.col(SUMMARY).isNull()).drop(SUMMARY), emitted
        finally:
            batch.unpersist()

    def _emit(
        self, spark: SparkSession, snapshot: IndexSnapshot, segment: Segment, start: int, number: int
    ) -> list[WorkerStage]:
        """The deliveries and failures of joins, of each bucket in a worker of its own."""
        columns = to_arrow_schema(self._columns, timezone="UTC")
        schema = spark_schema(delivery_schema(columns), self._columns)
        feedback = self.feedback.begin(number)
        if segment.end == start:
            return []
        buckets = self.count_buckets(spark)
        stages = []
        for bucket in range(buckets):
            emit = EmitJoins(
                snapshot,
                self.run,
                bucket,
                buckets,
                self.log.files,
                start,
                self._watermark / 1000,
                feedback,
                columns,
                self.body,
                self._sizes,
            )
            anchor = spark.range(bucket, bucket + 1, numPartitions=1)
            if bucket not in self._cached:
                self._cached.add(bucket)
                anchor.persist()  # the same row of later batches is then cached, too
            stages.append(WorkerStage(anchor, schema, (emit,), ((_BUCKET_VARIABLE, str(bucket)),)))
        return stages

    def count_buckets(self, spark: SparkSession) -> int:
        """The number of buckets that the state is in, in all batches of a run: if executors come and go, it
        would change with the cores, and the state be built anew."""
        if not self._buckets:
            self._buckets = self.settings.buckets or min(spark.sparkContext.defaultParallelism, _MOST_BUCKETS)
        return self._buckets

    def vacuum(self, equated: Mapping[bytes, EquatedVariables]) -> None:
        """After a batch was committed: remove from the message log what no query needs any more, whose
        variables are given."""
        self.log.vacuum(self._watermark, equated)

    @property
    def bucket_sizes(self) -> dict[int, tuple[int, int]]:
        """The number of messages and of values in each bucket after its last batch, of this run."""
        return self._sizes.value if self._sizes is not None else {}

    @property
    def _types(self) -> list[pa.DataType]:
        return list(to_arrow_schema(self._columns, timezone="UTC").types)


def _collect_summaries(batch: DataFrame) -> list[ExtractionSummary]:
    """Run the extraction, and return the summaries of its tasks."""
    rows = batch.filter(F.col(SUMMARY).isNotNull()).select(SUMMARY).collect()
    return [ExtractionSummary.from_bytes(bytes(row[0])) for row in rows]


# -- settings ----------------------------------------------------------------------------------------------


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
