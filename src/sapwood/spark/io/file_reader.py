"""Reads messages from files, in Spark's Python workers.

Files are read where they are matched, by ranges of bytes, so that one huge file occupies all workers, and
none of them holds more than a chunk of it:

    `*.xml`     the file is a message
    `*.xmll`    each line is a message; a line belongs to the range in which it starts
    records     each such element is a message; one worker scans the file for their positions, all read them
"""

from __future__ import annotations

import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa

from sapwood.errors import RecordError
from sapwood.records import Context, Record, RecordScanner, message, ranges
from sapwood.spark.io.file_system import open_file

CHUNK_BYTES = 8 << 20
"""Bytes of messages that a worker holds at a time, unless one message has more."""
MESSAGES_PER_BATCH = 1_000
ENDINGS = (".xml", ".xmll", ".xml.gz", ".xmll.gz")
"""The file names in a folder that are read."""

UNREADABLE = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
)
"""Errors that a retry does not mend: they become a problem of the file. Any other error fails the task, which
Spark retries."""

Row = tuple[str, int, bytes | None, Any, str | None]
"""path, offset, body, time of the last change, problem"""


def is_lines(path: str) -> bool:
    """Return whether a file has a message in each line."""
    return path.removesuffix(".gz").endswith(".xmll")


def open_unpacked(path: str) -> BinaryIO:
    """Open a file for reading; one whose name ends in `.gz` is decompressed."""
    file = open_file(path)
    return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if path.endswith(".gz") else file


@dataclass(frozen=True, slots=True)
class _MessageReader(ABC):
    """Maps Arrow batches of byte ranges to Arrow batches of messages, with the schema MESSAGES."""

    max_bytes: int
    """a longer message is truncated to one byte more, for which the matcher rejects it"""
    chunk: int = CHUNK_BYTES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from group_rows(chain.from_iterable(map(self._rows, batches)), self.chunk)

    @abstractmethod
    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Read the messages in the ranges of a batch."""


class FileRange(NamedTuple):
    """A range of bytes in a file."""

    path: str
    start: int
    end: int
    published_at: datetime | None
    """the time of the file's last change"""
    problem: str | None = None
    """the reason why the file is not read, if any"""


