"""Messages from anywhere, as the DataFrame that `match` takes, batch or streaming."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from sapwood.engine import Limits
from sapwood.spark.dataframe_match import IS_PROBLEM, PROBLEM
from sapwood.spark.io.file_reader import (
    ENDINGS,
    MESSAGES,
    PARCEL,
    RANGES,
    FindRecords,
    ReadFiles,
    ReadRecords,
)
from sapwood.spark.io.sinks import FILE_FORMATS
from sapwood.spark.io.unread_files import EMPTY, UnreadFile, find_unread_in_table, is_hidden

_FILES = "*{" + ",".join(ENDINGS) + "}"
_FILE = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_ANY_AGE = f"{2**63 - 1}ms"
"""For `maxFileAge`: by default Spark drops files that are a week older than the newest, in silence."""
_KAFKA_ID = "concat_ws('/', topic, partition, offset)"


def read_messages(
    spark: SparkSession,
    path: str,
    *,
    record: str | None = None,
    streaming: bool = False,
    partitions: int | None = None,
    limits: Limits | None = None,
) -> DataFrame:
    """The messages in files: `message_id`, `body`, `published_at`, when the file was changed, and `problem`.

    `path` is a file, or a folder with `*.xml` (a message each) and `*.xmll` (a message a line) anywhere in
    it; names may end in `.gz`. With `record`, every such element of the files is a message. `message_id` is
    the file's path below the folder, and for lines and records `@` and the offset at which they start.
    Names that start with `_` or `.` are passed over, as everywhere on Spark. `problem` is null, or says why a
    file could not be read; `match` makes an error of it. An empty file is such a problem, too (one of lines
    has no messages); in a stream Spark passes over it, and only a pipeline reports it.
    """
    files = list_files(spark, path, record=record, streaming=streaming)
    messages = read_files(files, path, record=record, partitions=partitions, limits=limits)
    if not streaming:
        unread = find_unread_in_table(files)[0]
        messages = messages.union(list_unread(spark, unread, path, record=record)) if unread else messages
    return messages.select(*(_published(name) for name in messages.columns))


def _published(name: str) -> Column:
    """A column as people see it: `match` knows the problem by its metadata, whatever it is called."""
    return F.col(name).alias("problem", metadata=IS_PROBLEM) if name == PROBLEM else F.col(name)


def list_files(
    spark: SparkSession,
    path: str,
    *,
    record: str | None = None,
    streaming: bool = False,
    options: dict[str, Any] | None = None,
) -> DataFrame:
    """The files themselves, not their content: what Spark keeps track of in a stream."""
    reader: Any = spark.readStream if streaming else spark.read
    reader = reader.format("binaryFile").option("recursiveFileLookup", "true").options(**(options or {}))
    # whatever the session says: a file that is listed is read, or it is a problem
    reader = reader.options(maxFileAge=_ANY_AGE, ignoreMissingFiles="false", ignoreCorruptFiles="false")
    is_folder = _is_folder(spark, path)
    if is_hidden(path.rstrip("/").rpartition("/")[2]) and not is_folder:
        raise ValueError(f"{path}: Spark does not read a file whose name begins with _ or .; rename it")
    if record is None or is_folder:
        reader = reader.option("pathGlobFilter", _FILES)
    files: DataFrame = reader.schema(_FILE).load(_literal(spark, path))
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
    """The messages in listed files; `path` is what was listed. Of each, `keep` are further columns: SQL
    expressions of `message_id`, `path`, `offset`, `body` and `published_at`."""
    spark = files.sparkSession
    tasks = partitions or 2 * spark.sparkContext.defaultParallelism
    largest = (limits or Limits()).bytes
    messages = from_arrow_schema(MESSAGES)
    if record is not None:
        found = _spread(files, tasks).mapInArrow(FindRecords(record, PARCEL), from_arrow_schema(RANGES))
        read = found.repartition(tasks).mapInArrow(ReadRecords(largest, PARCEL), messages)
    else:
        read = _spread(_ranges(files), tasks).mapInArrow(ReadFiles(largest, PARCEL), messages)
    return _identified(read, path, record, keep)


def list_unread(
    spark: SparkSession,
    files: Iterable[UnreadFile],
    path: str,
    *,
    record: str | None = None,
    keep: tuple[str, ...] = (),
) -> DataFrame:
    """A message, or what stands for it, of each file that Spark does not read, with the reason."""
    rows = [
        (file.path, 0, None, file.published_at, file.problem)
        for file in files
        if not (file.problem == EMPTY and record is None and _is_lines(file.path))  # which has no messages
    ]
    return _identified(spark.createDataFrame(rows, from_arrow_schema(MESSAGES)), path, record, keep)


def _is_lines(path: str) -> bool:
    return path.removesuffix(".gz").endswith(".xmll")


def _identified(read: DataFrame, path: str, record: str | None, keep: tuple[str, ...]) -> DataFrame:
    """What was read of files, with ids for columns of paths and offsets."""
    spark = read.sparkSession
    below = F.regexp_replace("path", "^" + _quoted(qualify_path(spark, path)) + "/?", "")
    name = F.when(below == "", F.regexp_extract("path", "[^/]*$", 0)).otherwise(below)
    one_each = F.lit(record is None) & ~F.col("path").rlike(r"\.xmll(\.gz)?$")
    message_id = F.when(one_each, name).otherwise(F.concat(name, F.lit("@"), F.col("offset")))
    named = read.withColumn("message_id", message_id)
    kept = (F.expr(column) for column in keep)
    return named.select("message_id", "body", "published_at", *kept, F.col("problem").alias(PROBLEM))


def _spread(rows: DataFrame, tasks: int) -> DataFrame:
    """A few small rows, evenly over the tasks: dealt out by one, since several would begin at the same."""
    return rows.coalesce(1).repartition(tasks)


def _ranges(files: DataFrame) -> DataFrame:
    """Lines can be read from anywhere, so long files of lines are split; others are not."""
    whole = F.array(F.lit(0).cast("long"))
    split = F.sequence(F.lit(0).cast("long"), F.greatest("length", F.lit(1)) - 1, F.lit(PARCEL).cast("long"))
    starts = F.when(F.col("path").endswith(".xmll"), split).otherwise(whole)
    start = files.withColumn("start", F.explode(starts))
    return start.withColumn("end", F.least(F.col("start") + PARCEL, "length"))


def qualify_path(spark: SparkSession, path: str) -> str:
    """The path as Spark will call it."""
    hadoop: Any = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    files = hadoop.getFileSystem(spark._jsc.hadoopConfiguration())
    return str(files.makeQualified(hadoop).toString())


def _is_folder(spark: SparkSession, path: str) -> bool:
    hadoop: Any = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    files = hadoop.getFileSystem(spark._jsc.hadoopConfiguration())
    return bool(files.isDirectory(hadoop))


def _literal(spark: SparkSession, path: str) -> str:
    """The path, for Spark, which takes `[` and the like for patterns even if there is such a file."""
    hadoop: Any = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    files = hadoop.getFileSystem(spark._jsc.hadoopConfiguration())
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", path) if files.exists(hadoop) else path


def _quoted(text: str) -> str:
    """The text, for a regular expression of Java's."""
    return "\\Q" + text.replace("\\E", "\\E\\\\E\\Q") + "\\E"


