"""How what comes of a batch gets into the next one: the first messages of chains, and what queries publish.

    batch N ── Meet ──► onward/N ──► one more source of the stream ── ReadOn ──► rows of batch N + 1

A folder is written before its batch is on record, and written anew if the batch is served again. It goes when
Spark has noted the batch that has read it. What is in it has not come too late, whatever the watermark is by
then; and until all that comes of it is done, nothing is dropped that the first of it might have met.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sapwood.broker.delivery import Published, delivery_id
from sapwood.engine.message.message_reader import Message
from sapwood.join.state.message_state import StoredMessage
from sapwood.join.state.portable_state import PortableMessage
from sapwood.spark.io.storage import names_in, open_file, remove_folder
from sapwood.spark.joins.witness_extraction import (
    CHAIN,
    FOREVER,
    HOLD,
    ROWS,
    WitnessExtractor,
    WitnessRow,
    as_arrow,
    deserialize_message,
    load_batch_broker,
    serialize_message,
)

FEEDBACK = pa.struct(
    [
        ("stream", pa.string()),
        ("id", pa.string()),
        ("query", pa.int32()),
        ("piece", pa.int32()),
        ("floor", pa.int64()),
        ("record", pa.binary()),
        ("row", pa.binary()),
    ]
)
"""the type of a column with what goes on"""
_FEW = 64
"""rows that are read at a time, since messages can be large"""
_EPOCH = datetime.fromtimestamp(0, UTC)


class FeedbackRow(NamedTuple):
    """Something that goes on."""

    stream: str | None
    """that it is published to; None for a chain"""
    id: str | None
    query: int
    piece: int
    """its place among what the query publishes of the same messages"""
    floor: int
    """a watermark: of nothing that it comes of was before it. -1 for what was too late, and still is"""
    record: bytes
    row: bytes
    """of a chain: the columns of its newest message"""


def chain_feedback(kept: PortableMessage, floor: int, values: tuple[Any, ...]) -> FeedbackRow:
    """The first messages of a chain."""
    return FeedbackRow(None, None, -1, 0, floor, serialize_message(kept), pickle.dumps((values, None, [])))


def published_feedback(made: Published, piece: int, floor: int) -> FeedbackRow:
    """A message that a query publishes."""
    message = made.message
    record = StoredMessage(made.id, made.stream, made.time, 0, message.data, message.encoding)
    return FeedbackRow(
        made.stream, made.id, made.query, piece, floor, serialize_message(PortableMessage((record,), [])), b""
    )


class FeedbackFolder:
    """The folder of a pipeline."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, going: DataFrame, batch: int) -> None:
        """Puts away what goes on from a batch, of which there must be something."""
        alike = Window.partitionBy("stream", "id").orderBy("query", "piece")
        chains = going.filter("stream IS NULL").withColumn("copy", F.lit(1))
        others = going.filter("stream IS NOT NULL").withColumn("copy", F.row_number().over(alike))
        rows = chains.unionByName(others).drop("query", "piece")
        rows.write.mode("overwrite").parquet(f"{self._folder}/{batch}")

    def remove(self, batch: int) -> None:
        """Sees to it that nothing goes on from a batch, whatever was before a crash."""
        remove_folder(f"{self._folder}/{batch}")

    def open(
        self, spark: SparkSession, posted: str, columns: tuple[str | None, ...], buckets: int
    ) -> DataFrame:
        """What goes on, as a stream of rows: see `joining` and `ReadFeedback`."""
        spark.dataSource.register(_Batches)
        files = spark.readStream.format(_Batches.name()).option("path", self._folder).load()
        return files.mapInArrow(ReadFeedback(posted, columns, buckets), ROWS)


# -- a source ----------------------------------------------------------------------------------------------


class _Batches(DataSource):
    """The files of a folder, batch by batch."""

    @classmethod
    def name(cls) -> str:
        return "sapwood-onward"

    def schema(self) -> str:
        return "path STRING"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _BatchReader(self.options["path"])


class _BatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the last batch of which all was read."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes no last batch: what comes of the messages that are there now belongs to them."""

    def initialOffset(self) -> dict[str, int]:
        return {"batch": -1}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"batch": max([start["batch"], *self._batches()])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [
            InputPartition(f"{self._folder}/{batch}/{name}")
            for batch in sorted(self._batches())
            if start["batch"] < batch <= end["batch"]
            for name in sorted(names_in(f"{self._folder}/{batch}"))
            if name.endswith(".parquet")
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield (partition.value,)

    def commit(self, end: dict[str, int]) -> None:
        for batch in self._batches():
            if batch <= end["batch"]:
                remove_folder(f"{self._folder}/{batch}")

    def _batches(self) -> list[int]:
        return [int(name) for name in names_in(self._folder) if name.isdigit()]


@dataclass(frozen=True, slots=True)
class ReadFeedback:
    """A function for `mapInArrow`: paths of files in, rows out."""

    posted: str
    """where the snapshots are"""
    columns: tuple[str | None, ...]
    """of messages; None for those that a published message has no value for"""
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        speaker = WitnessExtractor(load_batch_broker(self.posted), self.buckets)
        floor = FOREVER
        for batch in batches:
            for path in batch.column(0).to_pylist():
                for rows in self._read(path, speaker):
                    floor = min([floor, *(row.floor for row in rows if row.floor >= 0)])
                    yield as_arrow(rows)
        if floor < FOREVER:
            yield as_arrow([WitnessRow(bucket, HOLD, floor=floor) for bucket in range(self.buckets)])

    def _read(self, path: str, speaker: WitnessExtractor) -> Iterator[list[WitnessRow]]:
        with open_file(path) as file:
            try:
                parquet = pq.ParquetFile(file)
            except pa.ArrowInvalid as error:
                raise ValueError(
                    f"{path}, which an earlier batch has left for this one, is damaged ({error}); what it "
                    "held is lost, and its folder may be removed"
                ) from None
            for going in parquet.iter_batches(_FEW):
                rows: list[WitnessRow] = []
                for each in going.to_pylist():
                    rows += self._rows(speaker, **each)
                yield rows

    def _rows(
        self,
        speaker: WitnessExtractor,
        stream: str | None,
        id: str | None,
        copy: int,
        floor: int,
        record: bytes,
        row: bytes,
    ) -> list[WitnessRow]:
        kept = deserialize_message(record)
        if stream is None:
            return speaker.kept(CHAIN, _name_of_chain(kept), kept, row, floor)
        assert id is not None
        before = kept.records[0]
        known = {"message_id": delivery_id(id, copy), "stream": stream, "published_at": _moment(before.time)}
        values = tuple([known[name] if name is not None else None for name in self.columns])
        message = Message(before.data)
        message.encoding = before.encoding
        rows, _ = speaker.message(stream, values, message, lambda evaluator: before.time, floor)
        return rows


def _name_of_chain(kept: PortableMessage) -> bytes:
    """What is never the name of a message: no stream's name begins like it."""
    records = repr([(r.stream, r.id, r.time, r.sequence) for r in kept.records])
    return b"\1" + kept.chain + blake2b(records.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _moment(time: float) -> datetime | None:
    try:
        return _EPOCH + timedelta(seconds=time)
    except OverflowError:
        return None  # before the first year
