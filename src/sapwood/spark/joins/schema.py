"""The rows that pass between the stages of a stream with joins: for each hop a class and its Arrow schema.

    sources ───┐                                                                       ┌─► messages
               ├─ WitnessRow ─► value state ─ CandidateRow ─► message state ─ JoinRow ─┤
    feedback ──┘                                                                       └─► deliveries
        ▲                                                                                      │
        └───────────────────────────────── FeedbackRow ◄───────────────────────────────────────┘

Spark's schemas are derived from these. A row of a message carries from hop to hop what is found out about it
once, when it is parsed: a `ParsedMessage`, whose fields are columns of the row.

Binary columns are empty where a row has nothing of the kind. Times are milliseconds since the epoch.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sapwood.join.state.message_state import StoredMessage
from sapwood.join.state.portable_state import PortableMessage, PortableValue
from sapwood.spark.pipeline.batch import FAILURE

# -- kinds of rows -----------------------------------------------------------------------------------------

PLAIN = "plain"
"""a message that no join reads"""
JOINABLE = "joinable"
"""a message that joins read"""
LATE = "late"
"""a message that joins would read, if it were not behind the watermark"""
CHAIN = "chain"
"""the first messages of a chain, joined in the batch before"""
VALUE = "value"
"""a value of a message that some query may find in another one"""
PAIR = "pair"
"""an older and a newer message that have a value in common"""
EVENT_TIME = "event-time"
"""the latest event time of an Arrow batch, which moves the watermark; no other row has an event time"""
RETAIN = "retain"
"""the time from which on a bucket retains its state, since feedback still needs it"""

FOREVER = 1 << 62
"""a time after all others, for state that is never evicted"""
KEY_LENGTH = 8
"""bytes of a variable's key"""

_TYPES = {
    "bucket": pa.int32(),
    "kind": pa.string(),
    "name": pa.binary(),
    "value": pa.binary(),
    "newer": pa.binary(),
    "older": pa.binary(),
    "time": pa.int64(),
    "until": pa.int64(),
    "variables": pa.binary(),
    "partners": pa.binary(),
    "message": pa.binary(),
    "columns": pa.binary(),
    "problem": pa.string(),
    "single_blocks": pa.binary(),
    "matches": pa.binary(),
    "floor": pa.int64(),
    "watermark": pa.int64(),
    "event_time": pa.timestamp("us", "UTC"),
    "stream": pa.string(),
    "id": pa.string(),
    "query": pa.int32(),
    "piece": pa.int32(),
}
"""the type of a column, which is the same in all rows that have it"""


def column_names(row_type: type[tuple[Any, ...]]) -> tuple[str, ...]:
    """The columns of a class of rows: its fields, with those of `ParsedMessage` in the place of `parsed`."""
    fields: tuple[str, ...] = row_type._fields  # type: ignore[attr-defined]
    if PARSED not in fields:
        return fields
    place = fields.index(PARSED)
    return (*fields[:place], *ParsedMessage._fields, *fields[place + 1 :])


def _schema_of(row_type: type[tuple[Any, ...]]) -> pa.Schema:
    return pa.schema([(name, _TYPES[name]) for name in column_names(row_type)])


# -- hops --------------------------------------------------------------------------------------------------


class ParsedMessage(NamedTuple):
    """The columns of a row that come from parsing a message."""

    message: bytes = b""
    """the body, the time and the witnesses, see `serialize_message`"""
    columns: bytes = b""
    """its own columns, see `MessageColumns`"""
    problem: str | None = None
    """the reason why the source or the extraction rejects it, None if they do not"""
    single_blocks: bytes = b""
    """the queries over a single block that it matches, as 32-bit numbers"""
    matches: bytes = b""
    """the filters and transformations that it matches, a `MatchResult`"""


PARSED = "parsed"
"""the field of a row with a `ParsedMessage`"""
NOTHING_PARSED = ParsedMessage()


