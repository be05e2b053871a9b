"""The last stage of a stream with joins: joins the messages of a batch with a bucket of the state.

All buckets join all messages of the batch, in the order of their event times; each inserts its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sapwood.broker.delivery import GroupedDelivery
from sapwood.broker.distributed_broker import DistributedBroker
from sapwood.engine.failures import Failure
from sapwood.join.results import Meetings
from sapwood.join.state.message_state import CurrentItem, StoredMessage
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.distribution.match_worker import load_broker
from sapwood.spark.io.message_text import decode_text
from sapwood.spark.joins.feedback import FeedbackWriter, chain_feedback, published_feedback
from sapwood.spark.joins.join_state import BucketState, BucketVersion, buckets_of, load_bucket
from sapwood.spark.joins.message_log import LogFile, LogReader
from sapwood.spark.joins.schema import (
    LOG_COLUMNS,
    FeedbackRow,
    LogRow,
    delivery_schema,
    deserialize_numbers,
    deserialize_ways,
)

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

_ROWS, _BYTES = 10_000, 32 << 20
"""of an Arrow batch"""
_ROWS_PER_READ = 64
"""messages of the batch in memory at a time, since they can be large"""
_ROW_BYTES = 200
"""of a delivery beside its body, about"""


class _DeliveryBuilder:
    """A builder of Arrow batches: the columns of a message, and a result or a failure for a subscription."""

    def __init__(self, messages: BatchMessages, schema: pa.Schema) -> None:
        self._messages = messages
        self._schema = schema
        self._clear()

    def _clear(self) -> None:
        self._rows: list[int] = []
        self._values: list[tuple[Any, ...]] = []
        self._subscriptions: list[str] = []
        self._counts: list[int] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._subscriptions)

    def add(
        self, row: int, subscriptions: Sequence[str], values: tuple[Any, ...], size: int
    ) -> Iterator[pa.RecordBatch]:
        """Add a result of the message in a row of the batch, and yield the rows that are then many enough."""
        while subscriptions:
            room = max(1, min(_ROWS - len(self), (_BYTES - self._bytes) // (size + _ROW_BYTES)))
            some, subscriptions = subscriptions[:room], subscriptions[room:]
            self._rows.append(row)
            self._values.append(values)
            self._subscriptions += some
            self._counts.append(len(some))
            self._bytes += (size + _ROW_BYTES) * len(some)
            if len(self) >= _ROWS or self._bytes >= _BYTES:
                yield self.take()

    def take(self) -> pa.RecordBatch:
        """All rows since the last call, at least one."""
        repeated = pa.array(np.repeat(np.arange(len(self._rows)), self._counts))
        own = [column.take(repeated) for column in self._messages.take_columns(self._rows)]
        types = self._schema.types[len(own) + 1 :]
        columns = list(zip(*self._values, strict=True))
        values = [pa.array(column, type).take(repeated) for column, type in zip(columns, types, strict=True)]
        arrays = [*own, pa.array(self._subscriptions, pa.string()), *values]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """A message of the batch, or the first messages of a chain."""

    row: int
    """in the batch"""
    position: int
    records: tuple[StoredMessage, ...]
    floor: int
    origin: int
    """the position of the message that has the columns"""
    single_blocks: list[int]
    items: list[CurrentItem]


class BatchMessages:
    """The messages of a batch in the log, in the order in which they are joined.

    Rows are taken from one Arrow batch of the log at a time: Arrow would copy a column of several as a whole
    first, all bodies of a batch for every few messages.
    """

    def __init__(self, reader: LogReader, files: Sequence[LogFile], types: Sequence[pa.DataType]) -> None:
        self._reader = reader
        read = [each for file in files for each in reader.open(file).iter_batches()]
        self._batches = [batch for batch, _ in read]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self._positions = np.concatenate([positions for _, positions in read] or [np.empty(0, np.int64)])
        self._types = list(types)
        self._origins = self._read_numbers("origin")

    def _read_numbers(self, name: str) -> NDArray[Any]:
        columns = [batch.column(name).to_numpy(zero_copy_only=False) for batch in self._batches]
        return np.concatenate([*columns, np.empty(0, np.int64)])

    def _locate(self, row: int) -> tuple[pa.RecordBatch, int]:
        """The Arrow batch with a row, and its place there."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        return self._batches[number], row - int(self._starts[number])

    def take_columns(self, rows: Sequence[int]) -> list[pa.Array]:
        """The messages' columns in some rows; those of a chain are the columns of one of its messages."""
        distinct, places = np.unique(np.array(rows, np.int64), return_inverse=True)
        located = []
        for row in distinct.tolist():
            origin = int(self._origins[row])
            located.append(self._locate(row) if origin < 0 else self._reader.locate(origin))
        width = len(self._types)
        taken = [
            batch.select(range(width)).take(pa.array(found, pa.int64())) for batch, found in _group(located)
        ]
        return [
            pa.concat_arrays([batch.column(number) for batch in taken]).take(pa.array(places))
            for number in range(width)
        ]

    def iter(self, broker: DistributedBroker) -> Iterator[BatchMessage]:
        """Yield the messages, earlier ones first."""
        times = np.floor(self._read_numbers("time") * 1000)
        names = [name for batch in self._batches for name in batch.column("name").to_pylist()]
        order = sorted(range(len(names)), key=lambda row: (times[row], names[row]))
        for start in range(0, len(order), _ROWS_PER_READ):
            rows = order[start : start + _ROWS_PER_READ]
            values = chain.from_iterable(
                self._read_rows(batch, found) for batch, found in _group(map(self._locate, rows))
            )
            for row, (id, *logged) in zip(rows, values, strict=True):
                yield self._restore(row, id, LogRow(*logged), broker)

    def _read_rows(self, batch: pa.RecordBatch, rows: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """The ids of messages in some rows of an Arrow batch, each with the columns of the log."""
        read = batch.select([0, *LOG_COLUMNS.names]).take(pa.array(rows, pa.int64()))
        return zip(*(column.to_pylist() for column in read.columns), strict=True)

    def _restore(self, row: int, id: Any, logged: LogRow, broker: DistributedBroker) -> BatchMessage:
        position = int(self._positions[row])
        is_chain = bool(logged.chain)
        time, version = logged.time, logged.version
        if is_chain:
            records = tuple([self._reader.load(each) for each in logged.records])
        else:
            body, encoding = logged.body, logged.encoding
            records = (StoredMessage(id, logged.stream, time, version, body, encoding, position),)
        items: list[CurrentItem] = []
        if logged.ways:
            items = broker.restore_items(records, time, version, deserialize_ways(logged.ways), is_chain)
        single = deserialize_numbers(logged.single_blocks) if logged.single_blocks else []
        origin = logged.origin if is_chain else position
        return BatchMessage(row, position, records, logged.floor, origin, single, items)


def _group(located: Iterable[tuple[pa.RecordBatch, int]]) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Group rows that follow each other by the Arrow batch that they are in."""
    for _, group in groupby(located, key=lambda each: id(each[0])):
        pairs = list(group)
        yield pairs[0][0], [row for _, row in pairs]


@dataclass(frozen=True, slots=True)
class EmitJoins:
    """A function for `mapInArrow`, for one bucket: out, rows of `delivery_schema`. What goes into the next
    batch is written to a file."""

    snapshot: IndexSnapshot
    run: str
    """the name of this run of the pipeline"""
    bucket: int
    buckets: int
    files: tuple[LogFile, ...]
    """of the message log, with those of the batch"""
    start: int
    """the position of the first message of the batch"""
    watermark: float
    """in seconds, behind which state is evicted"""
    feedback: str
    """the folder for the feedback of the batch"""
    columns: pa.Schema
    """the messages' columns"""
    body: bool = False
    """whether a query without a template delivers the message itself"""
    sizes: Accumulator[dict[int, tuple[int, int]]] | None = None
    """takes the number of messages and values in each bucket"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        live = load_broker(self.snapshot)
        wanted = BucketVersion(self.bucket, self.buckets, self.files, self.start, self.watermark)
        state = load_bucket(self.run, live, wanted)
        new = [file for file in self.files if file.first >= self.start]
        messages = BatchMessages(state.reader, new, self.columns.types)
        builder = _DeliveryBuilder(messages, delivery_schema(self.columns))
        feedback = FeedbackWriter(self.feedback, str(self.bucket))
        state.end = None
        for message, meetings in self._join(messages, state, live.distributed):
            for subscriptions, values, size in self._emit(message, meetings, live.distributed, feedback):
                yield from builder.add(message.row, subscriptions, values, size)
        if len(builder):
            yield builder.take()
        feedback.close()
        state.end = self.files[-1].end if self.files else self.start
        if self.sizes is not None:
            self.sizes.add({self.bucket: (len(state.partition.state.records), state.values)})

    def _join(
        self, messages: BatchMessages, state: BucketState, broker: DistributedBroker
    ) -> Iterator[tuple[BatchMessage, Meetings]]:
        """Join the messages of the batch with the bucket, and insert those that belong to it."""
        for message in messages.iter(broker):
            is_own = int(buckets_of(np.array([message.position]), self.buckets)[0]) == self.bucket
            if is_own and message.single_blocks:
                yield message, broker.match_single_blocks(message.single_blocks, message.records[0])
            if message.items:
                yield message, broker.join(state.partition, message.items)
                if is_own:
                    broker.insert(state.partition, message.items)

    def _emit(
        self, message: BatchMessage, meetings: Meetings, broker: DistributedBroker, writer: FeedbackWriter
    ) -> Iterator[tuple[list[str], tuple[Any, ...], int]]:
        """Yield what a message makes: subscriptions, body, messages and failure, and the size of these."""
        if not len(meetings) and not meetings.partial:
            return
        failures: list[Failure] = []
        for delivery in broker.grouped_deliveries(meetings, failures):
            subscriptions = [str(id) for id in delivery.subscriptions]
            yield subscriptions, _delivery_values(delivery, self.body), len(delivery.body)
        if self.snapshot.has_feedback:
            for row in _feedback(message, meetings, broker):
                writer.add(row)
        for failure in chain(failures, broker.chain_failures(meetings)):
            reason = f"{failure.kind}: {failure.reason}"
            yield [str(failure.subscription)], (None, None, reason), len(reason)


def _feedback(message: BatchMessage, meetings: Meetings, broker: DistributedBroker) -> Iterator[FeedbackRow]:
    pieces: Counter[int] = Counter()
    for made in broker.published(meetings):
        pieces[made.query] += 1
        in_time = made.time * 1000 >= message.floor  # what is made of late messages is late, too
        yield published_feedback(made, pieces[made.query], message.floor if in_time else -1)
    for partial in broker.partial_matches(meetings):
        yield chain_feedback(partial, message.floor, message.origin)


def _delivery_values(delivery: GroupedDelivery, with_message: bool) -> tuple[Any, ...]:
    """Body and messages. A query without a template delivers the message as it is, like a filter, so it has
    no body here, unless the message itself is wanted."""
    meeting, output, _ = delivery
    made = meeting.entry.join.template is not None
    body = output.decode() if made else decode_text(output) if with_message else None
    return body, list(meeting.messages), None
