"""The relational engine on Spark: matches messages in a DataFrame with subscriptions in tables.

Workers shred the messages (`shred_stage`). A backend matches the value rows by the same statements, DuckDB on
the driver (`duckdb_backend`) or Spark SQL (`spark_backend`). Subscriptions that are no filters are not in the
tables: a broker serves them, and both results are combined, message by message (`result_combiner`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, get_args

import duckdb
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sapwood.errors import ArgumentError
from sapwood.relational import RelationalMatcher
from sapwood.spark.dataframe_match import (
    PROBLEM,
    Shape,
    check_messages,
    check_shape,
    column,
    to_pairs,
    with_problem,
)
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.relational.duckdb_backend import DuckDBBackend
from sapwood.spark.relational.isolated_session import create_isolated_session, move_to_session
from sapwood.spark.relational.parquet_snapshot import ParquetSnapshot
from sapwood.spark.relational.result_combiner import MESSAGE_NUMBER, BackendResult, combine_results
from sapwood.spark.relational.shredded_batch import SparkShreddedBatch, SparkShredder
from sapwood.spark.relational.spark_backend import SparkBackend

_log = logging.getLogger(__name__)

Backend = Literal["duckdb", "spark"]
"""the engine that runs the statements"""


class MatchBackend(Protocol):
    """An engine that runs the statements of a plan on shredded batches."""

    def match(self, batch: SparkShreddedBatch, messages: DataFrame) -> AbstractContextManager[BackendResult]:
        """Match a batch; `messages` has `msg` and `body`. The result is valid inside the context only."""

    def reduce_batch_size(self) -> bool:
        """Match fewer messages at a time from now on; return whether that is possible."""


def match_relational(
    messages: DataFrame,
    matcher: RelationalMatcher,
    *,
    shape: Shape = "pairs",
    on: Backend = "duckdb",
    folder: str | None = None,
) -> DataFrame:
    """Return the subscriptions of a matcher that each message matches, in the shape of `match`.

    It matches at once, not when the result is read; messages must not be streaming.

    Intermediate files go into a folder that all workers reach, by default a temporary one. With on="spark", a
    snapshot of the tables is written there; in a folder that is given, it stays and is used again. A folder
    can be used by one call at a time.
    """
    check_shape(shape)
    if messages.isStreaming:
        raise ArgumentError("messages must not be a streaming DataFrame; a pipeline has streams: sapwood run")
    with ExitStack() as stack:
        folder = folder or stack.enter_context(TemporaryDirectory(prefix="sapwood-"))
        matching = RelationalMatching(matcher, on, folder)
        stack.callback(matching.close)
        matched = stack.enter_context(matching(with_problem(messages))).drop("costs").localCheckpoint()
    return to_pairs(matched) if shape == "pairs" else matched


class RelationalMatching:
    """Matches batches of messages with the tables as they are when a batch begins."""

    def __init__(self, matcher: RelationalMatcher, on: Backend, folder: str) -> None:
        if on not in get_args(Backend):
            raise ArgumentError(f"on must be one of {', '.join(map(repr, get_args(Backend)))}, not {on!r}")
        self._session: SparkSession | None = None
        self._shredder = SparkShredder(matcher)
        self._backend: MatchBackend = (
            DuckDBBackend(matcher, f"{folder}/sapwood-pairs")
            if on == "duckdb"
            else SparkBackend(matcher, ParquetSnapshot(matcher, f"{folder}/sapwood-tables"))
        )
        _log.debug("relational matching on %s, with files in %s", on, folder)

    @contextmanager
    def __call__(self, messages: DataFrame, snapshot: IndexSnapshot | None = None) -> Iterator[DataFrame]:
        """Match messages with the subscriptions of the tables and of a broker's snapshot.

        There is one row for each message, with the columns of `match_snapshot`; valid in the context only.
        """
        check_messages(messages)
        spark = messages.sparkSession
        if self._session is None:
            self._session = create_isolated_session(spark)
        with_number = messages.withColumn(MESSAGE_NUMBER, F.monotonically_increasing_id())
        # persisted: numbers must not change, and a source need not be read twice
        numbered = move_to_session(with_number, self._session).persist(StorageLevel.DISK_ONLY)
        try:
            with ExitStack() as stack:
                result = self._match(stack, numbered)
                yield move_to_session(combine_results(numbered, result, snapshot), spark)
        finally:
            numbered.unpersist()

    def _match(self, stack: ExitStack, numbered: DataFrame) -> BackendResult:
        problem = column(PROBLEM) if PROBLEM in numbered.columns else F.lit(None).cast("string")
        bodies = numbered.select(F.col(MESSAGE_NUMBER).alias("msg"), "body", problem.alias("problem"))
        while True:
            with ExitStack() as attempt:
                batch = attempt.enter_context(self._shredder.shred(bodies))
                try:
                    result = attempt.enter_context(self._backend.match(batch, bodies))
                except duckdb.OutOfMemoryException:  # which aborts the transaction
                    if self._backend.reduce_batch_size():
                        continue
                    raise
                stack.enter_context(attempt.pop_all())
                return replace(result, rejected=batch.rejected if batch.rejections else None)

    def close(self) -> None:
        """Free the workers' memory, and drop the reference to the matcher."""
        self._shredder.close()
        del self._shredder, self._backend