class WitnessRow(NamedTuple):
    """From extraction to the value state: a message, or a value that it has."""

    bucket: int
    kind: str
    name: bytes = b""
    """of a message: its stream and its id"""
    value: bytes = b""
    """a digest"""
    time: int = 0
    until: int = -1
    """the latest time of a message that it may be joined with; -1 if it has no values"""
    variables: bytes = b""
    """the keys of the variables that have the value"""
    partners: bytes = b""
    """the keys of the variables that these are equated with"""
    parsed: ParsedMessage = NOTHING_PARSED
    floor: int = -1
    """of feedback: the watermark of the batch that its first message was in, so that it is not late"""
    event_time: int | None = None


WITNESS_SCHEMA = _schema_of(WitnessRow)


class CandidateRow(NamedTuple):
    """From the value state to the message state: a message, or the names of two with a common value."""

    bucket: int
    kind: str
    name: bytes
    newer: bytes = b""
    """of a pair, in which `name` is the older message"""
    until: int = -1
    parsed: ParsedMessage = NOTHING_PARSED
    watermark: int = 0
    event_time: None = None
    """which Spark wants between two stateful operators"""


CANDIDATE_SCHEMA = _schema_of(CandidateRow)


class JoinRow(NamedTuple):
    """From the message state to the batch: a message, or the older of a pair with the newer one's name."""

    kind: str
    name: bytes
    older: bytes = b""
    """of a pair: the name of the older message, which is in `parsed`"""
    parsed: ParsedMessage = NOTHING_PARSED
    watermark: int = 0


JOIN_SCHEMA = _schema_of(JoinRow)


class FeedbackRow(NamedTuple):
    """From a batch to the next one: the first messages of a chain, or a message that a query publishes."""

    stream: str | None
    """the stream it is published to; None for a chain"""
    id: str | None
    query: int
    piece: int
    """its position among the messages that the query publishes of the same messages"""
    floor: int
    """the watermark of the batch that its first message was in; -1 for one that was late, and still is"""
    message: bytes
    columns: bytes
    """of a chain: those of its newest message"""


FEEDBACK_SCHEMA = _schema_of(FeedbackRow)
FEEDBACK = "_feedback"
"""a column with a `FeedbackRow`, null in deliveries"""
DELIVERY_SCHEMA = pa.schema(
    [
        ("subscription", pa.string()),
        ("body", pa.string()),
        ("messages", pa.list_(pa.string())),
        (FAILURE, pa.string()),
        (FEEDBACK, pa.struct(list(FEEDBACK_SCHEMA))),
    ]
)
"""what joins emit, after the columns of the message: a delivery, a failure or feedback"""


def spark_schema(schema: pa.Schema) -> StructType:
    """The same schema for Spark."""
    return from_arrow_schema(schema)


# -- rows as Arrow and as pandas ---------------------------------------------------------------------------

_FRAME_ROWS, _FRAME_BYTES = 2_000, 16 << 20
_Row = TypeVar("_Row", WitnessRow, CandidateRow, JoinRow)


