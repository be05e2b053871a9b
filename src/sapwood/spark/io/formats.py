"""Formats of sources: XML files, and any other format of Spark, as the DataFrame that `match` takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from sapwood.engine import Limits
from sapwood.errors import SapwoodError
from sapwood.spark.dataframe_match import IS_PROBLEM, PROBLEM
from sapwood.spark.io.file_ranges import EMPTY, ListedFile
from sapwood.spark.io.file_reader import (
    CHUNK_BYTES,
    ENDINGS,
    MESSAGES,
    RANGES,
    FindRecords,
    ReadFiles,
    ReadRecords,
    is_lines,
)
from sapwood.spark.io.file_system import escape_glob, is_folder, qualify_path
from sapwood.spark.io.s3_settings import share_s3_settings
from sapwood.spark.io.sinks import FILE_FORMATS
from sapwood.spark.io.unread_files import find_unread, is_hidden, list_table_files

_FILE_PATTERN = "*{" + ",".join(ENDINGS) + "}"
_FILE_SCHEMA = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_ANY_AGE = f"{2**63 - 1}ms"
"""For `maxFileAge`: by default Spark silently ignores files that are a week older than the newest."""


class SourceError(SapwoodError, ValueError):
    """Raised when Spark would silently read nothing from a source."""


def read_messages(
    spark: SparkSession,
    path: str,
    *,
    record: str | None = None,
    streaming: bool = False,
    partitions: int | None = None,
    limits: Limits | None = None,
) -> DataFrame:
    """Return the messages in files: `message_id`, `body`, `published_at` (the file's last change), `problem`.

    `path` is a file, or a folder with `*.xml` (a message each) and `*.xmll` (a message a line) anywhere in
    it; names may end in `.gz`. With `record`, every such element of the files is a message. `message_id` is
    the file's path below the folder, and for lines and records `@` and the offset at which they start.
    Names that start with `_` or `.` are skipped, as everywhere on Spark. `problem` is null, or the reason why
    a file could not be read, which `match` turns into an error. An empty file is such a problem, too (one of
    lines has no messages); in a stream Spark skips it, and only a pipeline reports it.
    """
    files = list_files(spark, path, record=record, streaming=streaming)
    messages = read_files(files, path, record=record, partitions=partitions, limits=limits)
    if not streaming:
        unread = find_unread(list_table_files(files))[0]
        messages = messages.union(list_unread(spark, unread, path, record=record)) if unread else messages
    return messages.select(*(_rename_problem(name) for name in messages.columns))


def _rename_problem(name: str) -> Column:
    """Return a column under its public name; `match` knows the problem by its metadata."""
    return F.col(name).alias("problem", metadata=IS_PROBLEM) if name == PROBLEM else F.col(name)


def list_files(
    spark: SparkSession,
    path: str,
    *,
    record: str | None = None,
    streaming: bool = False,
    options: dict[str, Any] | None = None,
) -> DataFrame:
    """List the files of a source, without their content; in a stream, Spark tracks which of them are new."""
    share_s3_settings(spark, path)
    reader: Any = spark.readStream if streaming else spark.read
    reader = reader.format("binaryFile").option("recursiveFileLookup", "true").options(**(options or {}))
    # whatever the session is configured for: a file that is listed is read, or it is a problem
    reader = reader.options(maxFileAge=_ANY_AGE, ignoreMissingFiles="false", ignoreCorruptFiles="false")
    whole_folder = is_folder(spark, path)
    if is_hidden(path.rstrip("/").rpartition("/")[2]) and not whole_folder:
        raise SourceError(f"{path}: Spark does not read a file whose name begins with _ or .; rename it")
    if record is None or whole_folder:
        reader = reader.option("pathGlobFilter", _FILE_PATTERN)
    files: DataFrame = reader.schema(_FILE_SCHEMA).load(escape_glob(spark, path))
    return files.select("path", "length", F.col("modificationTime").alias("published_at"))


def read_files(
    files: DataFrame,
    path: str,
    *,
    record: str | None = None,
    partitions: int | None = None,
    limits: Limits | None = None,
    keep: tuple[str, ...] = (),
) -> DataFrame:
    """Read the messages in listed files; `path` is what was listed. `keep` are further columns: SQL
    expressions of `message_id`, `path`, `offset`, `body` and `published_at`."""
    spark = files.sparkSession
    tasks = partitions or 2 * spark.sparkContext.defaultParallelism
    largest = (limits or Limits()).bytes
    messages = from_arrow_schema(MESSAGES)
    if record is not None:
        found = _distribute(files, tasks).mapInArrow(
            FindRecords(record, CHUNK_BYTES), from_arrow_schema(RANGES)
        )
        read = found.repartition(tasks).mapInArrow(ReadRecords(largest, CHUNK_BYTES), messages)
    else:
        read = _distribute(_split_files(files), tasks).mapInArrow(ReadFiles(largest, CHUNK_BYTES), messages)
    return _add_ids(read, path, record, keep)


def list_unread(
    spark: SparkSession,
    files: Iterable[ListedFile],
    path: str,
    *,
    record: str | None = None,
    keep: tuple[str, ...] = (),
) -> DataFrame:
    """Return a message without a body, and with the problem, for each file that Spark does not read."""
    rows = [
        (file.path, 0, None, file.published_at, file.problem)
        for file in files
        if not (file.problem == EMPTY and record is None and is_lines(file.path))  # which has no messages
    ]
    return _add_ids(spark.createDataFrame(rows, from_arrow_schema(MESSAGES)), path, record, keep)


def _add_ids(read: DataFrame, path: str, record: str | None, keep: tuple[str, ...]) -> DataFrame:
    """Replace paths and offsets by the ids of messages."""
    spark = read.sparkSession
    below = F.regexp_replace("path", "^" + _quote_java(qualify_path(spark, path)) + "/?", "")
    name = F.when(below == "", F.regexp_extract("path", "[^/]*$", 0)).otherwise(below)
    one_each = F.lit(record is None) & ~F.col("path").rlike(r"\.xmll(\.gz)?$")
    message_id = F.when(one_each, name).otherwise(F.concat(name, F.lit("@"), F.col("offset")))
    named = read.withColumn("message_id", message_id)
    kept = (F.expr(column) for column in keep)
    return named.select("message_id", "body", "published_at", *kept, F.col("problem").alias(PROBLEM))


def _distribute(rows: DataFrame, tasks: int) -> DataFrame:
    """Distribute a few small rows evenly over the tasks.

    A single partition deals them out round-robin; several partitions would all begin with the same task."""
    return rows.coalesce(1).repartition(tasks)


def _split_files(files: DataFrame) -> DataFrame:
    """Split long files of lines into byte ranges; other files are one range."""
    whole = F.array(F.lit(0).cast("long"))
    split = F.sequence(
        F.lit(0).cast("long"), F.greatest("length", F.lit(1)) - 1, F.lit(CHUNK_BYTES).cast("long")
    )
    starts = F.when(F.col("path").endswith(".xmll"), split).otherwise(whole)
    start = files.withColumn("start", F.explode(starts))
    return start.withColumn("end", F.least(F.col("start") + CHUNK_BYTES, "length"))


def _quote_java(text: str) -> str:
    """Quote a text for a regular expression of Java."""
    return "\\Q" + text.replace("\\E", "\\E\\\\E\\Q") + "\\E"


def select_messages(
    rows: DataFrame,
    *,
    body: str,
    id: str,
    published_at: str | None = None,
    keep: tuple[str, ...] = (),
) -> DataFrame:
    """Select messages from rows: `id`, `body`, `published_at` and `keep` are columns or SQL expressions."""
    columns = [F.expr(id).cast("string").alias("message_id"), F.expr(body).alias("body")]
    if published_at is not None:
        columns.append(F.expr(published_at).alias("published_at"))
    return rows.select(*columns, *(F.expr(column) for column in keep))


def open_format(
    spark: SparkSession,
    format: str,
    path: str | None,
    options: dict[str, Any],
    schema: str | None = None,
    streaming: bool = False,
) -> DataFrame:
    """Open a format that Spark reads; a stream of files gets the schema that its files have now."""
    location = (path,) if path is not None else ()
    if streaming and schema is None and path is not None:
        known: Any = spark.read.format(format).options(**options).load(*location).schema
    else:
        known = schema
    reader: Any = spark.readStream if streaming else spark.read
    if streaming and format in FILE_FORMATS:
        reader = reader.option("maxFileAge", _ANY_AGE)
    reader = reader.format(format).options(**options)  # these override that, in any spelling
    if known is not None:
        reader = reader.schema(known)
    frame: DataFrame = reader.load(*location)
    return frame
