"""The last stage of a stream with joins: the messages of a batch, and the deliveries that joins emit.

Rows in are those of `JOIN_SCHEMA`: messages, and pairs of a newer message's name with an older message.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa

from sapwood.broker.delivery import Delivery
from sapwood.broker.distributed_broker import DistributedBroker
from sapwood.engine.failures import Failure
from sapwood.join.results import Meetings
from sapwood.join.state.portable_state import PortableMessage
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.distribution.match_worker import load_broker
from sapwood.spark.io.delivery_columns import decode_text
from sapwood.spark.joins.feedback import chain_feedback, published_feedback
from sapwood.spark.joins.schema import (
    DELIVERY_SCHEMA,
    LATE,
    PAIR,
    FeedbackRow,
    JoinRow,
    MessageColumns,
    deserialize_message,
    deserialize_numbers,
    from_arrow,
)

_ROWS, _BYTES = 2_000, 32 << 20
"""of an Arrow batch"""
_CACHE_BYTES = 32 << 20
"""size of the cache of older messages, most of which are joined with several newer ones"""
_MESSAGE_BYTES, _WITNESS_BYTES = 700, 280
"""memory that a message and each of its witnesses take beside the message's bytes, about"""


class _RowBuilder:
    """A builder of Arrow batches: the columns of a message, and further ones of given types."""

    def __init__(self, columns: MessageColumns, types: Sequence[pa.DataType]) -> None:
        self._columns = columns
        self._types = list(types)
        self._clear()

    def _clear(self) -> None:
        self._messages: list[bytes] = []
        self._positions: list[int] = []
        self._values: list[list[Any]] = [[] for _ in self._types]
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, columns: bytes, values: tuple[Any, ...], size: int) -> None:
        """Add a row; rows of one message follow each other, and share its columns."""
        if not self._messages or self._messages[-1] is not columns:
            self._messages.append(columns)
            self._bytes += len(columns)
        self._positions.append(len(self._messages) - 1)
        for column, value in zip(self._values, values, strict=True):
            column.append(value)
        self._bytes += size

    @property
    def full(self) -> bool:
        return len(self) >= _ROWS or self._bytes >= _BYTES

    def take(self) -> pa.RecordBatch:
        """All rows since the last call."""
        messages = self._columns.deserialize(self._messages)
        if len(self._messages) < len(self):
            messages = messages.take(pa.array(self._positions, pa.int32()))
        values = zip(self._values, self._types, strict=True)
        arrays = [*messages.columns, *(pa.array(column, type) for column, type in values)]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, [f"_{number}" for number in range(len(arrays))])


