"""Frames that are computed once, and then stand for themselves.

A frame that is only persisted is still planned with all that it came from; where one builds on the other a
dozen times, planning takes longer than everything else.
"""

from __future__ import annotations

from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame


class Computed:
    """A frame whose rows are kept once they are computed, which happens when they are first read."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)
        plan: Any = self.frame._jdf.queryExecution().logical()
        self._rows = plan.rdd()

    def count(self) -> int:
        """How many rows there are. The same by Spark SQL would be a statement to be planned."""
        return int(self._rows.count())

    def forget(self) -> None:
        """Frees what is kept, which Spark would do by itself, but only when Java collects its garbage."""
        self._rows.unpersist(False)
