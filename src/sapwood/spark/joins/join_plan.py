"""A stream whose messages are joined: its plan, and what comes of a batch.

    sources ── Read ──► rows ── Strings ──► pairs of names ── Bodies ──► messages and pairs ──► foreachBatch
                         ▲         │ values                      │ messages                          │
                         │         └───── kept from batch to batch, with the checkpoint ─────┘       │
                         └───────────────────── what goes on to the next batch ──────────────────────┘

Of several sources, each has a watermark of its own, and the whole stream has that of the slowest, or of the
fastest. Which messages are too late is decided by the watermark that Spark has written down for the batch, so
a batch that is served again comes to the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType, TimestampType

from sapwood.errors import SapwoodError
from sapwood.join.state.event_time import TimePath
from sapwood.spark.dataframe_match import PROBLEM
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.io.source import Sources, alike, schema_before_body
from sapwood.spark.joins.feedback import FEEDBACK, FeedbackFolder
from sapwood.spark.joins.join_emitter import EmitJoins, RestoreMessages
from sapwood.spark.joins.join_state import LATE, OUT, PAIR, PARTS, MessageStateProcessor, ValueStateProcessor
from sapwood.spark.joins.witness_extraction import CHAIN, PLAIN, ROWS, TAKEN, ExtractWitnesses
from sapwood.spark.pipeline.batch import FAILURE, LATENESS, Joined
from sapwood.spark.pipeline.config import ConfigError, JoinConfig, SourceConfig

_CONFIG = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # a batch of nothing only drops what is of no use; the next one with messages does so, too
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
_GOING = "_onward"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


class MissingLibrary(SapwoodError):
    """Something that joins on Spark need is not installed; says what to do."""


def check_protobuf() -> None:
    """MissingLibrary unless Spark's stateful operators can run; Spark itself would say so obscurely."""
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


