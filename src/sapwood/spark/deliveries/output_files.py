"""Files that workers write themselves: Parquet and JSON, in the folder of a micro-batch.

    workers   write batch=N/_unfinished/part-…, one file for each task that has rows
    driver    moves the files of the tasks that Spark counts as done to batch=N/, and writes _SUCCESS

Rows go from a worker to the file without passing through the JVM. A task that runs twice leaves a file of
which nobody knows, and which is removed with `_unfinished`. Object stores have no rename: there, workers
write to batch=N/ at once, where a file appears as a whole, and the driver removes the unknown ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from sapwood.spark.io.file_system import (
    list_names,
    local_path,
    make_folder,
    move_file,
    open_output,
    remove_file,
    remove_folder,
)

PARQUET, JSON = "parquet", "json"
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""as Spark writes them in JSON"""
_UNFINISHED = "_unfinished"
_SUCCESS = "_SUCCESS"
_COMPRESSIONS = {"none": "none", "uncompressed": "none"} | {
    name: name for name in ("snappy", "gzip", "zstd", "lz4", "brotli")
}
"""the values of the option `compression` by what PyArrow calls them"""


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The folder of a micro-batch that workers write to."""

    path: str
    format: str
    compression: str = "snappy"

    @property
    def _staging(self) -> str:
        return f"{self.path}/{_UNFINISHED}" if local_path(self.path) is not None else self.path

    def clear(self) -> None:
        """Remove what an attempt before a crash may have written."""
        remove_folder(self.path)

    def open(self, schema: pa.Schema) -> OutputFile:
        """Open the file of this task, which is created with its first rows."""
        context = TaskContext.get()
        task = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        infix = f".{self.compression}" if self.format == PARQUET and self.compression != "none" else ""
        name = f"part-{task[0]:05}-{task[1]}{infix}.{self.format}"
        return OutputFile(self._staging, name, self.format, self.compression, schema)

    def write(self, rows: pa.Table) -> str:
        """Write rows of the driver to a file of their own, and return its name."""
        file = OutputFile(
            self._staging, f"part-driver.{self.format}", self.format, self.compression, rows.schema
        )
        for batch in rows.to_batches():
            file.write(batch)
        return file.close()

    def commit(self, names: Iterable[str], schema: pa.Schema) -> None:
        """Make the files of all tasks visible; without any, one with the columns and no rows."""
        known = set(names)
        if not known:
            file = self.open(schema)
            file.create()
            known = {file.close()}
        if self._staging != self.path:
            for name in known:
                move_file(f"{self._staging}/{name}", f"{self.path}/{name}")
            remove_folder(self._staging)
        else:
            for name in set(list_names(self.path)) - known:
                remove_file(f"{self.path}/{name}")
        open_output(f"{self.path}/{_SUCCESS}").close()


class OutputFile:
    """A file that a task writes rows to."""

    def __init__(self, folder: str, name: str, format: str, compression: str, schema: pa.Schema) -> None:
        self._folder, self._name, self._format = folder, name, format
        self._compression = compression
        self._schema = schema
        self._stream: BinaryIO | None = None
        self._parquet: pq.ParquetWriter | None = None
        self.rows = 0

    def create(self) -> BinaryIO:
        """Create the file."""
        if self._stream is None:
            make_folder(self._folder)
            self._stream = open_output(f"{self._folder}/{self._name}")
            if self._format == PARQUET:
                self._parquet = pq.ParquetWriter(
                    self._stream, self._schema, compression=self._compression, store_schema=False
                )
        return self._stream

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        stream = self.create()
        self.rows += batch.num_rows
        if self._parquet is not None:
            self._parquet.write_batch(batch)
        else:
            stream.writelines(format_json_lines(batch))

    def close(self) -> str:
        """Finish the file, if it was created, and return its name."""
        if self._stream is not None:
            if self._parquet is not None:
                self._parquet.close()
            self._stream.close()
        return self._name

    def abandon(self) -> None:
        """Close what is open of the file of a task that fails."""
        with suppress(Exception):
            self.close()


# -- formats -------------------------------------------------------------------------------------------------


def find_compression(format: str, options: dict[str, Any]) -> str | None:
    """Return the compression of files that workers write; None if they cannot write files as configured."""
    others = {key.lower(): str(value).lower() for key, value in options.items()}
    given = others.pop("compression", "snappy" if format == PARQUET else "none")
    if others or format not in (PARQUET, JSON):
        return None
    found = _COMPRESSIONS.get(given)
    return found if format == PARQUET or found == "none" else None


def can_write(format: str, schema: pa.Schema) -> bool:
    """Return whether workers can write all columns as Spark does."""
    return format == PARQUET or all(_find_formatter(field.type) is not None for field in schema)


def format_json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield rows as lines of JSON, without nulls, as Spark writes them."""
    formatters = [_find_formatter(field.type) or _unchanged for field in batch.schema]
    names = batch.schema.names
    for start in range(0, batch.num_rows, 64):  # messages can be large
        columns = [column.slice(start, 64).to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            row = {
                name: format_value(value)
                for name, format_value, value in zip(names, formatters, values, strict=True)
                if value is not None
            }
            yield json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def _find_formatter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that turns values into what JSON has; None for types that are left to Spark."""
    types = pa.types
    if types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind):
        return _unchanged
    if types.is_list(kind) and types.is_string(kind.value_type):
        return _unchanged
    if types.is_binary(kind):
        return lambda value: value.decode("utf-8", "replace")
    if types.is_timestamp(kind) and kind.tz is not None:
        return _format_time
    if types.is_floating(kind):
        return lambda value: value if math.isfinite(value) else _NOT_FINITE[str(value)]
    return None


def _unchanged(value: Any) -> Any:
    return value


def _format_time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
