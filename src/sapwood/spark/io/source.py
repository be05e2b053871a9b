"""The sources of a pipeline, and how what Spark reads from them becomes messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sapwood.engine import Limits
from sapwood.spark.dataframe_match import PROBLEM, column
from sapwood.spark.io.formats import (
    list_files,
    list_unread,
    open_format,
    read_files,
    select_messages,
)
from sapwood.spark.io.unread_files import EMPTY, UnreadFile
from sapwood.spark.pipeline.config import ConfigError, SourceConfig

TIME = "_time"
"""a column with the time of a message, if nothing in it says"""


@dataclass(frozen=True, slots=True)
class Source:
    """The stream or table that batches are cut from, and how a batch becomes messages."""

    settings: SourceConfig
    partitions: int | None
    limits: Limits

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        given = self.settings
        if given.format != "files":
            options = {key: str(value) for key, value in given.options.items()}
            if streaming and given.path is not None:
                options = _limits(given) | options
            return open_format(spark, given.format, given.path, options, given.schema_, streaming)
        assert given.path is not None
        limits = _limits(given) if streaming else {}
        return list_files(spark, given.path, record=given.record, streaming=streaming, options=limits)

    def messages(self, batch: DataFrame) -> DataFrame:
        given = self.settings
        if given.format == "files":
            assert given.path is not None
            messages = read_files(
                batch,
                given.path,
                record=given.record,
                partitions=self.partitions,
                limits=self.limits,
                keep=given.keep,
            )
        else:
            messages = select_messages(
                batch,
                body=given.body,
                id=given.id,
                published_at=given.published_at,
                keep=given.keep,
                format=given.format,
            )
            if self.partitions is not None:
                messages = messages.repartition(self.partitions)
        return messages.withColumn("stream", F.lit(given.stream)) if given.stream is not None else messages

    def unread(self, spark: SparkSession, files: Sequence[UnreadFile]) -> DataFrame:
        """What stands in the rejects for files of a batch that Spark does not read, as messages."""
        given = self.settings
        if given.format == "files":
            assert given.path is not None
            messages = list_unread(spark, files, given.path, record=given.record, keep=given.keep)
        else:  # of which an empty one has no rows
            rows = [(file.path, file.problem) for file in files if file.problem != EMPTY]
            messages = spark.createDataFrame(rows, f"message_id STRING, {PROBLEM} STRING")
        return messages.withColumn("stream", F.lit(given.stream)) if given.stream is not None else messages

    def timed(self, messages: DataFrame) -> DataFrame:
        """Messages with a time that is the same whenever they are read: when they were published, or else
        that of the batch, which Spark has on record."""
        if "published_at" in messages.columns:
            return messages.withColumn(TIME, F.col("published_at").try_cast("timestamp"))
        return messages.withColumn(TIME, F.current_timestamp())


def _limits(given: SourceConfig) -> dict[str, str]:
    """How much a batch of files takes, for Spark."""
    if given.bytes_per_batch is not None:
        return {"maxBytesPerTrigger": str(given.bytes_per_batch)}
    return {"maxFilesPerTrigger": str(given.files_per_batch)}


@dataclass(frozen=True, slots=True)
class Sources:
    """All sources of a pipeline. One is read batch by batch; of several, messages are read where they flow
    together."""

    each: tuple[Source, ...]

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        if len(self.each) == 1:
            return self.each[0].open(spark, streaming)
        opened = [source.messages(source.open(spark, streaming)) for source in self.each]
        return reduce(DataFrame.union, align_columns(opened))

    def with_unread(self, messages: DataFrame, unread: Sequence[Sequence[UnreadFile]]) -> DataFrame:
        """The messages of a batch, and for each source what stands for files that Spark does not read."""
        for source, files in zip(self.each, unread, strict=False):  # a stream may have one more: what goes on
            if files:
                extra = source.unread(messages.sparkSession, files)
                if PROBLEM not in messages.columns:
                    messages = messages.withColumn(PROBLEM, F.lit(None).cast("string"))
                messages = messages.unionByName(extra, allowMissingColumns=True)
        return messages

    def messages(self, batch: DataFrame) -> DataFrame:
        return self.each[0].messages(batch) if len(self.each) == 1 else batch


def align_columns(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Messages of several sources with the same columns: the body and the problem at the end, and null for
    what some do not have. SettingsError if a column is not of one type."""
    fields: dict[str, StructField] = {}
    for number, frame in enumerate(frames, 1):
        for field in frame.schema.fields:
            known = fields.setdefault(field.name, field)
            if known.dataType != field.dataType:
                raise ConfigError(
                    f"source #{number}: its column {field.name!r} is {field.dataType.simpleString()}, and"
                    f" {known.dataType.simpleString()} in a source before: cast one of them"
                )
    last = {"body": 1, PROBLEM: 2, TIME: 3}
    names = sorted(fields, key=lambda name: last.get(name, 0))  # which is stable
    return [frame.select(*(_filled(frame, fields[name]) for name in names)) for frame in frames]


def _filled(frame: DataFrame, field: StructField) -> Column:
    if field.name in frame.columns:
        return column(field.name)
    return F.lit(None).cast(field.dataType).alias(field.name)


def schema_before_body(frame: DataFrame) -> StructType:
    """The columns of a message but for its body and what comes after it. All may be null: messages that
    queries publish do not have what people keep of others."""
    fields = frame.schema.fields[: frame.columns.index("body")]
    return StructType([StructField(field.name, field.dataType) for field in fields])