@dataclass(slots=True)
class JoinStream:
    """The plan of a pipeline that joins messages."""

    sources: Sources
    settings: JoinConfig
    posted: str
    """where snapshots are"""
    onward: FeedbackFolder
    body: bool = False
    """whether a query over one block, which makes nothing of its own, gets the message itself"""
    _columns: StructType = field(default_factory=StructType)
    _text: bool = False

    def open(self, spark: SparkSession) -> DataFrame:
        """The stream of which each batch is to be given to `serving`."""
        _quieten(spark)
        frames = []
        for source in self.sources.each:
            messages = source.timed(source.messages(source.open(spark, streaming=True)))
            if PROBLEM not in messages.columns:
                messages = messages.withColumn(PROBLEM, F.lit(None).cast("string"))
            frames.append(messages)
        frames = alike(frames)
        self._columns = schema_before_body(frames[0])
        if "messages" in self._columns.names:
            raise ConfigError("source.keep: the deliveries of joins have a column 'messages'; rename yours")
        self._text = isinstance(frames[0].schema["body"].dataType, StringType)
        rows = [self._rows(number, frame) for number, frame in enumerate(frames)]
        # which has no event time, so the watermark does not wait for it
        known = self._known_of_published()
        rows.append(self.onward.open(spark, self.posted, known, self.settings.buckets))
        return self._kept(reduce(DataFrame.union, rows))

    def _known_of_published(self) -> tuple[str | None, ...]:
        """The columns of messages that those which queries publish have a value for; None for others."""
        known = {"message_id"}
        if any(source.settings.stream is not None for source in self.sources.each):
            known.add("stream")
        stamps = {field.name for field in self._columns if field.dataType == TimestampType()}
        known |= stamps & {"published_at"}
        return tuple([name if name in known else None for name in self._columns.names])

    def _rows(self, number: int, messages: DataFrame) -> DataFrame:
        given = self.sources.each[number].settings
        read = ExtractWitnesses(self.posted, given.stream or "", given.time, self.settings.buckets)
        # mapInArrow takes a name with a dot for a path, so it gets numbers
        numbered = messages.toDF(*(f"_{place}" for place in range(len(messages.columns))))
        lateness = round(self.settings.lateness_seconds * 1000)
        return numbered.mapInArrow(read, ROWS).withWatermark("et", f"{lateness} milliseconds")

    def _kept(self, rows: DataFrame) -> DataFrame:
        buckets = self.settings.buckets
        parts = rows.groupBy("bucket").transformWithStateInPandas(
            ValueStateProcessor(buckets), PARTS, "Append", "EventTime", eventTimeColumnName="et"
        )
        return parts.groupBy("bucket").transformWithStateInPandas(
            MessageStateProcessor(buckets), OUT, "Append", "EventTime"
        )

    @contextmanager
    def serving(
        self, batch: DataFrame, snapshot: IndexSnapshot, number: int
    ) -> Iterator[tuple[DataFrame, Joined]]:
        """The messages of a batch, and what joins make of them. Once that is delivered, what goes on to the
        next batch is put away."""
        batch = batch.persist(StorageLevel.DISK_ONLY)  # or everything that is written runs the plan again
        met = self._met(batch, snapshot).persist(StorageLevel.DISK_ONLY)  # it is written, and counted
        messages = self._messages(batch)
        try:
            delivered = met.filter(F.col(_GOING).isNull()).drop(_GOING)
            late = messages.filter(F.col(LATENESS).isNotNull()).drop(PROBLEM)
            yield messages, Joined(delivered, late)
            going = met.filter(F.col(_GOING).isNotNull()).select(f"{_GOING}.*")
            if snapshot.going_on and not going.isEmpty():
                self.onward.write(going, number)
            else:
                self.onward.remove(number)
        finally:
            met.unpersist()
            batch.unpersist()

    def _messages(self, batch: DataFrame) -> DataFrame:
        """All messages, those that joins have nothing to do with, too."""
        body = StructField("body", StringType() if self._text else BinaryType())
        texts = [StructField(name, StringType()) for name in (PROBLEM, LATENESS)]
        whole = batch.filter(F.col("kind").isin(PLAIN, TAKEN, LATE))
        restored = StructType([*self._columns.fields, body, *texts])
        return whole.mapInArrow(RestoreMessages(self._types, self._text), restored)

    def _met(self, batch: DataFrame, snapshot: IndexSnapshot) -> DataFrame:
        """The deliveries of joins, and what goes on."""
        made = [
            StructField("subscription", StringType()),
            StructField("body", StringType()),
            StructField("messages", ArrayType(StringType())),
            StructField(FAILURE, StringType()),
            StructField(_GOING, from_arrow_type(FEEDBACK)),
        ]
        together = batch.filter(F.col("kind").isin(TAKEN, CHAIN, LATE, PAIR)).repartition("name")
        return together.sortWithinPartitions("name").mapInArrow(
            EmitJoins(snapshot, self._types, self.body), StructType([*self._columns.fields, *made])
        )

    @property
    def _types(self) -> list[pa.DataType]:
        return list(to_arrow_schema(self._columns, timezone="UTC").types)


def _quieten(spark: SparkSession) -> None:
    """Has this machine's Spark not log every value that was never seen before."""
    jvm: Any = spark._jvm
    package = "org.apache.spark.sql.execution.python.streaming"
    level = jvm.org.apache.logging.log4j.Level.ERROR
    name = f"{package}.TransformWithStateInPySparkStateServer"
    jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(name, level)


def check_times(sources: Sequence[SourceConfig], namespaces: Mapping[str, str]) -> None:
    """SettingsError for a path that is none."""
    for number, source in enumerate(sources, 1):
        if source.time is not None:
            try:
                TimePath(source.time, namespaces)
            except ValueError as error:
                where = "source.time" if len(sources) == 1 else f"source #{number}.time"
                raise ConfigError(f"{where}: {error}") from None


@contextmanager
def stateful_session(spark: SparkSession, settings: JoinConfig, own: Mapping[str, object]) -> Iterator[None]:
    """What a stateful stream wants of its session, while it is being started; `own` are people's settings,
    which come first."""
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
    """How many rows were kept when the last batch was done; None if that is not known."""
    progress = query.lastProgress if query is not None else None
    operators = progress["stateOperators"] if progress is not None else []
    return sum(operator["numRowsTotal"] for operator in operators) if operators else None
