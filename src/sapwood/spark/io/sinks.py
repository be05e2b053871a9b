"""The sinks of a pipeline, and what they guarantee for a batch that is repeated after a crash.

files       every batch has a folder of its own, `batch=N`, which is overwritten: exactly once
delta       the write carries the number of the batch, and Delta skips one that it has: exactly once
any other   rows are appended; a crash between the write and the commit repeats a batch: at least once
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_log = logging.getLogger(__name__)
_TEXT_FORMATS = frozenset({"json", "csv", "text", "xml"})
FILE_FORMATS = frozenset({"parquet", "json", "orc", "csv", "text", "avro", "xml"})


def _decode_binary(rows: DataFrame) -> DataFrame:
    """Cast binary columns to strings, for text formats; bytes that are not UTF-8 become U+FFFD."""
    return rows.withColumns(
        {
            name: F.make_valid_utf8(F.col(f"`{name}`").cast("string"))
            for name, kind in rows.dtypes
            if kind == "binary"
        }
    )


@dataclass(frozen=True, slots=True)
class Sink:
    """A target of rows, written batch by batch."""

    format: str
    path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    pipeline: str = "sapwood"

    @property
    def may_skip(self) -> bool:
        """Whether a write does nothing if the batch is there; then Spark observes no counts either."""
        return self.format == "delta"

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write the rows of a batch; if the sink is exactly once, they replace those of a former attempt."""
        _log.debug("writing batch %s to %s", batch, self.path or self.format)
        if self.format in _TEXT_FORMATS:
            rows = _decode_binary(rows)
        writer = rows.write.format(self.format).options(**self.options)
        if self.format in FILE_FORMATS:
            writer.mode("overwrite").save(f"{self.path}/batch={batch}")
            return
        if self.format == "delta":
            writer = writer.options(txnAppId=f"sapwood/{self.pipeline}", txnVersion=batch)
        writer.mode("append").save(*((self.path,) if self.path is not None else ()))
