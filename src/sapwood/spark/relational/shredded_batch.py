"""The driver's side of reading messages for the relational engine: a batch, and the tables it is heard by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sapwood.relational.paths.linear_path import TagPath
from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.shredder import VALUE
from sapwood.relational.sql.match_plan import Extents
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.subscription_catalog import read_extents
from sapwood.spark.relational.materialized_frame import Computed
from sapwood.spark.relational.shred_stage import ROWS, Known, ReadValues

BLOCK = 14
"""Messages of a partition whose numbers differ only in so many bits are in one block."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a batch says, and the tables at the moment that it was read for."""

    rows: DataFrame
    """see `sayings`; kept, so it may be read again and again"""
    blocks: dict[int, int]
    """how many values there are in each block of messages"""
    refusals: int
    """how many messages could not be read"""
    connection: Connection
    """sees the tables as they were at that moment"""
    extents: Extents
    namespaces: dict[str, str]
    """of queries that are left to be decided"""

    @property
    def values(self) -> DataFrame:
        return self.rows.filter("tag IS NOT NULL").select(*VALUE.names)

    @property
    def messages(self) -> DataFrame:
        """Those that could be read."""
        return self.rows.filter("tag IS NULL AND reason IS NULL AND msg IS NOT NULL").select("msg")

    @property
    def refused(self) -> DataFrame:
        """`msg` and `error` of those that could not."""
        error = F.struct("reason", "line", "column", "body").alias("error")
        return self.rows.filter("reason IS NOT NULL").select("msg", error)


class Ear:
    """Reads messages as the tables of a matcher want to have them."""

    def __init__(self, matcher: RelationalMatcher) -> None:
        self._matcher = matcher
        self._tables = matcher.tables
        self._told: Broadcast[Known] | None = None

    @contextmanager
    def hearing(self, messages: DataFrame) -> Iterator[Heard]:
        """Reads messages with the columns `msg`, `body` and `problem`.

        Tables and what is read from messages belong together: of other tables, other values are wanted.
        """
        tags = self._matcher.population.tags
        with self._tables.lock:
            tags.settle()
        while True:
            with self._tables.lock:
                known = self._tell(messages.sparkSession)
                connection = self._matcher.connection
                connection.run("BEGIN TRANSACTION")
                reach = read_extents(connection)
                namespaces = dict(self._matcher.namespaces)
            rows = Computed(messages.mapInArrow(ReadValues(known), ROWS))
            try:
                blocks, refusals, missing = _summed_up(rows.frame)
                if not missing:
                    yield Heard(rows.frame, blocks, refusals, connection, reach, namespaces)
                    return
            finally:
                rows.forget()
                connection.close()
            with self._tables.lock:
                tags.know(missing)

    def _tell(self, spark: SparkSession) -> Broadcast[Known]:
        """What is known now, as workers can get at it."""
        tags = self._matcher.population.tags
        told = self._told
        if told is None or (told.value.numbers, told.value.uses) != (tags.numbers, tags.uses):
            if told is not None:
                told.destroy()
            known = Known(uuid4().hex, dict(tags.numbers), dict(tags.uses), self._matcher.limits)
            told = self._told = spark.sparkContext.broadcast(known)
        return told

    def close(self) -> None:
        """Frees what the workers keep of it."""
        if self._told is not None:
            self._told.destroy()
            self._told = None


def _summed_up(rows: DataFrame) -> tuple[dict[int, int], int, list[TagPath]]:
    """How many values each block has, how many messages are refused, and the tag paths that are missing."""
    block = F.shiftright("msg", BLOCK).alias("block")
    counted = rows.groupBy(block).agg(F.count("tag"), F.count("reason"), F.count("missing")).collect()
    blocks = {row[0]: row[1] for row in counted if row[0] is not None}
    missing: list[TagPath] = []
    if any(row[3] for row in counted):
        listed = rows.filter("missing IS NOT NULL").select("missing").distinct().collect()
        missing = [tuple(row[0]) for row in listed]
    return blocks, sum(row[2] for row in counted), missing
