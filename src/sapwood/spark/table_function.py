"""Matching as a table function of Spark SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf

from sapwood.engine import Limits
from sapwood.errors import ArgumentError
from sapwood.lang.namespaces import Namespaces
from sapwood.spark.dataframe_match import Subscriptions, issue_snapshot
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.distribution.match_worker import MatchPartition


def register(
    spark: SparkSession,
    subscriptions: Subscriptions,
    name: str = "sapwood_match",
    *,
    namespaces: Namespaces | None = None,
    limits: Limits | None = None,
) -> None:
    """Register a table function: `SELECT * FROM sapwood_match(TABLE(SELECT message_id, body FROM messages))`.

    The table must have the columns `message_id` and `body`; the result has one row for each message and
    subscription, `message_id` (as a string), `subscription`, and as `body` what a transformation made, null
    for a filter. Messages that are rejected have no row.
    """
    spark.udtf.register(name, _make_udtf(issue_snapshot(spark, subscriptions, namespaces, limits)))


def _make_udtf(snapshot: IndexSnapshot) -> Any:
    class Match:
        def eval(self, table: pa.RecordBatch) -> Iterator[pa.Table]:
            missing = {"message_id", "body"}.difference(table.schema.names)
            if missing:
                raise ArgumentError(f"the table needs a column {min(missing)!r}; it has {table.schema.names}")
            for results in MatchPartition(snapshot, "body", None)(iter([table])):
                matched = results.column("subscriptions")
                ids = results.column("message_id").cast(pa.string())
                subscriptions = compute.list_flatten(matched)
                if snapshot.transforming:
                    bodies = compute.list_flatten(results.column("bodies"))
                else:
                    bodies = pa.nulls(len(subscriptions), pa.string())
                columns = [ids.take(compute.list_parent_indices(matched)), subscriptions, bodies]
                yield pa.Table.from_arrays(columns, ["message_id", "subscription", "body"])

    id_type = "BIGINT" if snapshot.numeric else "STRING"
    return arrow_udtf(Match, returnType=f"message_id STRING, subscription {id_type}, body STRING")
