"""Where rows go, so that a batch that is written again after a crash is there once.

files       every batch has a folder of its own, `batch=N`, which is overwritten: exactly once
delta       the batch's number goes with the write, and Delta passes over one that it has: exactly once
any other   appended; a crash between the write and the record of it repeats a batch: at least once
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_TEXT_FORMATS = frozenset({"json", "csv", "text", "xml"})
FILE_FORMATS = frozenset({"parquet", "json", "orc", "csv", "text", "avro", "xml"})


def _readable(rows: DataFrame) -> DataFrame:
    """With text instead of bytes, for formats that people read; what is not UTF-8 in it is marked so."""
    return rows.withColumns(
        {
            name: F.make_valid_utf8(F.col(f"`{name}`").cast("string"))
            for name, kind in rows.dtypes
            if kind == "binary"
        }
    )


@dataclass(frozen=True, slots=True)
class Sink:
    """A place for rows, written batch by batch."""

    format: str
    path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    pipeline: str = "sapwood"

    @property
    def exactly_once(self) -> bool:
        return self.format in FILE_FORMATS or self.format == "delta"

    @property
    def passes_over(self) -> bool:
        """Whether a write may do nothing at all, if the batch is there; then nothing is observed either."""
        return self.format == "delta"

    def write(self, rows: DataFrame, batch: int) -> None:
        """Writes a batch, all of it; if it was written before, in its place."""
        if self.format in _TEXT_FORMATS:
            rows = _readable(rows)
        writer = rows.write.format(self.format).options(**self.options)
        if self.format in FILE_FORMATS:
            writer.mode("overwrite").save(f"{self.path}/batch={batch}")
            return
        if self.format == "delta":
            writer = writer.options(txnAppId=f"sapwood/{self.pipeline}", txnVersion=batch)
        writer.mode("append").save(*((self.path,) if self.path is not None else ()))
