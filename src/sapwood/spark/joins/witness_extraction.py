"""What runs in Spark's Python workers before messages are kept: reading what they have to say to joins.

One row in is a message; rows out are of these kinds:

    PLAIN    a message that joins have nothing to do with
    TAKEN    one that they take, unless it is too late
    CHAIN    messages that a chain has brought together in the batch before: see `onward`
    VALUE    one for each distinct value that some query may find in another message
    TICK     one for each Arrow batch, the only one with an event time: what moves the watermark
    HOLD     for each bucket, if something comes of earlier batches: from when on all is still of use

The subscriptions are those of the batch (see `posting`). Values travel as digests: two that differ and have
the same one bring together messages that then do not meet.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import chain
from math import ceil, floor, inf
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
from pyspark import TaskContext

from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.errors import MessageError
from sapwood.join.state.event_time import TimePath, to_seconds
from sapwood.join.state.message_state import StoredMessage
from sapwood.join.state.portable_state import EquatedVariables, PortableMessage, PortableValue
from sapwood.spark.distribution.checkpoint_transport import load_snapshot
from sapwood.spark.distribution.match_worker import LiveBroker, iter_values, load_broker

PLAIN, TAKEN, CHAIN, VALUE, TICK, HOLD = "plain", "taken", "chain", "value", "tick", "hold"
FOREVER = 1 << 62
"""milliseconds: for values that some query waits for without end"""
KEY = 8
"""bytes of a variable's key"""
_DIGEST = 16
_LATEST = 250_000_000_000
"""seconds: Spark's times end about the year 9999"""
_MESSAGES = 500
"""of so many at a time, rows are made"""

ROWS = (
    "bucket INT, kind STRING, name BINARY, value BINARY, t BIGINT, until BIGINT,"
    " own BINARY, partners BINARY, record BINARY, row BINARY, floor BIGINT, et TIMESTAMP"
)
_ARROW = pa.schema(
    [
        ("bucket", pa.int32()),
        ("kind", pa.string()),
        ("name", pa.binary()),
        ("value", pa.binary()),
        ("t", pa.int64()),
        ("until", pa.int64()),
        ("own", pa.binary()),
        ("partners", pa.binary()),
        ("record", pa.binary()),
        ("row", pa.binary()),
        ("floor", pa.int64()),
        ("et", pa.timestamp("us", "UTC")),
    ]
)


class WitnessRow(NamedTuple):
    """A row out; times in milliseconds since the epoch."""

    bucket: int
    kind: str
    name: bytes = b""
    """of a message: its stream and its id"""
    value: bytes = b""
    t: int = 0
    until: int = -1
    """the last time of a message that it may meet; of a message without values, none"""
    own: bytes = b""
    """the variables that have the value"""
    partners: bytes = b""
    """the variables that these are equated with"""
    record: bytes = b""
    """the message, see `serialize_message`"""
    row: bytes = b""
    """its other columns, see `ExtractWitnesses`"""
    floor: int = -1
    """of what comes of earlier batches: the watermark of the first of them, and so it is not too late"""
    et: int | None = None


def bucket_of(key: bytes, buckets: int) -> int:
    """The part of the state that keeps a key; never to be changed, or a checkpoint is of no use."""
    return crc32(key) % buckets


def serialize_message(kept: PortableMessage) -> bytes:
    """Messages and what they have to say, as bytes."""
    records = [(r.id, r.stream, r.time, r.sequence, r.data, r.encoding) for r in kept.records]
    ways = [[tuple(each) for each in way] for way in kept.ways]
    return pickle.dumps((records, ways, kept.chain), pickle.HIGHEST_PROTOCOL)


def deserialize_message(data: bytes) -> PortableMessage:
    """What was packed."""
    records, ways, chain = pickle.loads(data)
    said = [[PortableValue(*each) for each in way] for way in ways]
    return PortableMessage(tuple([StoredMessage(*each) for each in records]), said, chain)


