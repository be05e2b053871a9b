"""Feedback: rows that a batch passes to the next: partial matches of chains, and published messages.

    batch N ── EmitJoins ──► feedback/N ──► one more source of the stream ── ReadFeedback ──► batch N + 1

A folder is written before its batch is committed, and emptied if the batch runs again. It is removed when
Spark has committed the batch that has read it. Feedback is never late, whatever the watermark is by then; and
until all that comes of it is joined, nothing is evicted that its first message might be joined with.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sapwood.broker.delivery import Published, delivery_id
from sapwood.engine.index import IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.join.state.portable_state import PortableMessage
from sapwood.spark.distribution.match_worker import load_broker
from sapwood.spark.io.file_system import (
    list_names,
    local_path,
    make_folder,
    move_file,
    open_file,
    open_output,
    remove_folder,
)
from sapwood.spark.joins.schema import (
    FEEDBACK_SCHEMA,
    FeedbackRow,
    LogRow,
    deserialize_ways,
    serialize_ways,
    to_arrow,
)
from sapwood.spark.joins.witness_extraction import MessageExtraction, load_batch_plan

_log = logging.getLogger(__name__)
_ENDING = ".arrow"
_ROWS_PER_WRITE, _BYTES_PER_WRITE = 64, 16 << 20
"""the maximal size of an Arrow batch of feedback, since messages can be large"""
_EPOCH = datetime.fromtimestamp(0, UTC)


def chain_feedback(message: PortableMessage, floor: int, origin: int) -> FeedbackRow:
    """The feedback of the first messages of a chain, as positions in the message log."""
    return FeedbackRow(
        stream=None,
        id=None,
        query=-1,
        piece=0,
        floor=floor,
        time=message.time,
        version=message.visible_from,
        body=None,
        encoding=None,
        chain=message.chain,
        ways=serialize_ways(message.ways),
        records=[record.arrival for record in message.records],
        origin=origin,
    )


def published_feedback(made: Published, piece: int, floor: int) -> FeedbackRow:
    """The feedback of a message that a query publishes."""
    message = made.message
    return FeedbackRow(
        made.stream, made.id, made.query, piece, floor, made.time, 0, message.data, message.encoding
    )


class FeedbackWriter:
    """Writes the feedback that one task makes; there is no file unless there is any.

    The file appears as a whole: another attempt of the task must not leave a part of it, or harm it.
    """

    def __init__(self, folder: str, name: str) -> None:
        self._folder = folder
        self._path = f"{folder}/{name}{_ENDING}"
        in_place = local_path(folder) is None  # in an object store, which has no rename
        self._written = self._path if in_place else f"{folder}/{name}-{uuid4().hex}.unfinished"
        self._file: Any = None
        self._writer: Any = None
        self._rows: list[FeedbackRow] = []
        self._bytes = 0

    def add(self, row: FeedbackRow) -> None:
        self._rows.append(row)
        self._bytes += len(row.body or b"") + len(row.ways)
        if len(self._rows) >= _ROWS_PER_WRITE or self._bytes >= _BYTES_PER_WRITE:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            make_folder(self._folder)
            self._file = open_output(self._written)
            self._writer = pa.ipc.new_file(self._file, FEEDBACK_SCHEMA)
        self._writer.write_batch(to_arrow(self._rows, FEEDBACK_SCHEMA))
        self._rows, self._bytes = [], 0

    def close(self) -> None:
        """Finish the file."""
        if self._rows:
            self._write()
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            if self._written != self._path:
                move_file(self._written, self._path)


class FeedbackFolder:
    """The folder of a checkpoint with the feedback of its batches."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def begin(self, batch: int) -> str:
        """Return the folder for the feedback of a batch, without what a crash may have left there."""
        folder = f"{self._folder}/{batch}"
        remove_folder(folder)
        return folder

    def open(self, spark: SparkSession, reader: ReadFeedback, schema: StructType) -> DataFrame:
        """Open the feedback as a stream of rows of the batch."""
        spark.dataSource.register(FeedbackSource)
        files = spark.readStream.format(FeedbackSource.name()).option("path", self._folder).load()
        return files.mapInArrow(reader, schema)


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
            for name in _list_files(f"{self._folder}/{batch}")
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield (partition.value,)

    def commit(self, end: dict[str, int]) -> None:
        for batch in self._batches():
            if batch <= end["batch"]:
                remove_folder(f"{self._folder}/{batch}")

    def _batches(self) -> list[int]:
        return [int(name) for name in list_names(self._folder) if name.isdigit()]