def to_arrow(rows: Sequence[WitnessRow | JoinRow], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of one class, at least one, as an Arrow batch."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    place = rows[0]._fields.index(PARSED)
    parsed = columns[place]
    columns[place : place + 1] = [[each[i] for each in parsed] for i in range(len(ParsedMessage._fields))]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _from_columns(columns: dict[str, Iterable[Any]], row_type: type[_Row]) -> Iterator[_Row]:
    """Rows of columns by their names; the last fields may be without a column."""
    columns[PARSED] = map(ParsedMessage, *(columns[name] for name in ParsedMessage._fields))
    return map(row_type, *(columns[field] for field in row_type._fields if field in columns))


def from_arrow(batches: Iterable[pa.RecordBatch], row_type: type[_Row]) -> Iterator[_Row]:
    """Rows of Arrow batches, 64 in memory at a time, since messages can be large."""
    names = column_names(row_type)
    for batch in batches:
        for start in range(0, batch.num_rows, 64):
            some = batch.slice(start, 64)
            yield from _from_columns({name: some.column(name).to_pylist() for name in names}, row_type)


def to_frames(rows: Iterable[CandidateRow | JoinRow], row_type: type[_Row]) -> Iterator[pd.DataFrame]:
    """Rows as frames of bounded size."""
    pending: list[CandidateRow | JoinRow] = []
    size = 0
    for row in rows:
        pending.append(row)
        parsed = row.parsed
        size += len(parsed.message) + len(parsed.columns) + len(parsed.matches)
        if len(pending) >= _FRAME_ROWS or size >= _FRAME_BYTES:
            yield _to_frame(pending, row_type)
            pending, size = [], 0
    if pending:
        yield _to_frame(pending, row_type)


def _to_frame(rows: list[CandidateRow | JoinRow], row_type: type[tuple[Any, ...]]) -> pd.DataFrame:
    names = column_names(row_type)
    place = rows[0]._fields.index(PARSED)
    flat = [(*row[:place], *row.parsed, *row[place + 1 :]) for row in rows]
    frame = pd.DataFrame(flat, columns=names)
    if "event_time" in names:
        frame["event_time"] = pd.Series([pd.NaT] * len(rows), dtype="datetime64[ns]")
    return frame


def from_frames(frames: Iterable[pd.DataFrame], row_type: type[_Row]) -> Iterator[_Row]:
    """Rows of frames, without event times."""
    names = [name for name in column_names(row_type) if name != "event_time"]
    for frame in frames:
        yield from _from_columns({name: frame[name].tolist() for name in names}, row_type)


# -- binary columns ----------------------------------------------------------------------------------------


def serialize_message(message: PortableMessage) -> bytes:
    """Messages with their witnesses as bytes; what is stored in the state, so part of its format."""
    records = [(r.id, r.stream, r.time, r.visible_from, r.data, r.encoding) for r in message.records]
    witnesses = [[tuple(value) for value in way] for way in message.ways]
    return pickle.dumps((records, witnesses, message.chain), pickle.HIGHEST_PROTOCOL)


def deserialize_message(data: bytes) -> PortableMessage:
    """The inverse of `serialize_message`."""
    records, ways, chain = pickle.loads(data)
    witnesses = [[PortableValue(*value) for value in way] for way in ways]
    return PortableMessage(tuple([StoredMessage(*record) for record in records]), witnesses, chain)


def serialize_numbers(numbers: Sequence[int]) -> bytes:
    """Numbers of queries as bytes."""
    return np.array(numbers, np.int32).tobytes() if numbers else b""


def deserialize_numbers(data: bytes) -> list[int]:
    """The inverse of `serialize_numbers`."""
    numbers: list[int] = np.frombuffer(data, np.int32).tolist()
    return numbers


class MessageColumns:
    """The columns of messages but for the body. Those of one message travel as an Arrow batch of one row, so
    that values of any type pass without a conversion."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._schema = pa.schema([(f"_{number}", type) for number, type in enumerate(types)])

    @property
    def types(self) -> list[pa.DataType]:
        return list(self._schema.types)

    def serialize(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """The columns of each of several messages as bytes."""
        typed = [
            column if column.type == type else column.cast(type)
            for column, type in zip(columns, self._schema.types, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(typed, schema=self._schema)
        return [batch.slice(row, 1).serialize().to_pybytes() for row in range(batch.num_rows)]

    def serialize_values(self, values: Sequence[Any]) -> bytes:
        """The columns of one message, given as Python values, as bytes."""
        arrays = [pa.array([value], type) for value, type in zip(values, self._schema.types, strict=True)]
        return self.serialize(arrays)[0]

    def deserialize(self, rows: Sequence[bytes]) -> pa.RecordBatch:
        """The columns of several messages, at least one."""
        batches = [pa.ipc.read_record_batch(pa.py_buffer(row), self._schema) for row in rows]
        return pa.concat_batches(batches)
