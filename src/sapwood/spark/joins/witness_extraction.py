"""The first stage of a stream with joins: parses and matches messages, once, and extracts their witnesses.

A message becomes one row of kind PLAIN or JOINABLE, with all that the later stages need of it, and a row of
kind VALUE for each distinct value that some query may find in another message. See `schema` for all kinds.

The subscriptions are those of the batch (see `checkpoint_transport`). Values travel as digests: two that
differ and have the same one make a pair of messages that no query then joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import chain
from math import ceil, floor, inf
from typing import Any
from zlib import crc32

import pyarrow as pa
from pyspark import TaskContext

from sapwood.engine.index import IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.errors import MessageError
from sapwood.join.state.event_time import TimePath, to_seconds
from sapwood.join.state.message_state import StoredMessage
from sapwood.join.state.portable_state import EquatedVariables, PortableMessage
from sapwood.spark.distribution.checkpoint_transport import load_snapshot
from sapwood.spark.distribution.match_result import MatchResult
from sapwood.spark.distribution.match_worker import LiveBroker, iter_values, load_broker, reject
from sapwood.spark.joins.schema import (
    EVENT_TIME,
    FOREVER,
    JOINABLE,
    PLAIN,
    VALUE,
    WITNESS_SCHEMA,
    MessageColumns,
    ParsedMessage,
    WitnessRow,
    serialize_message,
    serialize_numbers,
    to_arrow,
)

_DIGEST_LENGTH = 16
_LATEST = 250_000_000_000
"""seconds: Spark's times end about the year 9999"""
_MESSAGES_PER_BATCH, _BYTES_PER_BATCH = 500, 32 << 20
"""the maximal number of messages, and of bytes with their output, in an Arrow batch"""


def bucket_of(key: bytes, buckets: int) -> int:
    """The bucket of the state that a key belongs to; part of the state's format."""
    return crc32(key) % buckets


def load_batch_broker(folder: str) -> LiveBroker:
    """Return the broker of the batch that this task belongs to."""
    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty("streaming.sql.batchId")
    assert batch is not None
    return load_broker(load_snapshot(folder, batch))


@dataclass(frozen=True, slots=True)
class ExtractWitnesses:
    """A function for `mapInArrow`: messages of one stream in, rows of `WITNESS_SCHEMA` out.

    The last columns of a message are its body, the problem of it, if any, and its event time, unless that is
    in the message. All others, the first of which is its id, pass unchanged.
    """

    snapshots: str
    """the folder of the snapshots"""
    stream: str
    time: str | None
    """the path to the event time in a message"""
    columns: list[pa.DataType]
    """the types of the columns that pass"""
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        live = load_batch_broker(self.snapshots)
        path = TimePath(self.time, live.distributed.namespaces) if self.time is not None else None
        extraction = _StreamExtraction(
            WitnessExtractor(live, self.buckets), self.stream, path, MessageColumns(self.columns)
        )
        for messages in batches:
            for start in range(0, messages.num_rows, _MESSAGES_PER_BATCH):
                yield from extraction.extract(messages.slice(start, _MESSAGES_PER_BATCH))