def _list_files(folder: str) -> list[str]:
    return sorted(name for name in list_names(folder) if name.endswith(_ENDING))


def _read_rows(path: str) -> Iterator[FeedbackRow]:
    with open_file(path) as file:
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"{path}, the feedback of an earlier batch for this one, is damaged ({error}); its "
                "content is lost, and its folder may be removed"
            ) from None
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            yield from map(FeedbackRow, *(column.to_pylist() for column in batch.columns))


def _number_copies(path: str) -> list[int]:
    """For each row of a file of feedback, its number among the published messages of the same id in all files
    of its batch, from 1."""
    folder = path.rpartition("/")[0]
    keys = [
        (row.stream, row.id, row.query, row.piece, name, number)
        for name in _list_files(folder)
        for number, row in enumerate(_read_rows(f"{folder}/{name}"))
        if row.stream is not None
    ]
    keys.sort()
    seen: Counter[tuple[str, str | None]] = Counter()
    copies: dict[tuple[str, int], int] = {}
    for stream, id, _, _, name, number in keys:
        seen[stream, id] += 1
        copies[name, number] = seen[stream, id]
    own = path.rpartition("/")[2]
    return [copies.get((own, number), 1) for number in range(sum(1 for _ in _read_rows(path)))]


@dataclass(frozen=True, slots=True)
class ReadFeedback:
    """A function for `mapInArrow`: paths of files in, rows of `batch_schema` out."""

    plans: str
    """the folder of the plans"""
    log: str
    """the folder of the log's files"""
    names: tuple[str | None, ...]
    """of the messages' columns; None for those that a published message has no value for"""
    columns: list[pa.DataType]
    """types of the messages' columns"""
    text: bool
    """whether bodies are strings"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = load_batch_plan(self.plans)
        live = load_broker(plan.snapshot)
        with MessageExtraction(live, plan.watermark, self.log, self.columns, self.text) as extraction:
            for batch in batches:
                for path in batch.column(0).to_pylist():
                    yield from self._extract(extraction, path)
            yield extraction.finish(-1)

    def _extract(self, extraction: MessageExtraction, path: str) -> Iterator[pa.RecordBatch]:
        published: list[tuple[FeedbackRow, str]] = []
        for row, copy in zip(_read_rows(path), _number_copies(path), strict=True):
            extraction.retain_from(row.floor)
            if row.stream is None:
                extraction.add_chain(_chain_row(row), deserialize_ways(row.ways))
                continue
            assert row.id is not None
            published.append((row, delivery_id(row.id, copy)))
            if len(published) == _ROWS_PER_WRITE:
                yield from self._extract_published(extraction, published)
                published = []
        if published:
            yield from self._extract_published(extraction, published)

    def _extract_published(
        self, extraction: MessageExtraction, published: list[tuple[FeedbackRow, str]]
    ) -> Iterator[pa.RecordBatch]:
        known: dict[str, list[Any]] = {
            "message_id": [id for _, id in published],
            "stream": [row.stream for row, _ in published],
            "published_at": [_to_datetime(row.time) for row, _ in published],
        }
        columns = [
            pa.array(known[name], type) if name is not None else pa.nulls(len(published), type)
            for name, type in zip(self.names, self.columns, strict=True)
        ]
        bodies = [row.body or b"" for row, _ in published]
        if self.text:
            array = pa.array([body.decode("utf-8", "surrogatepass") for body in bodies], pa.string())
        else:
            array = pa.array(bodies, pa.binary())
        extraction.begin(columns, array)
        for (row, id), body in zip(published, bodies, strict=True):
            message = Message(body)
            message.encoding = row.encoding
            extraction.add(row.stream or "", id, message, _constant(row.time), row.floor)
            if extraction.full:
                yield extraction.take()
        yield extraction.take()


def _constant(time: float) -> Callable[[IndexMatches], float]:
    return lambda found: time


def _chain_row(row: FeedbackRow) -> LogRow:
    records = row.records
    # a name that no message has: no stream's name begins like it
    name = b"\1" + row.chain + b"".join(position.to_bytes(8, "big") for position in records)
    return LogRow(
        "", name, row.time, row.version, b"", None, row.ways, b"", row.floor, row.chain, records, row.origin
    )


def _to_datetime(time: float) -> datetime | None:
    try:
        return _EPOCH + timedelta(seconds=time)
    except OverflowError:
        return None  # before the first year
