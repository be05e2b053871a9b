"""The driver's side of shredding: micro-batches as value rows, each with the tables it was shredded for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sapwood.relational.paths.linear_path import TagPath
from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.shredder import VALUE_SCHEMA
from sapwood.relational.sql.match_plan import PlanParameters
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.subscription_catalog import read_plan_parameters
from sapwood.spark.relational.materialized_frame import MaterializedFrame
from sapwood.spark.relational.row_schemas import SHREDDED_ROW, to_spark
from sapwood.spark.relational.shred_stage import ShredderSnapshot, ShredStage

_log = logging.getLogger(__name__)

BLOCK_BITS = 14
"""the number of low bits in which the numbers of a partition's messages in one block differ"""


@dataclass(frozen=True, slots=True)
class SparkShreddedBatch:
    """A micro-batch shredded into value rows, with the table snapshot it was shredded for."""

    rows: DataFrame
    """SHREDDED_ROW; materialized, so that it can be read many times"""
    blocks: dict[int, int]
    """the number of values in each block of messages"""
    rejections: int
    """the number of rejected messages"""
    connection: Connection
    """in a transaction that sees the tables as of then"""
    parameters: PlanParameters
    namespaces: dict[str, str]
    """the prefixes of queries, for residual checks"""

    @property
    def values(self) -> DataFrame:
        """The value rows."""
        return self.rows.filter("tag IS NOT NULL").select(*VALUE_SCHEMA.names)

    @property
    def messages(self) -> DataFrame:
        """`msg` of the messages that could be shredded."""
        return self.rows.filter("tag IS NULL AND reason IS NULL AND msg IS NOT NULL").select("msg")

    @property
    def rejected(self) -> DataFrame:
        """`msg` and `error` of the others."""
        error = F.struct("reason", "line", "column", "body").alias("error")
        return self.rows.filter("reason IS NOT NULL").select("msg", error)


class SparkShredder:
    """Shreds micro-batches on Spark workers, with the tag paths of a matcher's tables."""

    def __init__(self, matcher: RelationalMatcher) -> None:
        self._matcher = matcher
        self._database = matcher.database
        self._broadcast: Broadcast[ShredderSnapshot] | None = None

    @contextmanager
    def shred(self, messages: DataFrame) -> Iterator[SparkShreddedBatch]:
        """Shred messages with the columns `msg`, `body` and `problem`.

        The value rows fit the tables that the batch's connection sees: other tables need other values.
        """
        tag_paths = self._matcher.catalog.tag_paths
        with self._database.lock:
            tag_paths.evict_if_full()
        while True:
            with self._database.lock:
                snapshot = self._broadcast_snapshot(messages.sparkSession)
                connection = self._matcher.connection
                connection.run("BEGIN TRANSACTION")
                parameters = read_plan_parameters(connection)
                namespaces = dict(self._matcher.namespaces)
            rows = MaterializedFrame(messages.mapInArrow(ShredStage(snapshot), to_spark(SHREDDED_ROW)))
            try:
                blocks, rejections, missing = _summarize(rows.frame)
                if not missing:
                    yield SparkShreddedBatch(
                        rows.frame, blocks, rejections, connection, parameters, namespaces
                    )
                    return
            finally:
                rows.release()
                connection.close()
            _log.debug("%d new tag paths: the batch is shredded again", len(missing))
            with self._database.lock:
                tag_paths.resolve_new(missing)

    def _broadcast_snapshot(self, spark: SparkSession) -> Broadcast[ShredderSnapshot]:
        """Broadcast the tag paths to the workers, unless they have not changed."""
        tag_paths = self._matcher.catalog.tag_paths
        current = self._broadcast
        if current is None or (current.value.numbers, current.value.uses) != (
            tag_paths.numbers,
            tag_paths.uses,
        ):
            if current is not None:
                current.destroy()
            snapshot = ShredderSnapshot(
                uuid4().hex, dict(tag_paths.numbers), dict(tag_paths.uses), self._matcher.limits
            )
            current = self._broadcast = spark.sparkContext.broadcast(snapshot)
        return current

    def close(self) -> None:
        """Free the workers' copies of the snapshot."""
        if self._broadcast is not None:
            self._broadcast.destroy()
            self._broadcast = None


def _summarize(rows: DataFrame) -> tuple[dict[int, int], int, list[TagPath]]:
    """Return the values of each block, the number of rejected messages, and the unresolved tag paths."""
    block = F.shiftright("msg", BLOCK_BITS).alias("block")
    counts = rows.groupBy(block).agg(F.count("tag"), F.count("reason"), F.count("missing")).collect()
    blocks = {row[0]: row[1] for row in counts if row[0] is not None}
    missing: list[TagPath] = []
    if any(row[3] for row in counts):
        listed = rows.filter("missing IS NOT NULL").select("missing").distinct().collect()
        missing = [tuple(row[0]) for row in listed]
    return blocks, sum(row[2] for row in counts), missing
