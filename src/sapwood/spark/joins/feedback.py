"""Feedback: rows that a batch passes to the next: partial matches of chains, and published messages.

    batch N ── EmitJoins ──► feedback/N ──► one more source of the stream ── ReadFeedback ──► batch N + 1

A folder is written before its batch is committed, and overwritten if the batch runs again. It is removed when
Spark has committed the batch that has read it. Feedback is never late, whatever the watermark is by then; and
until all that comes of it is joined, nothing is evicted that its first message might be joined with.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

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
from sapwood.spark.io.file_system import list_names, open_file, remove_folder
from sapwood.spark.joins.schema import (
    CHAIN,
    FOREVER,
    RETAIN,
    WITNESS_SCHEMA,
    FeedbackRow,
    MessageColumns,
    WitnessRow,
    deserialize_message,
    serialize_message,
    spark_schema,
    to_arrow,
)
from sapwood.spark.joins.witness_extraction import WitnessExtractor, load_batch_broker

_log = logging.getLogger(__name__)
_ROWS_PER_READ = 64
"""since messages can be large"""
_EPOCH = datetime.fromtimestamp(0, UTC)


def chain_feedback(message: PortableMessage, floor: int, columns: bytes) -> FeedbackRow:
    """The feedback of the first messages of a chain."""
    return FeedbackRow(None, None, -1, 0, floor, serialize_message(message), columns)


def published_feedback(made: Published, piece: int, floor: int) -> FeedbackRow:
    """The feedback of a message that a query publishes."""
    message = made.message
    record = StoredMessage(made.id, made.stream, made.time, 0, message.data, message.encoding)
    data = serialize_message(PortableMessage((record,), []))
    return FeedbackRow(made.stream, made.id, made.query, piece, floor, data, b"")


class FeedbackFolder:
    """The folder of a checkpoint with the feedback of its batches."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, feedback: DataFrame, batch: int) -> None:
        """Write the feedback of a batch, which must not be empty; messages of one id become copies."""
        same_id = Window.partitionBy("stream", "id").orderBy("query", "piece")
        chains = feedback.filter("stream IS NULL").withColumn("copy", F.lit(1))
        others = feedback.filter("stream IS NOT NULL").withColumn("copy", F.row_number().over(same_id))
        rows = chains.unionByName(others).drop("query", "piece")
        rows.write.mode("overwrite").parquet(f"{self._folder}/{batch}")
        _log.debug("feedback of batch %d written", batch)

    def remove(self, batch: int) -> None:
        """Remove the feedback of a batch, which may have been written before a crash."""
        remove_folder(f"{self._folder}/{batch}")

    def open(self, spark: SparkSession, reader: ReadFeedback) -> DataFrame:
        """Open the feedback as a stream of rows of `WITNESS_SCHEMA`."""
        spark.dataSource.register(FeedbackSource)
        files = spark.readStream.format(FeedbackSource.name()).option("path", self._folder).load()
        return files.mapInArrow(reader, spark_schema(WITNESS_SCHEMA))


# -- the source --------------------------------------------------------------------------------------------


class FeedbackSource(DataSource):
    """A streaming source of Spark: the paths of the files in a feedback folder, batch by batch."""

    @classmethod
    def name(cls) -> str:
        return "sapwood-feedback"

    def schema(self) -> str:
        return "path STRING"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _FeedbackStreamReader(self.options["path"])


class _FeedbackStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the last batch of which all was read."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes no last batch: the feedback of the messages that are there now belongs to them."""

    def initialOffset(self) -> dict[str, int]:
        return {"batch": -1}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"batch": max([start["batch"], *self._batches()])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [
            InputPartition(f"{self._folder}/{batch}/{name}")
            for batch in sorted(self._batches())
            if start["batch"] < batch <= end["batch"]
            for name in sorted(list_names(f"{self._folder}/{batch}"))
            if name.endswith(".parquet")
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield (partition.value,)

    def commit(self, end: dict[str, int]) -> None:
        for batch in self._batches():
            if batch <= end["batch"]:
                remove_folder(f"{self._folder}/{batch}")

    def _batches(self) -> list[int]:
        return [int(name) for name in list_names(self._folder) if name.isdigit()]


@dataclass(frozen=True, slots=True)
class ReadFeedback:
    """A function for `mapInArrow`: paths of files in, rows of `WITNESS_SCHEMA` out."""

    snapshots: str
    """the folder of the snapshots"""
    names: tuple[str | None, ...]
    """of the messages' columns; None for those that a published message has no value for"""
    columns: list[pa.DataType]
    """types of the messages' columns"""
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        extractor = WitnessExtractor(load_batch_broker(self.snapshots), self.buckets)
        columns = MessageColumns(self.columns)
        floor = FOREVER
        for batch in batches:
            for path in batch.column(0).to_pylist():
                for feedback in self._read(path):
                    rows: list[WitnessRow] = []
                    for each in feedback.to_pylist():
                        rows += self._extract(extractor, columns, **each)
                    floor = min([floor, *(row.floor for row in rows if row.floor >= 0)])
                    yield to_arrow(rows, WITNESS_SCHEMA)
        if floor < FOREVER:
            retained = [WitnessRow(bucket, RETAIN, floor=floor) for bucket in range(self.buckets)]
            yield to_arrow(retained, WITNESS_SCHEMA)

    def _read(self, path: str) -> Iterator[pa.RecordBatch]:
        with open_file(path) as file:
            try:
                parquet = pq.ParquetFile(file)
            except pa.ArrowInvalid as error:
                raise ValueError(
                    f"{path}, the feedback of an earlier batch for this one, is damaged ({error}); its "
                    "content is lost, and its folder may be removed"
                ) from None
            yield from parquet.iter_batches(_ROWS_PER_READ)

    def _extract(
        self,
        extractor: WitnessExtractor,
        message_columns: MessageColumns,
        stream: str | None,
        id: str | None,
        copy: int,
        floor: int,
        message: bytes,
        columns: bytes,
    ) -> list[WitnessRow]:
        """The rows of one row of feedback."""
        stored = deserialize_message(message)
        if stream is None:
            return extractor.state_rows(CHAIN, _chain_name(stored), stored, columns, floor)
        assert id is not None
        record = stored.records[0]
        id = delivery_id(id, copy)
        known = {"message_id": id, "stream": stream, "published_at": _to_datetime(record.time)}
        values = [known[name] if name is not None else None for name in self.names]
        published = Message(record.data)
        published.encoding = record.encoding
        own = message_columns.serialize_values(values)
        rows, _ = extractor.extract_message(stream, id, own, published, lambda found: record.time, floor)
        return rows


def _chain_name(message: PortableMessage) -> bytes:
    """A name that no message has: no stream's name begins like it."""
    records = repr([(r.stream, r.id, r.time, r.visible_from) for r in message.records])
    digest = blake2b(records.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return b"\1" + message.chain + digest


def _to_datetime(time: float) -> datetime | None:
    try:
        return _EPOCH + timedelta(seconds=time)
    except OverflowError:
        return None  # before the first year