def select_messages(
    rows: DataFrame,
    *,
    body: str,
    id: str | None,
    published_at: str | None = None,
    keep: tuple[str, ...] = (),
    format: str | None = None,
) -> DataFrame:
    """Messages from rows that have them in a column; all but `keep` are columns or SQL expressions."""
    columns = [
        F.expr(id or _KAFKA_ID).cast("string").alias("message_id"),
        F.expr("value" if format == "kafka" and body == "body" else body).alias("body"),
    ]
    if published_at is not None:
        columns.append(F.expr(published_at).alias("published_at"))
    elif format == "kafka":
        columns.append(F.col("timestamp").alias("published_at"))
    return rows.select(*columns, *(F.expr(column) for column in keep))


def open_format(
    spark: SparkSession,
    format: str,
    path: str | None,
    options: dict[str, Any],
    schema: str | None = None,
    streaming: bool = False,
) -> DataFrame:
    """Rows in any format that Spark reads; a stream of files has the schema that its files have now."""
    location = (path,) if path is not None else ()
    if streaming and schema is None and path is not None and format != "delta":
        known: Any = spark.read.format(format).options(**options).load(*location).schema
    else:
        known = schema
    reader: Any = spark.readStream if streaming else spark.read
    if streaming and format in FILE_FORMATS:
        reader = reader.option("maxFileAge", _ANY_AGE)
    reader = reader.format(format).options(**options)  # which override that, in any spelling
    if known is not None:
        reader = reader.schema(known)
    frame: DataFrame = reader.load(*location)
    return frame
