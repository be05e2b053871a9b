"""Columns of deliveries beside what matching finds: the subscriber, and for filters the message itself."""

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
"""A column with the message as text, for those who get it as it is."""
_ID, _NAME = "_sapwood_id", "_sapwood_subscriber"
_DECLARATION = re.compile(r"\s*<\?xml\s[^>]*\?>")


class SubscriberColumn:
    """Who is behind each subscription, as far as a name was given.

    The most frequent subscriber is the default, and only the others are joined with deliveries: usually a few
    have most subscriptions, and a table of them all would be broadcast with every batch.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._table: pa.Table | None = None
        self._default = ""

    def update(self, named: Iterable[tuple[str, str]]) -> None:
        """Takes in ids and their subscribers as they are from now on."""
        new = dict(named)
        if new:
            self._names |= new
            self._table = None

    def __getitem__(self, id: str) -> str:
        return self._names.get(id, "")

    def counted(self, by_subscription: Mapping[str, int]) -> Counter[str]:
        """Deliveries by subscriber, of deliveries by subscription; under "", those that have no name."""
        total: Counter[str] = Counter()
        for id, count in by_subscription.items():
            total[self[id]] += count
        return total

    def add_to(self, deliveries: DataFrame) -> DataFrame:
        """Deliveries with the column `subscriber` behind `subscription`; null where no name was given."""
        if self._table is None:
            self._default, self._table = self._tabled()
        place = deliveries.columns.index("subscription") + 1
        order = [*deliveries.columns[:place], "subscriber", *deliveries.columns[place:]]
        default = F.lit(self._default or None).cast("string")
        if not self._table.num_rows:
            return deliveries.withColumn("subscriber", default).select(*map(column, order))
        others = F.broadcast(deliveries.sparkSession.createDataFrame(self._table))
        found = deliveries.join(others, F.col("subscription") == F.col(_ID), "left")
        name = F.when(F.col(_ID).isNull(), default).otherwise(F.nullif(F.col(_NAME), F.lit("")))
        return found.withColumn("subscriber", name).select(*map(column, order))

    def _tabled(self) -> tuple[str, pa.Table]:
        frequent = Counter(self._names.values()).most_common(1)
        default = frequent[0][0] if frequent else ""
        others = {id: name for id, name in self._names.items() if name != default}
        ids, names = pa.array(others, pa.string()), pa.array(others.values(), pa.string())
        return default, pa.table([ids, names], names=[_ID, _NAME])


# -- the message itself --------------------------------------------------------------------------------------


def decode_text(body: bytes | str | None) -> str | None:
    """A message as text, without its XML declaration, whose encoding is no longer true."""
    if body is None:
        return None
    try:
        text = body if isinstance(body, str) else decode_message(body)
    except MessageError:
        return None  # it is a reject
    text = text.removeprefix("\ufeff")
    declaration = _DECLARATION.match(text)
    return text[declaration.end() :].lstrip() if declaration else text


def _add_text_column(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        body = batch.column(batch.num_columns - 1)
        for start in range(0, batch.num_rows, 32):  # a few at a time, since messages can be large
            texts = pa.array(map(decode_text, body.slice(start, 32).to_pylist()), pa.string())
            rows = batch.slice(start, 32)
            yield pa.RecordBatch.from_arrays(
                [*rows.columns[:-1], rows.column(batch.num_columns - 1), texts],
                [*batch.schema.names, TEXT],
            )


def add_text(messages: DataFrame) -> DataFrame:
    """Messages with themselves as text in a further column."""
    last = [*(name for name in messages.columns if name != "body"), "body"]
    ordered = messages.select(*map(column, last))
    # mapInArrow takes a name with a dot for a path, so it gets numbers
    numbered = ordered.toDF(*(f"_{place}" for place in range(len(last))))
    fields = [*ordered.schema.fields, StructField(TEXT, StringType())]
    return numbered.mapInArrow(_add_text_column, StructType(fields))


def fill_bodies(deliveries: DataFrame) -> DataFrame:
    """Deliveries whose body is the message itself where nothing was made of it."""
    return deliveries.withColumn("body", F.coalesce("body", TEXT)).drop(TEXT)
