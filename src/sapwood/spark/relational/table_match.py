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

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sapwood.errors import ArgumentError
from sapwood.relational import RelationalMatcher
from sapwood.spark.dataframe_match import Shape, check_messages, check_shape, to_pairs, with_problem
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.relational.duckdb_backend import DuckDBBackend
from sapwood.spark.relational.isolated_session import create_isolated_session, detach
from sapwood.spark.relational.parquet_snapshot import ParquetSnapshot
from sapwood.spark.relational.result_combiner import BackendResult, combine_results
from sapwood.spark.relational.shredded_batch import MESSAGE_NUMBER, SparkShreddedBatch, SparkShredder
from sapwood.spark.relational.spark_backend import SparkBackend

_log = logging.getLogger(__name__)

Backend = Literal["duckdb", "spark"]
"""the engine that runs the statements"""


class MatchBackend(Protocol):
    """An engine that runs the statements of a plan on shredded batches."""

    def match(self, batch: SparkShreddedBatch) -> AbstractContextManager[BackendResult]:
        """Match a batch. The result is valid inside the context only."""

    def adapt_to(self, error: Exception) -> bool:
        """Take care that a batch which has failed needs less memory; return whether to try it again."""


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
        numbered = detach(with_number, self._session)
        while True:
            with ExitStack() as attempt:
                try:
                    matched = detach(self._match(attempt, numbered, snapshot), spark)
                except Exception as error:  # which may have aborted DuckDB's transaction
                    if self._backend.adapt_to(error):
                        continue
                    raise
                yield matched
                return

    def _match(self, stack: ExitStack, numbered: DataFrame, snapshot: IndexSnapshot | None) -> DataFrame:
        carry_all = snapshot is not None and not snapshot.empty
        batch = stack.enter_context(self._shredder.shred(numbered, carry_all))
        result = stack.enter_context(self._backend.match(batch))
        if batch.rejections:
            result = replace(result, rejected=batch.rejected)
        return combine_results(batch.numbered, result, snapshot)

    def close(self) -> None:
        """Free the workers' memory, and drop the reference to the matcher."""
        self._shredder.close()
        del self._shredder, self._backend
