"""The files of a micro-batch as byte ranges, which the driver deals out to tasks without a job of Spark.

Spark has listed the files of a batch when it plans it. The driver takes them from the plan, splits long files
of lines, and gives each task ranges of about the same number of bytes. So a small batch is one task, and no
row passes through a shuffle before it is read:

    plan ─► ListedFile ─► FileRange ─► spark.range(tasks) ─► ReadRanges, in the workers ─► messages
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from sapwood.engine import Limits
from sapwood.spark.dataframe_match import PROBLEM
from sapwood.spark.io.file_reader import CHUNK_BYTES, FileRange, ReadFiles, group_rows, is_lines
from sapwood.spark.io.file_system import qualify_path
from sapwood.spark.worker_stage import WorkerStage

_SEPARATOR = "\0"
"""a character that no path contains"""
_EPOCH = datetime.fromtimestamp(0, UTC)
_STATUS = re.compile(
    r"(?:\w+\{)+path=(?P<path>.*); isDirectory=\w+; length=(?P<length>\d+); "
    r".*?modification_time=(?P<time>-?\d+)",
    re.DOTALL,
)
"""Hadoop's text of a file's status"""
_BYTES_PER_TASK = 32 << 10
"""Bytes that are worth a task of their own."""
_SMALLEST_RANGE = 256 << 10
"""Bytes of a file of lines that are worth a range of their own."""

_FILE_INDEXES = frozenset({"InMemoryFileIndex", "MetadataLogFileIndex"})
"""Spark's lists of the files in folders."""

EMPTY = "the file is empty"
GONE = "the file is gone: it was there when its batch was planned"

NAMED_MESSAGES = pa.schema(
    [
        ("message_id", pa.string()),
        ("body", pa.binary()),
        ("published_at", pa.timestamp("us", tz="UTC")),
        (PROBLEM, pa.string()),
    ]
)
"""the columns of messages in files"""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a batch as Spark has listed it."""

    path: str
    length: int
    published_at: datetime | None
    """the time of its last change; None for a file that is gone"""
    problem: str | None = None
    """the reason why it is not read: it is empty, or gone"""


def list_leaf_files(leaf: Any) -> list[ListedFile] | None:
    """Return the files of a leaf of a logical plan; None if it does not read files."""
    if leaf.getClass().getSimpleName() != "LogicalRelation":
        return None  # another kind of source, or one without rows in this batch
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    if relation.location().getClass().getSimpleName() not in _FILE_INDEXES:
        return None  # the files of a table with a log of its own, such as Delta's
    files = _read_statuses(relation.location().allFiles())
    if leaf.isStreaming():  # then the root paths of the index are the files of the batch
        planned = str(relation.location().rootPaths().mkString(_SEPARATOR))
        gone = set(planned.split(_SEPARATOR)) - {file.path for file in files}
        files += [ListedFile(path, 0, None, GONE) for path in sorted(gone - {""})]
    return files


def _read_statuses(statuses: Any) -> list[ListedFile]:
    """Return the files that Spark has listed. A call of the JVM for every file would take longer than reading
    it, so there is one for all of them, unless a file system describes its files in a form of its own."""
    texts = str(statuses.mkString(_SEPARATOR))
    found = [_STATUS.match(text) for text in texts.split(_SEPARATOR)] if texts else []
    if None not in found:
        parts = [(each["path"], int(each["length"]), int(each["time"])) for each in found if each]
    else:
        each_status = [statuses.apply(i) for i in range(statuses.size())]
        parts = [
            (str(status.getPath().toString()), int(status.getLen()), int(status.getModificationTime()))
            for status in each_status
        ]
    return [
        ListedFile(path, length, _EPOCH + timedelta(milliseconds=time), None if length else EMPTY)
        for path, length, time in parts
    ]


def read_listed_files(
    spark: SparkSession,
    files: Sequence[ListedFile],
    path: str,
    *,
    partitions: int | None = None,
    limits: Limits | None = None,
    stream: str | None = None,
) -> WorkerStage:
    """Return a stage that reads the messages of listed files; `path` is what was listed. Messages have a
    column `stream` if they have a stream."""
    most = partitions or 2 * spark.sparkContext.defaultParallelism
    ranges = _split_files(files, most)
    tasks = _balance(ranges, most)
    read = ReadRanges(tasks, qualify_path(spark, path), (limits or Limits()).bytes, stream)
    numbers = spark.range(0, max(1, len(tasks)), 1, max(1, len(tasks)))
    return WorkerStage.of(numbers).then(read, from_arrow_schema(read.schema))


def _split_files(files: Iterable[ListedFile], tasks: int) -> list[FileRange]:
    """Split long files of lines into byte ranges; other files are one range."""
    listed = [file for file in files if not (file.problem == EMPTY and is_lines(file.path))]
    total = sum(file.length for file in listed)
    length = max(_SMALLEST_RANGE, min(CHUNK_BYTES, -(-total // tasks)))
    ranges = []
    for file in listed:
        whole = file.problem is not None or not file.path.endswith(".xmll")
        for start in (0,) if whole else range(0, file.length, length):
            end = file.length if whole else min(start + length, file.length)
            ranges.append(FileRange(file.path, start, end, file.published_at, file.problem))
    return ranges


def _balance(ranges: Sequence[FileRange], most: int) -> tuple[tuple[FileRange, ...], ...]:
    """Deal ranges out to at most so many tasks, of about the same number of bytes each."""
    total = sum(each.end - each.start for each in ranges)
    count = min(most, len(ranges), 1 + total // _BYTES_PER_TASK)
    loads = [(0, number) for number in range(count)]
    tasks: list[list[FileRange]] = [[] for _ in range(count)]
    for each in sorted(ranges, key=lambda each: each.start - each.end):
        load, number = heapq.heappop(loads)
        tasks[number].append(each)
        heapq.heappush(loads, (load + each.end - each.start, number))
    return tuple(map(tuple, tasks))


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """A function of a worker stage: reads the messages in the ranges of its task, and names them."""

    tasks: tuple[tuple[FileRange, ...], ...]
    folder: str
    """the qualified path of the source, below which files have their names"""
    max_bytes: int
    stream: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of messages."""
        named = NAMED_MESSAGES
        return named if self.stream is None else named.append(pa.field("stream", pa.string()))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            """The rows are numbers of tasks, which Spark knows anyway."""
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        ranges = self.tasks[number] if number < len(self.tasks) else ()
        for read in group_rows(ReadFiles(self.max_bytes).read_ranges(ranges)):
            names = map(self._name, read.column("path").to_pylist(), read.column("offset").to_pylist())
            arrays = [pa.array(names, pa.string()), *(read.column(i) for i in (2, 3, 4))]
            if self.stream is not None:
                arrays.append(pa.array([self.stream] * read.num_rows, pa.string()))
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _name(self, path: str, offset: int) -> str:
        """Return the id of a message: its file's path below the folder, and for lines the offset."""
        below = path.removeprefix(self.folder).removeprefix("/") if path.startswith(self.folder) else path
        name = below or path.rpartition("/")[2]
        return f"{name}@{offset}" if is_lines(path) else name
