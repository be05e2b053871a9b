"""The relational engine on Spark: messages in a DataFrame against subscriptions that are kept in tables.

Workers read the messages: see `sayings`. What they say is matched in DuckDB on the driver or by Spark itself,
see `on_duckdb` and `on_spark`; either way by the same statements. Subscriptions that are no filters are not
in the tables: those a broker serves as ever, and both answers are put together, message by message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, get_args

import duckdb
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

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
from sapwood.spark.relational.duckdb_backend import OnDuckDB
from sapwood.spark.relational.isolated_session import moved, own_session
from sapwood.spark.relational.parquet_snapshot import Copies
from sapwood.spark.relational.result_combiner import NUMBER, CombinedMatches, together
from sapwood.spark.relational.shredded_batch import Ear, Heard
from sapwood.spark.relational.spark_backend import OnSpark

Backend = Literal["duckdb", "spark"]
"""where the statements run"""


class _Engine(Protocol):
    def found(self, heard: Heard, messages: DataFrame) -> AbstractContextManager[CombinedMatches]:
        """What a batch matches; `messages` has the bodies, by `msg`. To be read before this ends."""

    def smaller(self) -> bool:
        """Takes fewer messages at a time from now on, if that is possible."""


def match_relational(
    messages: DataFrame,
    matcher: RelationalMatcher,
    *,
    shape: Shape = "pairs",
    on: Backend = "duckdb",
    folder: str | None = None,
) -> DataFrame:
    """Which subscriptions of a matcher each message matches, as `match` tells it; at once, not when the
    result is read. Messages must not be streaming.

    What is written meanwhile goes into a folder that all workers reach, by default a temporary one. With
    on="spark", the tables are copied into it, and in a folder that is given, copies stay for the next time.
    One at a time can use a folder.
    """
    check_shape(shape)
    if messages.isStreaming:
        raise ValueError("messages must not be a streaming DataFrame; a pipeline has streams: sapwood run")
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
            raise ValueError(f"on must be one of {', '.join(map(repr, get_args(Backend)))}, not {on!r}")
        self._own: SparkSession | None = None
        self._ear = Ear(matcher)
        self._engine: _Engine = (
            OnDuckDB(matcher, f"{folder}/sapwood-pairs")
            if on == "duckdb"
            else OnSpark(matcher, Copies(matcher, f"{folder}/sapwood-tables"))
        )

    @contextmanager
    def __call__(self, messages: DataFrame, edition: IndexSnapshot | None = None) -> Iterator[DataFrame]:
        """One row for each message, as `match_edition` has them, with the subscriptions of the tables and of
        an edition; to be read before this ends."""
        check_messages(messages)
        spark = messages.sparkSession
        if self._own is None:
            self._own = own_session(spark)
        numbered = moved(messages.withColumn(NUMBER, F.monotonically_increasing_id()), self._own)
        # numbers must not change, and a source need not be read twice
        numbered = numbered.persist(StorageLevel.DISK_ONLY)
        try:
            with ExitStack() as stack:
                found = self._found(stack, numbered)
                yield moved(together(numbered, found, edition), spark)
        finally:
            numbered.unpersist()

    def _found(self, stack: ExitStack, numbered: DataFrame) -> CombinedMatches:
        problem = column(PROBLEM) if PROBLEM in numbered.columns else F.lit(None).cast("string")
        bodies = numbered.select(F.col(NUMBER).alias("msg"), "body", problem.alias("problem"))
        while True:
            with ExitStack() as attempt:
                heard = attempt.enter_context(self._ear.hearing(bodies))
                try:
                    found = attempt.enter_context(self._engine.found(heard, bodies))
                except duckdb.OutOfMemoryException:  # which the transaction does not survive
                    if self._engine.smaller():
                        continue
                    raise
                stack.enter_context(attempt.pop_all())
                return replace(found, refused=heard.refused if heard.refusals else None)

    def close(self) -> None:
        """Frees what the workers keep, and lets the matcher go."""
        self._ear.close()
        del self._ear, self._engine
