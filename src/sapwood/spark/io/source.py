"""The sources of a pipeline: what Spark reads from them, as messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sapwood.config_file import ConfigError
from sapwood.engine import Limits
from sapwood.spark.dataframe_match import PROBLEM, column
from sapwood.spark.io.delta_table import DELTA, open_delta, reads_changes
from sapwood.spark.io.file_ranges import EMPTY, ListedFile, read_listed_files
from sapwood.spark.io.formats import (
    list_files,
    list_unread,
    open_format,
    read_files,
    select_messages,
)
from sapwood.spark.io.unread_files import find_unread
from sapwood.spark.kafka.kafka_options import KAFKA
from sapwood.spark.kafka.kafka_source import open_records, select_records
from sapwood.spark.pipeline.endpoint_config import SourceConfig
from sapwood.spark.worker_stage import WorkerStage

TIME = "_time"
"""The column with the event time of messages that have none in their content."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source, which Spark opens as a stream or a table, and whose rows become messages."""

    config: SourceConfig
    partitions: int | None
    limits: Limits

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        """Open the source: rows of a format, or the list of files."""
        given = self.config
        if given.format != "files":
            options = given.option_texts()
            if given.format == KAFKA:
                expressions = (given.body, given.id or "", given.published_at or "", *given.keep)
                return open_records(spark, options, expressions, streaming)
            if streaming and (given.path is not None or given.table is not None):
                options = _rate_limits(given) | options
            if given.format == DELTA:
                return open_delta(spark, given.path, given.table, options, given.changes, streaming)
            return open_format(spark, given.format, given.path, options, given.schema_, streaming)
        assert given.path is not None
        limits = _rate_limits(given) if streaming else {}
        return list_files(spark, given.path, record=given.record, streaming=streaming, options=limits)

    def messages(self, batch: DataFrame) -> DataFrame:
        """Turn the rows of a batch into messages."""
        given = self.config
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
            messages = self._select(batch)
            if self.partitions is not None:
                messages = messages.repartition(self.partitions)
        return messages.withColumn("stream", F.lit(given.stream)) if given.stream is not None else messages

    def _select(self, rows: DataFrame) -> DataFrame:
        """Select messages from the rows of a format."""
        given = self.config
        if given.format == KAFKA:
            return select_records(
                rows,
                body="value" if given.body == "body" else given.body,
                id=given.id,
                published_at=given.published_at,
                keep=given.keep,
                tombstones=given.tombstones,
                max_bytes=self.limits.bytes,
            )
        assert given.id is not None
        published_at = given.published_at or _default_time(given)
        return select_messages(rows, body=given.body, id=given.id, published_at=published_at, keep=given.keep)

    @property
    def is_read_by_range(self) -> bool:
        """Whether workers read the messages of listed files without further columns, which Spark makes."""
        given = self.config
        return given.format == "files" and given.record is None and not given.keep

    def read_listed(self, spark: SparkSession, files: Sequence[ListedFile]) -> WorkerStage:
        """Return a stage that reads the messages of the files of a batch."""
        given = self.config
        assert given.path is not None
        return read_listed_files(
            spark, files, given.path, partitions=self.partitions, limits=self.limits, stream=given.stream
        )

    def unread(self, spark: SparkSession, files: Sequence[ListedFile]) -> DataFrame:
        """Return a message with a problem, which becomes a reject, for each file that Spark does not read."""
        given = self.config
        if given.format == "files":
            assert given.path is not None
            messages = list_unread(spark, files, given.path, record=given.record, keep=given.keep)
        else:  # an empty file of another format has no rows
            rows = [(file.path, file.problem) for file in files if file.problem != EMPTY]
            messages = spark.createDataFrame(rows, f"message_id STRING, {PROBLEM} STRING")
        return messages.withColumn("stream", F.lit(given.stream)) if given.stream is not None else messages

    def add_time(self, messages: DataFrame) -> DataFrame:
        """Add a time that is the same whenever the batch is repeated: that of publication, or else that of
        the batch, which is in Spark's checkpoint."""
        if "published_at" in messages.columns:
            return messages.withColumn(TIME, F.col("published_at").try_cast("timestamp"))
        return messages.withColumn(TIME, F.current_timestamp())


def _default_time(given: SourceConfig) -> str | None:
    """Return the column with the time at which messages were published, if the format has one."""
    return "_commit_timestamp" if given.format == DELTA and reads_changes(given.options) else None


def _rate_limits(given: SourceConfig) -> dict[str, str]:
    """Return the options of Spark that limit a batch of files."""
    if given.bytes_per_batch is not None:
        return {"maxBytesPerTrigger": str(int(given.bytes_per_batch))}
    return {"maxFilesPerTrigger": str(given.files_per_batch)}


@dataclass(frozen=True, slots=True)
class Sources:
    """All sources of a pipeline. A single one is read in the batch; several are read before their union."""

    each: tuple[Source, ...]

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        """Open all sources as one stream or table."""
        if len(self.each) == 1:
            return self.each[0].open(spark, streaming)
        opened = [source.messages(source.open(spark, streaming)) for source in self.each]
        return reduce(DataFrame.union, align_columns(opened))

    def add_unread(self, messages: DataFrame, unread: Sequence[Sequence[ListedFile]]) -> DataFrame:
        """Add to the messages of a batch, for each source, the files that Spark does not read."""
        for source, files in zip(self.each, unread, strict=False):  # feedback is one source more
            if files:
                extra = source.unread(messages.sparkSession, files)
                if PROBLEM not in messages.columns:
                    messages = messages.withColumn(PROBLEM, F.lit(None).cast("string"))
                messages = messages.unionByName(extra, allowMissingColumns=True)
        return messages

    def read(self, batch: DataFrame, listed: Sequence[Sequence[ListedFile] | None]) -> WorkerStage:
        """Return a stage with the messages of a batch; `listed` has the files of each source, if any."""
        if len(self.each) == 1 and self.each[0].is_read_by_range and listed and listed[0] is not None:
            return self.each[0].read_listed(batch.sparkSession, listed[0])
        return WorkerStage.of(self.add_unread(self.messages(batch), find_unread(listed)))

    def messages(self, batch: DataFrame) -> DataFrame:
        """Turn the rows of a batch into messages, unless `open` has."""
        return self.each[0].messages(batch) if len(self.each) == 1 else batch


def align_columns(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Give the messages of several sources the same columns: the body and the problem last, null where a
    source does not have a column. Raise ConfigError if a column has two types."""
    fields: dict[str, StructField] = {}
    for number, frame in enumerate(frames, 1):
        for field in frame.schema.fields:
            known = fields.setdefault(field.name, field)
            if known.dataType != field.dataType:
                raise ConfigError(
                    f"source #{number}: its column {field.name!r} is {field.dataType.simpleString()}, but"
                    f" {known.dataType.simpleString()} in an earlier source: cast one of them"
                )
    last = {"body": 1, PROBLEM: 2, TIME: 3}
    names = sorted(fields, key=lambda name: last.get(name, 0))  # sorting is stable
    return [frame.select(*(_select_or_null(frame, fields[name]) for name in names)) for frame in frames]


def _select_or_null(frame: DataFrame, field: StructField) -> Column:
    if field.name in frame.columns:
        return column(field.name)
    return F.lit(None).cast(field.dataType).alias(field.name)


def schema_before_body(frame: DataFrame) -> StructType:
    """Return the columns before the body. All are nullable: messages that queries publish do not have the
    columns that a source keeps."""
    fields = frame.schema.fields[: frame.columns.index("body")]
    return StructType([StructField(field.name, field.dataType) for field in fields])
