"""Combines the results of the tables with those of a broker: one row for each message."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType

from sapwood.spark.dataframe_match import (
    BODIES,
    COSTS,
    ERROR,
    MATCHES,
    PROBLEM,
    UNDECIDED,
    column,
    match_snapshot,
)
from sapwood.spark.distribution.index_snapshot import IndexSnapshot

MESSAGE_NUMBER = "_sapwood_number"
"""a column with a number for each message, the `msg` of all frames of the relational engine"""
_MATCHED, _REJECTED, _FAILED = "_sapwood_found", "_sapwood_refused", "_sapwood_undecided"
_NO_IDS = ArrayType(StringType(), containsNull=False)

MATCHED_PAIRS_SQL = """
    SELECT m.msg, s.id AS subscription FROM subscription s JOIN matched m ON m.query = s.query"""
FAILED_PAIRS_SQL = """
    SELECT f.msg, s.id AS subscription, f.kind, f.reason
    FROM subscription s JOIN failed f ON f.query = s.query"""
"""From queries to their subscriptions, in any backend: MATCHED_PAIR of `matched`, FAILED_PAIR of `failed`."""


@dataclass(frozen=True, slots=True)
class BackendResult:
    """The result of a backend for a micro-batch."""

    pairs: DataFrame
    """MATCHED_PAIR"""
    rejected: DataFrame | None = None
    """`msg` and `error` of rejected messages, whose pairs are ignored"""
    failures: DataFrame | None = None
    """FAILED_PAIR"""


def combine_results(numbered: DataFrame, result: BackendResult, snapshot: IndexSnapshot | None) -> DataFrame:
    """Match messages with a snapshot of a broker, and add the result of a backend.

    The columns are those of `match_snapshot`.
    """
    if snapshot is None or snapshot.empty:
        nulls = {"subscriptions": _NO_IDS, "error": ERROR, "undecided": UNDECIDED, "costs": COSTS}
        matched = numbered.drop("body", PROBLEM, MATCHES).withColumns(
            {name: F.lit(None).cast(kind) for name, kind in nulls.items()}
        )
    else:
        matched = match_snapshot(numbered, snapshot, profile=True)
    ids = F.collect_list("subscription").alias(_MATCHED)
    joined = matched.join(_by_message(result.pairs).agg(ids), MESSAGE_NUMBER, "left")
    error = F.col("error")
    if result.rejected is not None:
        number = F.col("msg").alias(MESSAGE_NUMBER)
        rejected = result.rejected.select(number, F.col("error").cast(ERROR).alias(_REJECTED))
        joined = joined.join(rejected, MESSAGE_NUMBER, "left")
        error = F.coalesce(error, F.col(_REJECTED))
    undecided = F.col("undecided")
    if result.failures is not None:
        failures = F.collect_list(F.struct("subscription", "kind", "reason")).cast(UNDECIDED)
        lists = _by_message(result.failures).agg(failures.alias(_FAILED))
        joined = joined.join(lists, MESSAGE_NUMBER, "left")
        none = F.array().cast(UNDECIDED)
        both = F.concat(F.coalesce(undecided, none), F.coalesce(_FAILED, none))
        undecided = F.when(error.isNull() & (F.size(both) > 0), both)
    no_bodies = F.transform(_MATCHED, lambda id: F.lit(None).cast("string"))
    results = {
        "subscriptions": _append_list("subscriptions", F.col(_MATCHED), _NO_IDS, error),
        "bodies": _append_list("bodies", no_bodies, BODIES, error),
        "error": error,
        "undecided": undecided,
    }
    return joined.select(
        *(results.get(name, column(name)).alias(name) for name in matched.columns if name != MESSAGE_NUMBER)
    )


def _by_message(rows: DataFrame) -> GroupedData:
    return rows.groupBy(F.col("msg").alias(MESSAGE_NUMBER))


def _append_list(name: str, more: Column, kind: DataType, error: Column) -> Column:
    """Return a list column with more at its end; an empty list if the message is rejected."""
    empty = F.array().cast(kind)
    both = F.concat(F.coalesce(F.col(name), empty), F.coalesce(more, empty))
    return F.when(error.isNull(), both).otherwise(empty)