def as_arrow(rows: list[WitnessRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def load_batch_broker(folder: str) -> LiveBroker:
    """The broker of the batch that this task belongs to."""
    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty("streaming.sql.batchId")
    assert batch is not None
    return load_broker(load_snapshot(folder, batch))


@dataclass(frozen=True, slots=True)
class ExtractWitnesses:
    """A function for `mapInArrow`: messages of one stream in, rows out.

    The last columns of a message are its body, a problem that it has, if any, and when it happened, unless
    it says so itself. All others, the first of which is its id, travel in `row`, with the problem and the
    single blocks that it meets.
    """

    posted: str
    """where the snapshots are"""
    stream: str
    time: str | None
    """the path at which messages say when they happened"""
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        live = load_batch_broker(self.posted)
        path = TimePath(self.time, live.broker.filters.namespaces) if self.time is not None else None
        reader = _Reader(live, self.stream, path, self.buckets)
        for messages in batches:
            for start in range(0, messages.num_rows, _MESSAGES):
                yield as_arrow(list(reader.rows(messages.slice(start, _MESSAGES))))


class _Reader:
    """Reads the messages of one task."""

    def __init__(self, live: LiveBroker, stream: str, path: TimePath | None, buckets: int) -> None:
        self._speaker = WitnessExtractor(live, buckets)
        self._stream = stream
        self._path = path
        self._index = live.broker.filters.index

    def rows(self, messages: pa.RecordBatch) -> Iterator[WitnessRow]:
        *others, bodies, problems, times = messages.columns
        values = zip(*(column.to_pylist() for column in others), strict=True)
        latest = -inf
        for each in zip(values, iter_values(bodies), problems.to_pylist(), times.to_pylist(), strict=True):
            rows, time = self._message(*each)
            if time is not None:
                latest = max(latest, time)
            yield from rows
        if latest > -inf:
            yield WitnessRow(0, TICK, et=floor(latest * 1_000_000))

    def _message(
        self, values: tuple[Any, ...], body: bytes | str | None, problem: str | None, given: datetime | None
    ) -> tuple[list[WitnessRow], float | None]:
        """The rows of a message, and when it happened."""
        message = Message(body) if body is not None else None
        if message is None or problem is not None:
            return [self._speaker.plain(self._stream, values, message, problem)], None
        return self._speaker.message(
            self._stream, values, message, lambda evaluator: self._when(message, evaluator, given)
        )

    def _when(self, message: Message, evaluator: PatternEvaluator | None, given: datetime | None) -> float:
        if self._path is None:
            if given is None:
                raise MessageError("it does not say when it happened: published_at is null")
            return to_seconds(given)
        if evaluator is None or not self._index.text_needed:
            evaluator = PatternEvaluator(self._index.read(message, all=True))
        time = self._path.read(evaluator)
        if abs(time) > _LATEST:
            raise MessageError(f"it says that it happened beyond the year 9999: {time:g}")
        return time


class WitnessExtractor:
    """Makes the rows of messages, and of what chains have brought together."""

    def __init__(self, live: LiveBroker, buckets: int) -> None:
        self._live = live
        self._buckets = buckets
        self._joins = live.broker.network_of_joins
        self._index = live.broker.filters.index

    def message(
        self,
        stream: str,
        values: tuple[Any, ...],
        message: Message,
        when: Callable[[PatternEvaluator | None], float],
        held: int = -1,
    ) -> tuple[list[WitnessRow], float | None]:
        """The rows of a message, and when it happened."""
        try:
            found = self._index.find(message)
            time = when(found.evaluator)
            if not self._joins.reads(stream):
                return [self.plain(stream, values, message, None)], time
            testimony, alone = self._joins.testify(found, stream)
        except MessageError as error:
            # of a message that is refused, whoever serves the others says why and where
            told = error.reason if error.line is None else None
            return [self.plain(stream, values, message, told)], None
        record = StoredMessage(values[0], stream, time, self._live.version, message.data, message.encoding)
        row = pickle.dumps((values, None, alone))
        return self.kept(
            TAKEN, _name(stream, values[0]), PortableMessage((record,), [testimony]), row, held
        ), time

    def plain(
        self, stream: str, values: tuple[Any, ...], message: Message | None, problem: str | None
    ) -> WitnessRow:
        """The row of a message that joins have nothing to do with."""
        name, record = _name(stream, values[0]), b""
        if message is not None:
            record = serialize_message(
                PortableMessage((StoredMessage(values[0], "", 0.0, 0, message.data, message.encoding),), [])
            )
        row = pickle.dumps((values, problem, []))
        return WitnessRow(bucket_of(name, self._buckets), PLAIN, name, record=record, row=row)

    def kept(self, kind: str, name: bytes, kept: PortableMessage, row: bytes, held: int) -> list[WitnessRow]:
        """The rows of what is to be kept: itself, and the values that may be found in other messages."""
        spoken = self._spoken(name, kept, held)
        # what no query joins with others does not come too late
        t = floor(kept.time * 1000) if kept.chain or self._joins.joins(kept.records[0].stream) else FOREVER
        until = max((row.until for row in spoken), default=-1)
        bucket = bucket_of(name, self._buckets)
        itself = WitnessRow(
            bucket, kind, name, t=t, until=until, record=serialize_message(kept), row=row, floor=held
        )
        return [itself, *spoken]

    def _spoken(self, name: bytes, kept: PortableMessage, held: int) -> list[WitnessRow]:
        by_value: dict[str, dict[bytes, EquatedVariables]] = {}
        partners = self._live.partners
        for variable, value, _ in chain.from_iterable(kept.ways):
            found = partners.get(variable)
            if found is not None:
                by_value.setdefault(value, {})[variable] = found
        rows = []
        for value, variables in by_value.items():
            key = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
            others = frozenset().union(*(found.variables for found in variables.values()))
            wait = max(found.wait for found in variables.values())
            row = WitnessRow(
                bucket_of(key, self._buckets),
                VALUE,
                name,
                key,
                floor(kept.time * 1000),
                FOREVER if wait == inf else ceil((kept.time + wait) * 1000),
                b"".join(sorted(variables)),
                b"".join(sorted(others)),
                floor=held,
            )
            rows.append(row)
        return rows


def _name(stream: str, id: str) -> bytes:
    return f"{stream}\0{id}".encode("utf-8", "surrogatepass")
