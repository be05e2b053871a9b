"""What runs in Spark's Python workers after messages were kept: what they make together, message by message.

Rows are those of `keeping.OUT`: messages, and pairs of a newer message's name with an older message.
"""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from sapwood.broker import Broker
from sapwood.broker.delivery import Delivery
from sapwood.engine.failures import Failure
from sapwood.join.join_engine import JoinEngine
from sapwood.join.results import Meetings
from sapwood.join.state.portable_state import PortableMessage
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.distribution.match_worker import load_broker
from sapwood.spark.io.delivery_columns import text_of
from sapwood.spark.joins.feedback import FEEDBACK, FeedbackRow, chain_feedback, published_feedback
from sapwood.spark.joins.join_state import LATE, PAIR
from sapwood.spark.joins.witness_extraction import deserialize_message

_ROWS, _BYTES = 2_000, 32 << 20
"""of an Arrow batch"""
_ROOM = 32 << 20
"""bytes that older messages may take which are kept ready, since most meet several newer ones"""
_OF_KEPT, _OF_TESTIMONY = 700, 280
"""bytes that each of them takes, about"""
_COLUMNS = ["kind", "name", "older", "record", "row", "watermark"]


class _Row(NamedTuple):
    kind: str
    name: bytes
    older: bytes
    record: bytes
    row: bytes
    watermark: int


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        for start in range(0, batch.num_rows, 64):  # messages can be large
            some = batch.slice(start, 64)
            yield from map(_Row, *(some.column(name).to_pylist() for name in _COLUMNS))


class _Columns:
    """Rows in the making, in columns of given types."""

    def __init__(self, types: list[pa.DataType]) -> None:
        self._types = types
        self._values: list[list[Any]] = [[] for _ in types]
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values[0])

    def add(self, values: tuple[Any, ...], size: int) -> None:
        for column, value in zip(self._values, values, strict=True):
            column.append(value)
        self._bytes += size

    @property
    def enough(self) -> bool:
        return len(self) >= _ROWS or self._bytes >= _BYTES

    def take(self) -> pa.RecordBatch:
        """All that was added, which is then gone."""
        arrays = [pa.array(values, type) for values, type in zip(self._values, self._types, strict=True)]
        self._values = [[] for _ in self._types]
        self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, [f"_{number}" for number in range(len(arrays))])


@dataclass(frozen=True, slots=True)
class RestoreMessages:
    """A function for `mapInArrow`: rows of messages in; out, their columns, the body, the problem that they
    have, and why they are too late for joins, both null if not so."""

    types: list[pa.DataType]
    """of the columns but these"""
    text: bool
    """whether bodies are strings"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        body = pa.string() if self.text else pa.binary()
        columns = _Columns([*self.types, body, pa.string(), pa.string()])
        for row in _rows(batches):
            values, problem, _ = pickle.loads(row.row)
            late = explain_lateness(row.watermark) if row.kind == LATE else None
            columns.add((*values, self._body(row.record), problem, late), len(row.record))
            if columns.enough:
                yield columns.take()
        if len(columns):
            yield columns.take()

    def _body(self, record: bytes) -> bytes | str | None:
        if not record:
            return None
        data = deserialize_message(record).records[0].data
        return data.decode("utf-8", "surrogatepass") if self.text else data


def explain_lateness(watermark: int) -> str:
    """The same for all messages of a batch, so that they can be counted."""
    at = datetime.fromtimestamp(watermark / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"too late for joins: it happened before {at}, the watermark of its batch;"
        " a larger joins.lateness would let it in"
    )


class _Older:
    """Older messages; those that were asked for last are ready."""

    def __init__(self) -> None:
        self._ready: OrderedDict[bytes, tuple[PortableMessage, int]] = OrderedDict()
        self._bytes = 0

    def get(self, row: _Row) -> PortableMessage:
        known = self._ready.get(row.older)
        if known is not None:
            self._ready.move_to_end(row.older)
            return known[0]
        kept = deserialize_message(row.record)
        size = _OF_KEPT + len(row.record) + _OF_TESTIMONY * sum(map(len, kept.ways))
        self._ready[row.older] = kept, size
        self._bytes += size
        while self._bytes > _ROOM and len(self._ready) > 1:
            self._bytes -= self._ready.popitem(last=False)[1][1]
        return kept


@dataclass(frozen=True, slots=True)
class EmitJoins:
    """A function for `mapInArrow`: rows in the order of their names; out, a row for each delivery of a join:
    the columns of the newer message, the subscription, the body and the messages that met. A join that fails
    has a row with the subscription, and why in a further column. What goes on to the next batch has a row
    with null for all these, and itself in the last column."""

    snapshot: IndexSnapshot
    types: list[pa.DataType]
    """of the message's columns"""
    body: bool = False
    """whether a query that makes nothing of its own gets the message itself"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        broker = load_broker(self.snapshot).broker
        columns = _Columns(
            [*self.types, pa.string(), pa.string(), pa.list_(pa.string()), pa.string(), FEEDBACK]
        )
        for row, values, meetings in _meetings(_rows(batches), broker.network_of_joins):
            failures: list[Failure] = []
            for delivery in broker.deliveries(meetings, None, failures):
                columns.add((*values, *_delivered(delivery, self.body), None, None), len(delivery.body))
                if columns.enough:
                    yield columns.take()
            for going in _going_on(row, values, meetings, broker) if self.snapshot.going_on else ():
                columns.add((*values, None, None, None, None, going._asdict()), len(going.record))
                if columns.enough:
                    yield columns.take()
            for failure in (*failures, *broker.unfollowed(meetings, None)):
                reason = f"{failure.kind}: {failure.reason}"
                columns.add((*values, str(failure.subscription), None, None, reason, None), len(reason))
        if len(columns):
            yield columns.take()


def _meetings(rows: Iterator[_Row], joins: JoinEngine) -> Iterator[tuple[_Row, tuple[Any, ...], Meetings]]:
    """What each message, or what a chain has brought together, meets; with its row and columns."""
    older = _Older()
    for _, group in groupby(rows, key=itemgetter(1)):
        together = list(group)
        earlier = [older.get(row) for row in together if row.kind == PAIR]
        for row in together:
            if row.kind == PAIR:
                continue
            values, _, alone = pickle.loads(row.row)
            now = deserialize_message(row.record) if alone or earlier else None
            if now is not None and alone:
                yield row, values, joins.single(alone, now.records[0])
            if now is not None and earlier and row.kind != LATE:  # those meet single blocks only
                yield row, values, joins.meet(now, earlier)


def _going_on(
    row: _Row, values: tuple[Any, ...], meetings: Meetings, broker: Broker
) -> Iterator[FeedbackRow]:
    pieces: Counter[int] = Counter()
    for made in broker.published(meetings):
        pieces[made.query] += 1
        in_time = made.time * 1000 >= row.watermark  # what is made of late messages is late, too
        yield published_feedback(made, pieces[made.query], row.watermark if in_time else -1)
    for kept in broker.network_of_joins.go_on(meetings):
        yield chain_feedback(kept, row.watermark, values)


def _delivered(delivery: Delivery, itself: bool) -> tuple[str, str | None, list[Any]]:
    """Subscription, body and messages. A query that makes nothing of its own gets the message as it is, like
    a filter, so it has no body here, unless the message itself is wanted."""
    meeting = delivery.meeting
    assert meeting is not None
    made = meeting.entry.join.template is not None
    body = delivery.body.decode() if made else text_of(delivery.body) if itself else None
    return str(delivery.subscription), body, list(meeting.messages)