@dataclass(frozen=True, slots=True)
class ReadFiles(_MessageReader):
    """Reads files and ranges of lines: rows of path, start, end and published_at."""

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        names = ("path", "start", "end", "published_at")
        return self.read_ranges(FileRange(*(row[name] for name in names)) for row in batch.to_pylist())

    def read_ranges(self, ranges: Iterable[FileRange]) -> Iterator[Row]:
        """Yield the messages in ranges of files, and the problems of files."""
        for path, start, end, published_at, problem in ranges:
            if problem is not None:
                yield path, 0, None, published_at, problem
                continue
            read = self._read_lines if is_lines(path) else self._read_whole
            yield from catch_unreadable(path, published_at, start, read, start, end)

    def _read_whole(self, path: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        with open_unpacked(path) as file:
            yield 0, file.read(self.max_bytes + 1)

    def _read_lines(self, path: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read the lines that start in the range; all lines of a compressed file."""
        with open_unpacked(path) as file:
            offset = start
            if start:
                file.seek(start - 1)
                offset = start - 1 + self._skip_line(file)
            while path.endswith(".gz") or offset < end:
                line = file.readline(self.max_bytes + 1)
                if not line:
                    return
                length = len(line)
                if length > self.max_bytes and not line.endswith(b"\n"):
                    length += self._skip_line(file)
                stripped = line.rstrip(b"\r\n")
                if stripped.strip():
                    yield offset, stripped
                offset += length

    def _skip_line(self, file: BinaryIO) -> int:
        """Read to the end of the line, and return the number of bytes."""
        length = 0
        while part := file.readline(self.chunk):
            length += len(part)
            if part.endswith(b"\n"):
                break
        return length


@dataclass(frozen=True, slots=True)
class FindRecords:
    """Scans files, rows of path and published_at, for ranges of records, with the schema RANGES."""

    element: str
    chunk: int = CHUNK_BYTES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from self._scan(row["path"], row["published_at"])

    def _scan(self, path: str, published_at: Any) -> Iterator[pa.RecordBatch]:
        problem = None
        position = 0

        def records() -> Iterator[Record]:
            nonlocal problem, position
            try:
                with open_unpacked(path) as file:
                    for record in RecordScanner(self.element, file):
                        position = record.end
                        yield record
            except RecordError as error:
                problem, position = str(error), error.offset if error.offset is not None else position
            except UNREADABLE as error:
                problem = f"the file cannot be read: {error}"

        # a compressed file can only be read from its beginning, so it is a single range
        limits = (1 << 62, 1 << 62) if path.endswith(".gz") else (self.chunk, 10_000)
        for found in ranges(records(), *limits):
            context = found.context
            reason = None if found.complete else "the file ends within this record"
            namespaces = [part for pair in context.namespaces for part in pair]
            bounds = found.starts.tolist(), found.ends.tolist()
            yield _range_row(path, published_at, context.prolog, context.element, namespaces, *bounds, reason)
        if problem is not None:
            yield _range_row(path, published_at, b"", b"", [], [], [position], problem)


RANGES = pa.schema(
    [
        ("path", pa.string()),
        ("published_at", pa.timestamp("us", tz="UTC")),
        ("prolog", pa.binary()),
        ("element", pa.binary()),
        ("namespaces", pa.list_(pa.binary())),
        ("starts", pa.list_(pa.int64())),
        ("ends", pa.list_(pa.int64())),
        ("problem", pa.string()),
    ]
)
"""Ranges of records. Without starts, the row is a problem of the file, at the position in `ends`."""
MESSAGES = pa.schema(
    [
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("body", pa.binary()),
        ("published_at", pa.timestamp("us", tz="UTC")),
        ("problem", pa.string()),
    ]
)
"""Messages, and problems of files, which have no body."""


def _range_row(*values: Any) -> pa.RecordBatch:
    arrays = [pa.array([value], field.type) for value, field in zip(values, RANGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RANGES)


@dataclass(frozen=True, slots=True)
class ReadRecords(_MessageReader):
    """Reads the ranges of records that FindRecords has found."""

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        for row in batch.to_pylist():
            path, published_at, starts, ends = (
                row[name] for name in ("path", "published_at", "starts", "ends")
            )
            if not starts:  # the file could not be scanned beyond this position
                yield path, ends[0], None, published_at, row["problem"]
                continue
            names = row["namespaces"]
            context = Context(row["prolog"], row["element"], tuple(zip(names[::2], names[1::2], strict=True)))
            rows = catch_unreadable(path, published_at, starts[0], self._read, context, starts, ends)
            for number, read in enumerate(rows, 1):
                incomplete = row["problem"] if number == len(starts) else None
                yield (*read[:4], incomplete or read[4])

    def _read(
        self, path: str, context: Context, starts: list[int], ends: list[int]
    ) -> Iterator[tuple[int, bytes]]:
        with open_unpacked(path) as file:
            for start, end in zip(starts, ends, strict=True):
                file.seek(start)
                body = file.read(min(end - start, self.max_bytes + 1))
                yield start, message(context, body) if len(body) == end - start else body


def catch_unreadable(
    path: str,
    published_at: Any,
    start: int,
    read: Callable[..., Iterator[tuple[int, bytes]]],
    *arguments: Any,
) -> Iterator[Row]:
    """Yield the messages that `read` yields, and a problem if the file is gone or unreadable."""
    position = start
    try:
        for offset, body in read(path, *arguments):
            yield path, offset, body, published_at, None
            position = offset + 1  # within that message, where no other begins: so the id is unique
    except UNREADABLE as error:
        yield path, position, None, published_at, f"the file cannot be read: {error}"


def group_rows(rows: Iterator[Row], chunk: int = CHUNK_BYTES) -> Iterator[pa.RecordBatch]:
    """Group rows into Arrow batches of bounded size."""
    pending: list[Row] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row[2] or b"")
        if size >= chunk or len(pending) >= MESSAGES_PER_BATCH:
            yield _to_arrow(pending)
            pending, size = [], 0
    if pending:
        yield _to_arrow(pending)


def _to_arrow(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, MESSAGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)
