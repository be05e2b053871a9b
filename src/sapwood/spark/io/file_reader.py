"""What runs in Spark's Python workers to read messages from files.

Files are read where the matching is done, by ranges of bytes, so that one huge file keeps all workers busy
and none of them holds more than a parcel of it:

    `*.xml`     the file is a message
    `*.xmll`    every line is; a line belongs to the range in which it starts
    records     every such element is; somebody scans the file for where they are, others read them
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO, cast

import pyarrow as pa

from sapwood.errors import RecordError
from sapwood.records import Context, Record, RecordScanner, message, ranges
from sapwood.spark.io.storage import open_file

PARCEL = 8 << 20
"""Bytes of messages that a worker holds at a time, unless one message has more."""
MESSAGES_PER_BATCH = 1_000
ENDINGS = (".xml", ".xmll", ".xml.gz", ".xmll.gz")
"""Of the files in a folder, those whose names end so are read."""

UNREADABLE = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
)
"""What no second attempt mends is a problem of the file; anything else fails the task, to be tried again."""

Row = tuple[str, int, bytes | None, Any, str | None]
"""path, offset, body, time of change, problem"""


def open_unpacked(path: str) -> BinaryIO:
    """The same, decompressed if its name ends in `.gz`."""
    file = open_file(path)
    return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if path.endswith(".gz") else file


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Ranges of files in (path, start, end, published_at), messages out."""

    largest: int
    """a message of more bytes is not read whole, but rejected with its first ones"""
    parcel: int = PARCEL

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_batches(chain.from_iterable(map(self._rows, batches)), self.parcel)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        for row in batch.to_pylist():
            read = self._lines if row["path"].removesuffix(".gz").endswith(".xmll") else self._whole
            yield from guarded(row["path"], row["published_at"], row["start"], read, row["start"], row["end"])

    def _whole(self, path: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        with open_unpacked(path) as file:
            yield 0, file.read(self.largest + 1)

    def _lines(self, path: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The lines that start in the range; all of them if the file is compressed."""
        with open_unpacked(path) as file:
            offset = start
            if start:
                file.seek(start - 1)
                offset = start - 1 + self._skip_line(file)
            while path.endswith(".gz") or offset < end:
                line = file.readline(self.largest + 1)
                if not line:
                    return
                length = len(line)
                if length > self.largest and not line.endswith(b"\n"):
                    length += self._skip_line(file)
                stripped = line.rstrip(b"\r\n")
                if stripped.strip():
                    yield offset, stripped
                offset += length

    def _skip_line(self, file: BinaryIO) -> int:
        """Reads to the end of the line; how far that was."""
        length = 0
        while part := file.readline(self.parcel):
            length += len(part)
            if part.endswith(b"\n"):
                break
        return length


@dataclass(frozen=True, slots=True)
class FindRecords:
    """Files in (path, published_at), ranges of records out, for `ReadRecords`."""

    element: str
    parcel: int = PARCEL

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from self._ranges(row["path"], row["published_at"])

    def _ranges(self, path: str, published_at: Any) -> Iterator[pa.RecordBatch]:
        problem = None
        place = 0

        def records() -> Iterator[Record]:
            nonlocal problem, place
            try:
                with open_unpacked(path) as file:
                    for record in RecordScanner(self.element, file):
                        place = record.end
                        yield record
            except RecordError as error:
                problem, place = str(error), error.offset if error.offset is not None else place
            except UNREADABLE as error:
                problem = f"the file cannot be read: {error}"

        # who reads a compressed file has to start at its beginning, so one reads it all
        most = (1 << 62, 1 << 62) if path.endswith(".gz") else (self.parcel, 10_000)
        for parcel in ranges(records(), *most):
            context = parcel.context
            reason = None if parcel.complete else "the file ends within this record"
            namespaces = [part for pair in context.namespaces for part in pair]
            bounds = parcel.starts.tolist(), parcel.ends.tolist()
            yield _one_range(path, published_at, context.prolog, context.element, namespaces, *bounds, reason)
        if problem is not None:
            yield _one_range(path, published_at, b"", b"", [], [], [place], problem)


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
MESSAGES = pa.schema(
    [
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("body", pa.binary()),
        ("published_at", pa.timestamp("us", tz="UTC")),
        ("problem", pa.string()),
    ]
)


def _one_range(*values: Any) -> pa.RecordBatch:
    arrays = [pa.array([value], field.type) for value, field in zip(values, RANGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RANGES)


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Ranges of records in, messages out."""

    largest: int
    parcel: int = PARCEL

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_batches(chain.from_iterable(map(self._rows, batches)), self.parcel)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        for row in batch.to_pylist():
            path, published_at, starts, ends = (
                row[name] for name in ("path", "published_at", "starts", "ends")
            )
            if not starts:  # the file could not be scanned, or not beyond this place
                yield path, ends[0], None, published_at, row["problem"]
                continue
            names = row["namespaces"]
            context = Context(row["prolog"], row["element"], tuple(zip(names[::2], names[1::2], strict=True)))
            rows = guarded(path, published_at, starts[0], self._records, context, starts, ends)
            for number, read in enumerate(rows, 1):
                incomplete = row["problem"] if number == len(starts) else None
                yield (*read[:4], incomplete or read[4])

    def _records(
        self, path: str, context: Context, starts: list[int], ends: list[int]
    ) -> Iterator[tuple[int, bytes]]:
        with open_unpacked(path) as file:
            for start, end in zip(starts, ends, strict=True):
                file.seek(start)
                body = file.read(min(end - start, self.largest + 1))
                yield start, message(context, body) if len(body) == end - start else body


def guarded(
    path: str,
    published_at: Any,
    start: int,
    read: Callable[..., Iterator[tuple[int, bytes]]],
    *arguments: Any,
) -> Iterator[Row]:
    """The messages that are read; a file that is gone or unreadable is a problem of its own."""
    place = start
    try:
        for offset, body in read(path, *arguments):
            yield path, offset, body, published_at, None
            place = offset + 1  # in that message: no other one can start there, so its id is taken by none
    except UNREADABLE as error:
        yield path, place, None, published_at, f"the file cannot be read: {error}"


def in_batches(rows: Iterator[Row], parcel: int = PARCEL) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches of bounded size."""
    pending: list[Row] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row[2] or b"")
        if size >= parcel or len(pending) >= MESSAGES_PER_BATCH:
            yield _batch(pending)
            pending, size = [], 0
    if pending:
        yield _batch(pending)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, MESSAGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)
