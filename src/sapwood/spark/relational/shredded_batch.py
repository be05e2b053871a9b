"""The driver's side of shredding: micro-batches as value rows, each with the tables it was shredded for."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sapwood.relational.paths.linear_path import TagPath
from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.shredder import VALUE_SCHEMA
from sapwood.relational.sql.match_plan import PlanParameters
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.subscription_catalog import read_plan_parameters
from sapwood.spark.dataframe_match import MATCHES, PROBLEM, column
from sapwood.spark.relational.isolated_session import detach
from sapwood.spark.relational.materialized_frame import MaterializedFrame
from sapwood.spark.relational.row_schemas import SHREDDED_ROW, carried_name, to_spark
from sapwood.spark.relational.shred_stage import BLOCK_BITS, ShredderSnapshot, ShredStage

_log = logging.getLogger(__name__)

MESSAGE_NUMBER = "_sapwood_number"
"""a column with a number for each message, the `msg` of all frames of the relational engine"""
MESSAGE_ROWS = "msg IS NOT NULL AND tag IS NULL AND value_count IS NULL"
_INEXACT_QUERIES = "SELECT count(*) FROM query WHERE NOT exact"


@dataclass(frozen=True, slots=True)
class SparkShreddedBatch:
    """A micro-batch shredded into value rows, with the table snapshot it was shredded for."""

    rows: DataFrame
    """SHREDDED_ROW, with the carried columns; materialized, so that it can be read many times"""
    carried: Sequence[StructField]
    """the columns of messages that are carried: without `body` if nothing needs it"""
    blocks: dict[int, int]
    """the number of values in each block of messages"""
    rejections: int
    """the number of rejected messages"""
    connection: Connection
    """in a transaction that sees the tables as of then"""
    parameters: PlanParameters
    namespaces: dict[str, str]
    """the prefixes of queries, for residual checks"""
    residual: bool
    """whether there may be candidates that need a residual check"""

    @property
    def values(self) -> DataFrame:
        """The value rows."""
        return self.rows.filter("tag IS NOT NULL").select(*VALUE_SCHEMA.names)

    @property
    def messages(self) -> DataFrame:
        """`msg` of the messages that could be shredded."""
        return self.rows.filter(f"{MESSAGE_ROWS} AND reason IS NULL").select("msg")

    @property
    def numbered(self) -> DataFrame:
        """All messages as they came, each with its MESSAGE_NUMBER; only `body` may be missing."""
        own = [
            F.col(carried_name(number)).alias(field.name, metadata=field.metadata)
            for number, field in enumerate(self.carried)
        ]
        # Detached: the result is united with what is computed from the same rows. Spark would rename the
        # columns of one side, throughout its plan.
        rows = detach(self.rows, self.rows.sparkSession)
        return rows.filter(MESSAGE_ROWS).select(F.col("msg").alias(MESSAGE_NUMBER), *own)

    @property
    def bodies(self) -> DataFrame:
        """`msg` and `body` of all messages; only if there may be residual checks."""
        return self.numbered.select(F.col(MESSAGE_NUMBER).alias("msg"), "body")

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
    def shred(self, messages: DataFrame, carry_all: bool) -> Iterator[SparkShreddedBatch]:
        """Shred messages, which have a MESSAGE_NUMBER.

        With `carry_all`, the rows have what `match_snapshot` needs. The value rows fit the tables that the
        batch's connection sees: other tables need other values.
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
            residual = bool(parameters.depth or connection.value(_INEXACT_QUERIES))
            carried = _carried_fields(messages, carry_all, residual)
            rows = MaterializedFrame(_shred_frame(messages, carried, snapshot))
            try:
                blocks, rejections, missing = _summarize(rows.frame)
                if not missing:
                    yield SparkShreddedBatch(
                        rows.frame, carried, blocks, rejections, connection, parameters, namespaces, residual
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


def _carried_fields(messages: DataFrame, carry_all: bool, bodies: bool) -> list[StructField]:
    """Return the columns of messages that are needed after shredding."""
    dropped = {MESSAGE_NUMBER}
    if not carry_all:
        dropped |= {PROBLEM, MATCHES} if bodies else {PROBLEM, MATCHES, "body"}
    return [field for field in messages.schema.fields if field.name not in dropped]


def _shred_frame(
    messages: DataFrame, carried: Sequence[StructField], snapshot: Broadcast[ShredderSnapshot]
) -> DataFrame:
    """Return SHREDDED_ROW of messages, with carried columns."""
    problem = column(PROBLEM) if PROBLEM in messages.columns else F.lit(None).cast("string")
    inputs = messages.select(
        F.col(MESSAGE_NUMBER).alias("msg"),
        "body",
        problem.alias("problem"),
        *(column(field.name).alias(carried_name(number)) for number, field in enumerate(carried)),
    )
    own = [StructField(carried_name(number), field.dataType) for number, field in enumerate(carried)]
    return inputs.mapInArrow(ShredStage(snapshot), StructType([*to_spark(SHREDDED_ROW), *own]))


def _summarize(rows: DataFrame) -> tuple[dict[int, int], int, list[TagPath]]:
    """Return the values of each block, the number of rejected messages, and the unresolved tag paths."""
    summary = rows.filter("value_count IS NOT NULL OR missing IS NOT NULL")
    blocks: dict[int, int] = {}
    rejections = 0
    missing: dict[TagPath, None] = {}
    for row in summary.select("msg", "value_count", "rejected_count", "missing").collect():
        if row["missing"] is not None:
            missing[tuple(row["missing"])] = None
            continue
        block = row["msg"] >> BLOCK_BITS
        blocks[block] = blocks.get(block, 0) + row["value_count"]
        rejections += row["rejected_count"]
    return blocks, rejections, list(missing)
