"""Frames that are computed once and cut off from their lineage.

A frame that is only persisted is still planned with its whole lineage; where a dozen frames build on each
other, planning would take longer than everything else.
"""

from __future__ import annotations

from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame


class MaterializedFrame:
    """A frame whose rows are stored by the executors when they are first computed."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)
        plan: Any = self.frame._jdf.queryExecution().logical()
        self._rows = plan.rdd()

    def count(self) -> int:
        """Return the number of rows, without a Spark SQL statement, which would have to be planned."""
        return int(self._rows.count())

    def release(self) -> None:
        """Free the rows now; Spark would do so only at a garbage collection of the JVM."""
        self._rows.unpersist(False)
