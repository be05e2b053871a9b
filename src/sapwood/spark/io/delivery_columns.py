"""Columns that are added to deliveries: the subscriber, and for filters the message itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sapwood.engine.message.encoding import decode_message
from sapwood.errors import MessageError
from sapwood.spark.dataframe_match import column

TEXT = "_message"
"""The column with the message as text, the body of filters' deliveries."""
_ID, _NAME = "_sapwood_id", "_sapwood_subscriber"
_DECLARATION = re.compile(r"\s*<\?xml\s[^>]*\?>")


class SubscriberColumn:
    """The names of subscribers by subscription, and the column that is made of them.

    The most frequent subscriber is the default, and only the others are joined with deliveries: usually a few
    have most subscriptions, and a table of them all would be broadcast with every batch.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._table: pa.Table | None = None
        self._default = ""

    def update(self, subscribers: Iterable[tuple[str, str]]) -> None:
        """Add or replace pairs of a subscription's id and its subscriber."""
        new = dict(subscribers)
        if new:
            self._names |= new
            self._table = None

    def __getitem__(self, id: str) -> str:
        return self._names.get(id, "")

    def count(self, by_subscription: Mapping[str, int]) -> Counter[str]:
        """Sum deliveries by subscription to deliveries by subscriber; the key "" is for no subscriber."""
        total: Counter[str] = Counter()
        for id, count in by_subscription.items():
            total[self[id]] += count
        return total

    def add_to(self, deliveries: DataFrame) -> DataFrame:
        """Insert the column `subscriber` after `subscription`; it is null without a subscriber."""
        if self._table is None:
            self._default, self._table = self._build_table()
        after = deliveries.columns.index("subscription") + 1
        order = [*deliveries.columns[:after], "subscriber", *deliveries.columns[after:]]
        default = F.lit(self._default or None).cast("string")
        if not self._table.num_rows:
            return deliveries.withColumn("subscriber", default).select(*map(column, order))
        others = F.broadcast(deliveries.sparkSession.createDataFrame(self._table))
        found = deliveries.join(others, F.col("subscription") == F.col(_ID), "left")
        name = F.when(F.col(_ID).isNull(), default).otherwise(F.nullif(F.col(_NAME), F.lit("")))
        return found.withColumn("subscriber", name).select(*map(column, order))

    def _build_table(self) -> tuple[str, pa.Table]:
        """Return the most frequent subscriber, and a table of all others."""
        frequent = Counter(self._names.values()).most_common(1)
        default = frequent[0][0] if frequent else ""
        others = {id: name for id, name in self._names.items() if name != default}
        ids, names = pa.array(others, pa.string()), pa.array(others.values(), pa.string())
        return default, pa.table([ids, names], names=[_ID, _NAME])


# -- the message itself --------------------------------------------------------------------------------------


def decode_text(body: bytes | str | None) -> str | None:
    """Decode a message, and remove its XML declaration, whose encoding no longer applies."""
    if body is None:
        return None
    try:
        text = body if isinstance(body, str) else decode_message(body)
    except MessageError:
        return None  # it becomes a reject
    text = text.removeprefix("\ufeff")
    declaration = _DECLARATION.match(text)
    return text[declaration.end() :].lstrip() if declaration else text


def _add_text_column(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Append the text of the last column, on a worker."""
    for batch in batches:
        body = batch.column(batch.num_columns - 1)
        for start in range(0, batch.num_rows, 32):  # a few messages at a time, since they can be large
            texts = pa.array(map(decode_text, body.slice(start, 32).to_pylist()), pa.string())
            rows = batch.slice(start, 32)
            yield pa.RecordBatch.from_arrays(
                [*rows.columns[:-1], rows.column(batch.num_columns - 1), texts],
                [*batch.schema.names, TEXT],
            )


def add_text(messages: DataFrame) -> DataFrame:
    """Add the column TEXT to messages."""
    last = [*(name for name in messages.columns if name != "body"), "body"]
    ordered = messages.select(*map(column, last))
    # mapInArrow takes a name with a dot for a path, so it gets numbers
    numbered = ordered.toDF(*(f"_{number}" for number in range(len(last))))
    fields = [*ordered.schema.fields, StructField(TEXT, StringType())]
    return numbered.mapInArrow(_add_text_column, StructType(fields))


def fill_bodies(deliveries: DataFrame) -> DataFrame:
    """Replace a null body, that of a filter's delivery, by the message itself."""
    return deliveries.withColumn("body", F.coalesce("body", TEXT)).drop(TEXT)
