"""The rows of a stream with joins: what the stages pass on, and what the files between them hold.

    sources ───┐                    ┌─► messages, as rows of the batch
               ├── extraction ──────┤
    feedback ──┘                    └─► message log, `LogRow` ──► join ──┬─► deliveries, as rows of the batch
        ▲                                                                │
        └──────────────────────────── `FeedbackRow` ◄────────────────────┘

Rows of the batch have the columns of messages first, whatever a source has; so do rows of the log, where
these columns are numbered. Times are milliseconds since the epoch, unless they are said to be seconds.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sapwood.join.state.portable_state import PortableValue
from sapwood.spark.dataframe_match import MATCHES, PROBLEM
from sapwood.spark.deliveries.delivery_rows import FAILURE, LATENESS

STATE_FORMAT = 3
"""The format of the message log and of the feedback in a checkpoint. Raise it with any change of the schemas
below, of what is pickled into them, or of the descriptions of segments in `message_log`."""

SUMMARY = "_summary"
"""a column of the batch with an `ExtractionSummary`, null in all rows but the last one of a task"""

Ways = Sequence[Sequence[PortableValue]]


def batch_schema(columns: Sequence[pa.DataType], body: pa.DataType) -> pa.Schema:
    """The rows of a batch, after extraction: a message with what it matches, or the summary of a task."""
    added = [
        ("body", body),
        (PROBLEM, pa.string()),
        (LATENESS, pa.string()),
        (MATCHES, pa.binary()),
        (SUMMARY, pa.binary()),
    ]
    return pa.schema([*number_columns(columns), *added])


def delivery_schema(columns: pa.Schema) -> pa.Schema:
    """What joins emit: the columns of the newer message, and a result or a failure for a subscription."""
    added = [
        ("subscription", pa.string()),
        ("body", pa.string()),
        ("messages", pa.list_(pa.string())),
        (FAILURE, pa.string()),
    ]
    return pa.schema([*columns, *(pa.field(name, type) for name, type in added)])


def log_schema(columns: Sequence[pa.DataType]) -> pa.Schema:
    """The rows of the message log."""
    return pa.schema([*number_columns(columns), *LOG_COLUMNS])


def number_columns(columns: Sequence[pa.DataType]) -> list[tuple[str, pa.DataType]]:
    """The columns of messages, with numbers for names, since names may be any and occur twice."""
    return [(f"_{number}", type) for number, type in enumerate(columns)]


def spark_schema(schema: pa.Schema, names: StructType) -> StructType:
    """The same schema for Spark, with the fields of messages in place of their numbered columns."""
    return StructType([*names.fields, *from_arrow_schema(schema).fields[len(names.fields) :]])


# -- the message log ---------------------------------------------------------------------------------------


class LogRow(NamedTuple):
    """A message that joins read, or the first messages of a chain; the message's columns are beside it."""

    stream: str
    name: bytes
    """its stream and its id, which order messages of the same time"""
    time: float
    """its event time, in seconds"""
    version: int
    """the version of the subscriptions at which it came; of a chain, the lowest of its messages"""
    body: bytes
    encoding: str | None
    ways: bytes
    """its values, see `serialize_ways`; empty if it cannot be joined, because it is late or has none"""
    single_blocks: bytes
    """the queries over a single block that it matches, see `serialize_numbers`"""
    floor: int
    """the watermark of the batch that it came in; of feedback, of the batch that its first message was in"""
    chain: bytes = b""
    """of a chain: eight bytes that identify its first blocks"""
    records: Sequence[int] = ()
    """of a chain: the positions of its messages in the log"""
    origin: int = -1
    """of a chain: the position of the message whose columns its deliveries have"""


LOG_COLUMNS = pa.schema(
    [
        ("stream", pa.string()),
        ("name", pa.binary()),
        ("time", pa.float64()),
        ("version", pa.int64()),
        ("body", pa.binary()),
        ("encoding", pa.string()),
        ("ways", pa.binary()),
        ("single_blocks", pa.binary()),
        ("floor", pa.int64()),
        ("chain", pa.binary()),
        ("records", pa.list_(pa.int64())),
        ("origin", pa.int64()),
    ]
)
assert LOG_COLUMNS.names == list(LogRow._fields)


class ExtractionSummary(NamedTuple):
    """What the driver has to know of a task of the extraction."""

    source: int
    """the number of its source; -1 for feedback"""
    latest: float | None = None
    """the latest event time, in seconds"""
    file: str | None = None
    """the name of its file in the message log"""
    rows: int = 0
    size: int = 0
    """of the file, in bytes"""
    variables: Sequence[tuple[bytes, int]] = ()
    """the variables with values in the file, each with the latest time of one"""
    references: Sequence[int] = ()
    """the positions of messages that chains in the file consist of"""
    floor: int | None = None
    """the lowest floor of feedback"""
    late: int = 0
    """the number of late messages"""

    def to_bytes(self) -> bytes:
        return pickle.dumps(tuple(self), pickle.HIGHEST_PROTOCOL)

    @classmethod
    def from_bytes(cls, data: bytes) -> ExtractionSummary:
        return cls(*pickle.loads(data))


def serialize_ways(ways: Ways) -> bytes:
    """The values of a message as bytes."""
    return pickle.dumps([[tuple(value) for value in way] for way in ways], pickle.HIGHEST_PROTOCOL)


def deserialize_ways(data: bytes) -> Ways:
    """The inverse of `serialize_ways`, with plain tuples."""
    ways: Ways = pickle.loads(data)
    return ways


def serialize_numbers(numbers: Sequence[int]) -> bytes:
    """Numbers of queries as bytes."""
    return np.array(numbers, np.int32).tobytes() if numbers else b""


def deserialize_numbers(data: bytes) -> list[int]:
    """The inverse of `serialize_numbers`."""
    numbers: list[int] = np.frombuffer(data, np.int32).tolist()
    return numbers


# -- feedback ----------------------------------------------------------------------------------------------


class FeedbackRow(NamedTuple):
    """From a batch to the next one: the first messages of a chain, or a message that a query publishes."""

    stream: str | None
    """the stream it is published to; None for a chain"""
    id: str | None
    query: int
    piece: int
    """its position among the messages that the query publishes because of one message"""
    floor: int
    """the watermark of the batch that its first message was in; -1 for one that was late, and still is"""
    time: float
    version: int
    body: bytes | None
    encoding: str | None
    chain: bytes = b""
    ways: bytes = b""
    records: Sequence[int] = ()
    origin: int = -1


FEEDBACK_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("id", pa.string()),
        ("query", pa.int32()),
        ("piece", pa.int32()),
        ("floor", pa.int64()),
        ("time", pa.float64()),
        ("version", pa.int64()),
        ("body", pa.binary()),
        ("encoding", pa.string()),
        ("chain", pa.binary()),
        ("ways", pa.binary()),
        ("records", pa.list_(pa.int64())),
        ("origin", pa.int64()),
    ]
)
assert FEEDBACK_SCHEMA.names == list(FeedbackRow._fields)


def to_arrow(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of one class as an Arrow batch."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
