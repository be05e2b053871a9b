"""Combines the results of the tables with those of a broker: one row for each message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
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
from sapwood.spark.distribution.match_result import FAILURES
from sapwood.spark.relational.row_schemas import carried_name
from sapwood.spark.relational.shredded_batch import MESSAGE_NUMBER

_MESSAGE = "_sapwood_message"
_MATCHED, _REJECTED, _FAILED = "_sapwood_found", "_sapwood_refused", "_sapwood_undecided"
_FAILURE = from_arrow_type(FAILURES.value_type)
_NO_IDS = ArrayType(StringType(), containsNull=False)
_RESULTS: dict[str, DataType] = {
    "subscriptions": _NO_IDS,
    "error": ERROR,
    "undecided": UNDECIDED,
    "costs": COSTS,
}

MATCHED_PAIRS_SQL = """
    SELECT /*+ BROADCAST(m) */ m.msg, s.id AS subscription
    FROM subscription s JOIN matched m ON m.query = s.query"""
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
        passed = [name for name in numbered.columns if name not in ("body", PROBLEM, MATCHES)]
        cells = {name: column(name) for name in passed if name != MESSAGE_NUMBER}
        cells |= {name: F.lit(None).cast(kind) for name, kind in _RESULTS.items()}
        matched = numbered
    else:
        matched = match_snapshot(numbered, snapshot, profile=True)
        cells = {name: column(name) for name in matched.columns if name != MESSAGE_NUMBER}
    own = F.struct(*(cell.alias(carried_name(number)) for number, cell in enumerate(cells.values())))
    parts = {
        _MESSAGE: (matched, MESSAGE_NUMBER, own),
        _MATCHED: (result.pairs, "msg", F.col("subscription")),
    }
    if result.rejected is not None:
        parts[_REJECTED] = result.rejected, "msg", F.col("error").cast(ERROR)
    if result.failures is not None:
        failure = F.struct("subscription", "kind", "reason").cast(_FAILURE)
        parts[_FAILED] = result.failures, "msg", failure
    joined = _gather(parts)
    values = {name: F.col(_MESSAGE).getField(carried_name(number)) for number, name in enumerate(cells)}
    error = values["error"]
    if result.rejected is not None:
        error = F.coalesce(error, F.col(_REJECTED))
    undecided = values["undecided"]
    if result.failures is not None:
        both = F.concat(F.coalesce(undecided, F.array().cast(UNDECIDED)), F.col(_FAILED).cast(UNDECIDED))
        undecided = F.when(error.isNull() & (F.size(both) > 0), both)
    values["subscriptions"] = _append_list(values["subscriptions"], F.col(_MATCHED), _NO_IDS, error)
    if "bodies" in values:
        no_bodies = F.transform(_MATCHED, lambda id: F.lit(None).cast("string"))
        values["bodies"] = _append_list(values["bodies"], no_bodies, BODIES, error)
    values |= {"error": error, "undecided": undecided}
    metadata = {field.name: field.metadata for field in matched.schema.fields}
    return joined.select(
        *(value.alias(name, metadata=metadata.get(name, {})) for name, value in values.items())
    )


def _gather(parts: Mapping[str, tuple[DataFrame, str, Column]]) -> DataFrame:
    """Return one row for each message, with a column for each part: a value of messages and errors, a list
    of the others.

    A part has rows, the column with the message's number, and the value. A union that is grouped needs one
    exchange, and no sorting, where joins need them for each part.
    """
    frames: list[DataFrame] = []
    for name, (rows, number, value) in parts.items():
        values = {each: F.lit(None).alias(each) for each in parts} | {name: value.alias(name)}
        frames.append(rows.select(F.col(number).alias(MESSAGE_NUMBER), *values.values()))
    lists = {name: F.collect_list(name).alias(name) for name in parts}
    single = {name: F.first(name, True).alias(name) for name in parts if name in (_MESSAGE, _REJECTED)}
    return reduce(DataFrame.unionAll, frames).groupBy(MESSAGE_NUMBER).agg(*(lists | single).values())


def _append_list(some: Column, more: Column, kind: DataType, error: Column) -> Column:
    """Return a list column with more at its end; an empty list if the message is rejected."""
    empty = F.array().cast(kind)
    both = F.concat(F.coalesce(some, empty), F.coalesce(more, empty))
    return F.when(error.isNull(), both).otherwise(empty)