@dataclass(frozen=True, slots=True)
class RestoreMessages:
    """A function for `mapInArrow`: rows of messages in; out, their columns, the body, the problem, the reason
    why they are late for joins and the filters and transformations that they match; null for none."""

    columns: list[pa.DataType]
    """types of the messages' columns"""
    text: bool
    """whether bodies are strings"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        body = pa.string() if self.text else pa.binary()
        builder = _RowBuilder(MessageColumns(self.columns), [body, pa.string(), pa.string(), pa.binary()])
        for row in from_arrow(batches, JoinRow):
            lateness = explain_lateness(row.watermark) if row.kind == LATE else None
            parsed = row.parsed
            values = self._body(parsed.message), parsed.problem, lateness, parsed.matches or None
            builder.add(parsed.columns, values, len(parsed.message) + len(parsed.matches))
            if builder.full:
                yield builder.take()
        if len(builder):
            yield builder.take()

    def _body(self, message: bytes) -> bytes | str | None:
        if not message:
            return None
        data = deserialize_message(message).records[0].data
        return data.decode("utf-8", "surrogatepass") if self.text else data


def explain_lateness(watermark: int) -> str:
    """The reason why a message is late: the same for all messages of a batch, so that they can be counted."""
    at = datetime.fromtimestamp(watermark / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"too late for joins: it happened before {at}, the watermark of its batch;"
        " increase joins.lateness to accept it"
    )


class _OlderMessages:
    """A cache of older messages, bounded by bytes; those that were used least recently are evicted."""

    def __init__(self) -> None:
        self._cache: OrderedDict[bytes, tuple[PortableMessage, int]] = OrderedDict()
        self._bytes = 0

    def get(self, row: JoinRow) -> PortableMessage:
        """The older message of a pair."""
        known = self._cache.get(row.older)
        if known is not None:
            self._cache.move_to_end(row.older)
            return known[0]
        message = deserialize_message(row.parsed.message)
        size = _MESSAGE_BYTES + len(row.parsed.message) + _WITNESS_BYTES * sum(map(len, message.ways))
        self._cache[row.older] = message, size
        self._bytes += size
        while self._bytes > _CACHE_BYTES and len(self._cache) > 1:
            self._bytes -= self._cache.popitem(last=False)[1][1]
        return message


@dataclass(frozen=True, slots=True)
class EmitJoins:
    """A function for `mapInArrow`: rows sorted by name in; out, rows with the columns of the newer message
    and of `DELIVERY_SCHEMA`: a delivery of a join, the failure of one, or feedback for the next batch."""

    snapshot: IndexSnapshot
    columns: list[pa.DataType]
    """types of the messages' columns"""
    body: bool = False
    """whether a query without a template delivers the message itself"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        broker = load_broker(self.snapshot).distributed
        builder = _RowBuilder(MessageColumns(self.columns), DELIVERY_SCHEMA.types)
        for row, meetings in _join(from_arrow(batches, JoinRow), broker):
            for values, size in self._emit(row, meetings, broker):
                builder.add(row.parsed.columns, values, size)
                if builder.full:
                    yield builder.take()
        if len(builder):
            yield builder.take()

    def _emit(
        self, row: JoinRow, meetings: Meetings, broker: DistributedBroker
    ) -> Iterator[tuple[tuple[Any, ...], int]]:
        """Yield the rows that a message makes, without its columns, each with its size."""
        failures: list[Failure] = []
        for delivery in broker.deliveries(meetings, failures):
            yield (*_delivery_values(delivery, self.body), None, None), len(delivery.body)
        for feedback in _feedback(row, meetings, broker) if self.snapshot.has_feedback else ():
            yield (None, None, None, None, feedback._asdict()), len(feedback.message)
        for failure in (*failures, *broker.chain_failures(meetings)):
            reason = f"{failure.kind}: {failure.reason}"
            yield (str(failure.subscription), None, None, reason, None), len(reason)


def _join(rows: Iterator[JoinRow], broker: DistributedBroker) -> Iterator[tuple[JoinRow, Meetings]]:
    """Join each message, or the first messages of a chain, with the older messages of its pairs."""
    cache = _OlderMessages()
    for _, group in groupby(rows, key=attrgetter("name")):
        of_message = list(group)
        older = [cache.get(row) for row in of_message if row.kind == PAIR]
        for row in of_message:
            if row.kind == PAIR:
                continue
            single_blocks = deserialize_numbers(row.parsed.single_blocks)
            newer = deserialize_message(row.parsed.message) if single_blocks or older else None
            if newer is not None and single_blocks:
                yield row, broker.match_single_blocks(single_blocks, newer.records[0])
            if newer is not None and older and row.kind != LATE:  # which single blocks only match
                yield row, broker.join(newer, older)


def _feedback(row: JoinRow, meetings: Meetings, broker: DistributedBroker) -> Iterator[FeedbackRow]:
    pieces: Counter[int] = Counter()
    for made in broker.published(meetings):
        pieces[made.query] += 1
        in_time = made.time * 1000 >= row.watermark  # what is made of late messages is late, too
        yield published_feedback(made, pieces[made.query], row.watermark if in_time else -1)
    for message in broker.partial_matches(meetings):
        yield chain_feedback(message, row.watermark, row.parsed.columns)


def _delivery_values(delivery: Delivery, with_message: bool) -> tuple[str, str | None, list[Any]]:
    """Subscription, body and messages. A query without a template delivers the message as it is, like a
    filter, so it has no body here, unless the message itself is wanted."""
    meeting = delivery.meeting
    assert meeting is not None
    made = meeting.entry.join.template is not None
    body = delivery.body.decode() if made else decode_text(delivery.body) if with_message else None
    return str(delivery.subscription), body, list(meeting.messages)
