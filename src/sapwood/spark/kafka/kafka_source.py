"""Kafka as a source: records become messages.

body           value                    or another SQL expression of the record
message_id     topic/partition/offset
published_at   timestamp
problem        for a record without a value, a tombstone, which is a reject or skipped, but never a message
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sapwood.spark.dataframe_match import PROBLEM
from sapwood.spark.kafka.kafka_options import KAFKA

TOMBSTONE = "the record has no value (a tombstone)"
"""The reason why a record without a value is a reject."""
Tombstones = Literal["reject", "skip"]
_ID = "concat_ws('/', topic, partition, offset)"


def open_records(
    spark: SparkSession, options: Mapping[str, str], expressions: tuple[str, ...], streaming: bool
) -> DataFrame:
    """Open topics as a stream or a table of records, with headers if one of the expressions reads them."""
    reader: Any = spark.readStream if streaming else spark.read
    headers = any(re.search(r"\bheaders\b", expression) for expression in expressions)
    with_headers = {"includeHeaders": "true"} if headers else {}
    frame: DataFrame = reader.format(KAFKA).options(**with_headers).options(**options).load()
    return frame


def select_records(
    records: DataFrame,
    *,
    body: str = "value",
    id: str | None = None,
    published_at: str | None = None,
    keep: tuple[str, ...] = (),
    tombstones: Tombstones = "reject",
    max_bytes: int | None = None,
) -> DataFrame:
    """Select messages from records; of a value of more than `max_bytes`, one byte more than that, which is
    enough to refuse it."""
    if tombstones == "skip":
        records = records.filter("value IS NOT NULL")
    content = F.expr(body)
    if body == "value" and max_bytes is not None:
        content = F.when(
            F.octet_length("value") > max_bytes, F.substring("value", 1, max_bytes + 1)
        ).otherwise(content)
    problem = F.when(F.col("value").isNull(), F.lit(TOMBSTONE))
    return records.select(
        F.expr(id or _ID).cast("string").alias("message_id"),
        content.alias("body"),
        F.expr(published_at or "timestamp").alias("published_at"),
        *(F.expr(column) for column in keep),
        problem.cast("string").alias(PROBLEM),
    )
