"""What the tables and a broker have found for messages, put together: one row for each message."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
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

NUMBER = "_sapwood_number"
"""a column with a number for each message, the `msg` of all frames that the relational engine makes"""
_FOUND, _REFUSED, _UNDECIDED = "_sapwood_found", "_sapwood_refused", "_sapwood_undecided"
_NOBODY = ArrayType(StringType(), containsNull=False)


@dataclass(frozen=True, slots=True)
class CombinedMatches:
    """What the tables have found for a batch."""

    pairs: DataFrame
    """`msg` and `subscription`"""
    refused: DataFrame | None = None
    """`msg` and `error` of messages that turned out to be none; what they match does not count"""
    undecided: DataFrame | None = None
    """`msg`, `subscription`, `kind` and `reason` of subscriptions that have no answer on a message"""


def together(numbered: DataFrame, found: CombinedMatches, edition: IndexSnapshot | None) -> DataFrame:
    """Messages with the subscriptions found for them, and with those of an edition: the columns that
    `match_snapshot` makes."""
    if edition is None or edition.empty:
        nothing = {"subscriptions": _NOBODY, "error": ERROR, "undecided": UNDECIDED, "costs": COSTS}
        answered = numbered.drop("body", PROBLEM, MATCHES).withColumns(
            {name: F.lit(None).cast(kind) for name, kind in nothing.items()}
        )
    else:
        answered = match_snapshot(numbered, edition, profile=True)
    lists = found.pairs.groupBy(F.col("msg").alias(NUMBER)).agg(F.collect_list("subscription").alias(_FOUND))
    joined = answered.join(lists, NUMBER, "left")
    error = F.col("error")
    if found.refused is not None:
        refused = found.refused.select(F.col("msg").alias(NUMBER), F.col("error").cast(ERROR).alias(_REFUSED))
        joined = joined.join(refused, NUMBER, "left")
        error = F.coalesce(error, F.col(_REFUSED))
    undecided = F.col("undecided")
    if found.undecided is not None:
        failures = F.collect_list(F.struct("subscription", "kind", "reason")).cast(UNDECIDED)
        lists = found.undecided.groupBy(F.col("msg").alias(NUMBER)).agg(failures.alias(_UNDECIDED))
        joined = joined.join(lists, NUMBER, "left")
        none = F.array().cast(UNDECIDED)
        both = F.concat(F.coalesce(undecided, none), F.coalesce(_UNDECIDED, none))
        undecided = F.when(error.isNull() & (F.size(both) > 0), both)
    nothing_made = F.transform(_FOUND, lambda id: F.lit(None).cast("string"))
    results = {
        "subscriptions": _added("subscriptions", F.col(_FOUND), _NOBODY, error),
        "bodies": _added("bodies", nothing_made, BODIES, error),
        "error": error,
        "undecided": undecided,
    }
    return joined.select(
        *(results.get(name, column(name)).alias(name) for name in answered.columns if name != NUMBER)
    )


def _added(name: str, more: Column, kind: DataType, error: Column) -> Column:
    """A list with more at its end; an empty one, if the message is refused."""
    nothing = F.array().cast(kind)
    both = F.concat(F.coalesce(F.col(name), nothing), F.coalesce(more, nothing))
    return F.when(error.isNull(), both).otherwise(nothing)