class _StreamExtraction:
    """The extraction of the messages of one stream in one task."""

    def __init__(
        self, extractor: WitnessExtractor, stream: str, path: TimePath | None, columns: MessageColumns
    ) -> None:
        self._extractor = extractor
        self._stream = stream
        self._path = path
        self._columns = columns

    def extract(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        *others, bodies, problems, times = messages.columns
        serialized = self._columns.serialize(others)
        ids = others[0].to_pylist()
        rows: list[WitnessRow] = []
        latest, size = -inf, 0
        for each in zip(
            ids, serialized, iter_values(bodies), problems.to_pylist(), times.to_pylist(), strict=True
        ):
            found, time = self._extract_message(*each)
            rows += found
            size += len(found[0].parsed.message) + len(found[0].parsed.matches)
            if time is not None:
                latest = max(latest, time)
            if size >= _BYTES_PER_BATCH:
                yield to_arrow(rows, WITNESS_SCHEMA)
                rows, size = [], 0
        if latest > -inf:
            rows.append(WitnessRow(0, EVENT_TIME, event_time=floor(latest * 1_000_000)))
        if rows:
            yield to_arrow(rows, WITNESS_SCHEMA)

    def _extract_message(
        self, id: Any, columns: bytes, body: bytes | str | None, problem: str | None, given: datetime | None
    ) -> tuple[list[WitnessRow], float | None]:
        """The rows of a message, and its event time."""
        message = Message(body) if body is not None else None
        if message is None or problem is not None:
            return [self._extractor.plain_row(self._stream, id, columns, message, problem)], None
        return self._extractor.extract_message(
            self._stream,
            id,
            columns,
            message,
            lambda found: self._event_time(found, given),
            time_in_message=self._path is not None,
        )

    def _event_time(self, found: IndexMatches, given: datetime | None) -> float:
        if self._path is None:
            if given is None:
                raise MessageError("it has no event time: published_at is null")
            return to_seconds(given)
        time = self._path.read(found.evaluator)
        if abs(time) > _LATEST:
            raise MessageError(f"its event time is beyond the year 9999: {time:g}")
        return time


class WitnessExtractor:
    """Makes the rows of messages, and of the first messages of chains."""

    def __init__(self, live: LiveBroker, buckets: int) -> None:
        self._live = live
        self._buckets = buckets
        self._broker = live.distributed

    def extract_message(
        self,
        stream: str,
        id: Any,
        columns: bytes,
        message: Message,
        event_time: Callable[[IndexMatches], float],
        floor_time: int = -1,
        time_in_message: bool = False,
    ) -> tuple[list[WitnessRow], float | None]:
        """Parse and match a message: its rows, and its event time.

        `time_in_message` says that `event_time` reads string-values of the message.
        """
        try:
            found = self._broker.find(message, with_text=time_in_message)
            time = event_time(found)
            is_read = self._broker.is_read(stream)
            witnesses, single_blocks = self._broker.extract(found, stream) if is_read else ([], [])
        except MessageError as error:
            if error.line is None:  # a problem, so that later stages reject it too, also those with tables
                return [self.plain_row(stream, id, columns, message, error.reason)], None
            return [self.plain_row(stream, id, columns, message, None, reject(error))], None
        matches = self._live.match_found(message, found)
        if self._broker.has_costs:
            matches.costs = self._live.take_costs()
        if not is_read:
            return [self.plain_row(stream, id, columns, message, None, matches)], time
        record = StoredMessage(id, stream, time, self._live.version, message.data, message.encoding)
        itself, *values = self.state_rows(
            JOINABLE, _name(stream, id), PortableMessage((record,), [witnesses]), columns, floor_time
        )
        parsed = itself.parsed._replace(
            single_blocks=serialize_numbers(single_blocks), matches=matches.to_bytes()
        )
        return [itself._replace(parsed=parsed), *values], time

    def plain_row(
        self,
        stream: str,
        id: Any,
        columns: bytes,
        message: Message | None,
        problem: str | None,
        matches: MatchResult | None = None,
    ) -> WitnessRow:
        """The row of a message that no join reads."""
        name, data = _name(stream, id), b""
        if message is not None:
            record = StoredMessage(id, "", 0.0, 0, message.data, message.encoding)
            data = serialize_message(PortableMessage((record,), []))
        found = matches.to_bytes() if matches is not None else b""
        parsed = ParsedMessage(data, columns, problem, matches=found)
        return WitnessRow(bucket_of(name, self._buckets), PLAIN, name, parsed=parsed)

    def state_rows(
        self, kind: str, name: bytes, message: PortableMessage, columns: bytes, floor_time: int
    ) -> list[WitnessRow]:
        """The rows to store: the message itself, and the values that others may have."""
        values = self._value_rows(name, message, floor_time)
        # a message that no query joins with others is never late
        is_joined = message.chain or self._broker.is_joined(message.records[0].stream)
        itself = WitnessRow(
            bucket_of(name, self._buckets),
            kind,
            name,
            time=floor(message.time * 1000) if is_joined else FOREVER,
            until=max((row.until for row in values), default=-1),
            parsed=ParsedMessage(serialize_message(message), columns),
            floor=floor_time,
        )
        return [itself, *values]

    def _value_rows(self, name: bytes, message: PortableMessage, floor_time: int) -> list[WitnessRow]:
        by_value: dict[str, dict[bytes, EquatedVariables]] = {}
        all_equated = self._live.equated_variables
        for variable, value, _ in chain.from_iterable(message.ways):
            equated = all_equated.get(variable)
            if equated is not None:
                by_value.setdefault(value, {})[variable] = equated
        rows = []
        for value, variables in by_value.items():
            key = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_LENGTH).digest()
            others = frozenset().union(*(equated.variables for equated in variables.values()))
            wait = max(equated.wait for equated in variables.values())
            row = WitnessRow(
                bucket_of(key, self._buckets),
                VALUE,
                name,
                key,
                floor(message.time * 1000),
                FOREVER if wait == inf else ceil((message.time + wait) * 1000),
                b"".join(sorted(variables)),
                b"".join(sorted(others)),
                floor=floor_time,
            )
            rows.append(row)
        return rows


def _name(stream: str, id: Any) -> bytes:
    return f"{stream}\0{id}".encode("utf-8", "surrogatepass")
