"""Kafka as a sink: deliveries and rejects become records, at least once and with stable ids.

    key       an SQL expression of the row: by default the subscription, for rejects the message
    value     the body; or the row as JSON
    headers   those that the source kept, then `sapwood.delivery_id`, `sapwood.message_id`, …

A batch that is repeated after a crash writes its records again, with the same ids.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, TimestampType

from sapwood.spark.dataframe_match import column
from sapwood.spark.io.sinks import OF_JOIN, Sink, decode_binary
from sapwood.spark.kafka.kafka_failures import KafkaError, explain_sink_failure
from sapwood.spark.kafka.kafka_options import KAFKA, max_request_bytes
from sapwood.spark.kafka.topic_template import TopicTemplate

_log = logging.getLogger(__name__)
PREFIX = "sapwood."
"""How the names of Sapwood's headers begin."""
Value = Literal["body", "json"]
TEMPLATE_COLUMNS = {"deliveries": ("subscriber", "subscription", "stream"), "rejects": ("stream",)}
DEFAULT_KEYS = {"deliveries": "subscription", "rejects": "message_id"}
_HEADERS = "array<struct<key:string,value:binary>>"
_RECORD_BYTES, _FIELD_BYTES = 100, 5
"""The most that a record takes beside its fields, and a field beside its bytes."""
_BATCH_BYTES = 16_384
"""The producer's `batch.size`, if it is not set."""
_FIRST_VERSION = "spark.sql.sources.useV1SourceList"
"""The setting with the formats that Spark reads and writes by the first version of its interface."""
_SIZE, _RECORD = "_sapwood_size", "_sapwood_record"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSink(Sink):
    """Topics that rows are written to as records."""

    pipeline: str
    """the name of the pipeline, part of the ids of deliveries"""
    name: Literal["deliveries", "rejects"]
    """the table of the pipeline file, which errors name"""
    topic: TopicTemplate
    key: str
    value: Value = "body"

    def write(self, rows: DataFrame, batch: int) -> DataFrame | None:
        """Write a record for each row. Return the deliveries that are too large for a record, without body
        and with the reason; None if there are none. Too large a reject is cut."""
        _log.debug("writing batch %s to Kafka", batch)
        limit = max_request_bytes(self.options)
        records = rows.withColumn(_RECORD, self.build_record(rows, batch))
        records = records.withColumn(_SIZE, _measure(F.col(_RECORD)))
        is_large = F.col(_SIZE) > limit
        if self.name == "rejects":
            self._send(records.withColumn(_RECORD, self.cut_large(F.col(_RECORD))))
            return None
        observation = Observation()
        counted = records.observe(observation, F.count_if(is_large).alias("large"))
        self._send(counted.filter(~is_large))
        if not observation.get["large"]:
            return None
        reason = self.refuse_large(F.col(_RECORD))
        names = [name for name in rows.columns if name not in ("body", "messages")]  # which are large
        of_join = F.col("messages").isNotNull() if "messages" in rows.columns else F.lit(False)
        return records.filter(is_large).select(
            *map(column, names), reason.alias("reason"), of_join.alias(OF_JOIN)
        )

    @property
    def writer_options(self) -> dict[str, Any]:
        """The options for Spark's writer: of records that are too large together, the producer would make
        batches of that size again, without end."""
        return {"kafka.batch.size": str(min(_BATCH_BYTES, max_request_bytes(self.options)))} | self.options

    def _send(self, records: DataFrame) -> None:
        writer = records.select(f"{_RECORD}.*").write.format(KAFKA).options(**self.writer_options)
        try:
            with _observable(records.sparkSession):
                writer.mode("append").save()
        except Exception as error:
            explained = explain_sink_failure(
                error, self.name, self.options, lambda: _describe_largest(records)
            )
            if explained is None:
                raise
            raise explained from error

    def build_record(self, rows: DataFrame, batch: int | None = None) -> Column:
        """Return the record of a row, a struct; without a `batch`, it does not name one."""
        delivery_id = identify(rows, f"{self.pipeline}/{self.name}")
        value = self._json(rows, batch, delivery_id) if self.value == "json" else F.col("body").cast("binary")
        return F.struct(
            self.topic.select(rows).alias("topic"),
            self._key(rows),
            F.coalesce(value, F.lit(b"")).alias("value"),  # null would be a tombstone
            self._headers(rows, batch, delivery_id).alias("headers"),
        )

    def refuse_large(self, record: Column) -> Column:
        """Return the reason why a record is too large, or null."""
        limit, size = max_request_bytes(self.options), _measure(record)
        reason = F.concat(
            F.lit("too large for Kafka: a record of "),
            F.format_string("%,d", size),
            F.lit(f" bytes, of which options.'kafka.max.request.size' allows {limit:,}"),
        )
        return F.when(size > limit, reason)

    def cut_large(self, record: Column) -> Column:
        """Return the record, whose value is cut if it is too large."""
        limit, size = max_request_bytes(self.options), _measure(record)
        value = record["value"]
        rest = F.greatest(F.lit(0), F.lit(limit) - (size - F.octet_length(value)))
        cut = F.when(size > limit, F.substring(value, F.lit(1), rest)).otherwise(value)
        return record.withField("value", cut)

    def _key(self, rows: DataFrame) -> Column:
        key = F.expr(self.key).cast("binary").alias("key")
        try:
            rows.select(key)
        except AnalysisException as error:
            raise KafkaError(
                f"{self.name}.key: {self.key!r} cannot be evaluated: {str(error).splitlines()[0]} "
                f"It is an SQL expression of the columns {', '.join(rows.columns)}"
            ) from error
        return key

    def _json(self, rows: DataFrame, batch: int | None, delivery_id: Column) -> Column:
        """The row as JSON: columns, the batch and the id."""
        named = [_decoded(rows, name) for name in rows.columns]
        extra = [F.lit(batch).alias("batch"), delivery_id.alias("delivery_id")]
        return F.to_json(F.struct(*named, *extra)).cast("binary")

    def _headers(self, rows: DataFrame, batch: int | None, delivery_id: Column) -> Column:
        own: dict[str, Column] = {"delivery_id": delivery_id}
        names = ["message_id", "stream", "subscription", "subscriber", "version"]
        names += ["reason", "line", "column"] if self.name == "rejects" else []
        own |= {name: column(name) for name in names if name in rows.columns}
        own["batch"] = F.lit(batch)
        if "messages" in rows.columns:
            own["messages"] = F.to_json("messages")
        pairs = [
            F.struct(F.lit(PREFIX + name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in own.items()
        ]
        known = F.filter(F.array(*pairs), lambda header: header["value"].isNotNull()).cast(_HEADERS)
        kept = dict(rows.dtypes).get("headers")
        if kept != _HEADERS:
            return known
        of_source = F.filter("headers", lambda header: ~header["key"].startswith(PREFIX))
        return F.concat(F.coalesce(of_source, F.array().cast(_HEADERS)), known)


@contextmanager
def _observable(spark: SparkSession) -> Iterator[None]:
    """Write by the second version of Spark's interface; by the first, an Observation waits for ever."""
    former = spark.conf.get(_FIRST_VERSION)
    assert former is not None
    others = [name for name in former.split(",") if name != KAFKA]
    spark.conf.set(_FIRST_VERSION, ",".join(others))
    try:
        yield
    finally:
        spark.conf.set(_FIRST_VERSION, former)


def identify(rows: DataFrame, pipeline: str) -> Column:
    """Return the column with the id of a delivery, the same for the same message and subscription in every
    run: 128 bits in hexadecimal digits."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    of_message = [
        _text(name, types[name]) for name in ("stream", "message_id", "published_at") if name in types
    ]
    parts = [F.lit(pipeline), F.col("subscription"), *of_message]
    if "reason" in types:
        parts.append(F.col("reason"))
    digest = _digest(parts)
    if "messages" not in types:
        return digest
    # of a chain, the row has the columns of any of its newest messages
    joined = _digest([F.lit(pipeline), F.col("subscription"), F.to_json("messages")])
    return F.when(F.col("messages").isNull(), digest).otherwise(joined)


def _text(name: str, type: DataType) -> Column:
    """The text of a column, whatever time zone the session has."""
    return (F.unix_micros(name) if type == TimestampType() else F.col(name)).cast("string")


def _digest(parts: list[Column]) -> Column:
    return F.substring(F.sha2(F.to_json(F.array(*parts)), 256), 1, 32)


def _decoded(rows: DataFrame, name: str) -> Column:
    kind = dict(rows.dtypes)[name]
    return (decode_binary(name) if kind == "binary" else column(name)).alias(name)


def _measure(record: Column) -> Column:
    """The upper bound of the size of a record, as the producer estimates it."""

    def measure(field: Column) -> Column:
        return F.coalesce(F.octet_length(field), F.lit(0)).cast("long") + _FIELD_BYTES

    of_headers = F.aggregate(
        record["headers"],
        F.lit(0).cast("long"),
        lambda size, header: size + measure(header["key"]) + measure(header["value"]),
    )
    return measure(record["key"]) + measure(record["value"]) + of_headers + _RECORD_BYTES


def _describe_largest(records: DataFrame) -> str:
    """Describe the largest record of a batch, for an error."""
    [row] = records.orderBy(F.desc(_SIZE)).limit(1).select("message_id", "subscription", _SIZE).collect()
    whose = f" for {row['subscription']!r}" if row["subscription"] is not None else ""
    return f"that of {row['message_id']!r}{whose}, {row[_SIZE]:,} bytes"
