"""The sinks of a pipeline, and what they guarantee for a batch that is repeated after a crash.

files       every batch has a folder of its own, `batch=N`, which is overwritten: exactly once
kafka       records have stable ids (see `kafka.kafka_sink`): at least once
delta       the write carries the number of the batch, and Delta skips one that it has: exactly once;
            with the mode "merge", a delivery replaces the one with the same id
any other   rows are appended; a crash between the write and the commit repeats a batch: at least once
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sapwood.spark.dataframe_match import column
from sapwood.spark.deliveries.output_files import OutputFolder, can_write, find_compression
from sapwood.spark.io.delta_table import DELTA, DeltaTarget
from sapwood.spark.io.file_system import is_reached_by_workers

_log = logging.getLogger(__name__)
OF_JOIN = "_of_join"
"""The column of refused deliveries that tells whether a join has made them."""
_TEXT_FORMATS = frozenset({"json", "csv", "text", "xml"})
FILE_FORMATS = frozenset({"parquet", "json", "orc", "csv", "text", "avro", "xml"})


def decode_binary(name: str) -> Column:
    """Cast a binary column to a string; bytes that are not UTF-8 become U+FFFD."""
    return F.make_valid_utf8(column(name).cast("string"))


def _decode_binary(rows: DataFrame) -> DataFrame:
    """Cast binary columns to strings, for text formats."""
    return rows.withColumns({name: decode_binary(name) for name, kind in rows.dtypes if kind == "binary"})


@dataclass(frozen=True, slots=True)
class Sink:
    """A target of rows, written batch by batch."""

    format: str
    path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    application: str = "sapwood"
    """identifies the checkpoint and the sink to Delta, which skips a batch that it has from them"""
    table: str | None = None
    """the name of a table in a catalog, instead of a path"""
    mode: Literal["append", "merge"] = "append"

    def folder(self, batch: int, schema: pa.Schema) -> OutputFolder | None:
        """Return the folder of a batch that workers write to; None if Spark has to write the rows.

        Workers write Parquet and JSON without options but `compression`, on file systems that Arrow reaches.
        """
        if self.path is None or self.format not in FILE_FORMATS or not is_reached_by_workers(self.path):
            return None
        compression = find_compression(self.format, self.options)
        if compression is None or not can_write(self.format, schema):
            return None
        return OutputFolder(f"{self.path}/batch={batch}", self.format, compression)

    def write(self, rows: DataFrame, batch: int) -> DataFrame | None:
        """Write the rows of a batch; if the sink is exactly once, they replace those of a former attempt.
        Return rows that the sink refuses, with the columns `reason` and OF_JOIN; None if it takes all."""
        _log.debug("writing batch %s to %s", batch, self.path or self.table or self.format)
        if self.format == DELTA:
            target = DeltaTarget(self.path, self.table, self.options, self.application)
            (target.merge if self.mode == "merge" else target.append)(rows, batch)
            return None
        if self.format in _TEXT_FORMATS:
            rows = _decode_binary(rows)
        writer = rows.write.format(self.format).options(**self.options)
        if self.format in FILE_FORMATS:
            writer.mode("overwrite").save(f"{self.path}/batch={batch}")
            return None
        writer.mode("append").save(*((self.path,) if self.path is not None else ()))
        return None
