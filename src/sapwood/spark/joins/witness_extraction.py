"""The first stage of a stream with joins: parses and matches messages, once, and extracts their witnesses.

A message becomes a row of the batch, with the filters and transformations that it matches. If joins read it,
it also becomes a row of the message log, with its values; see `message_log`. The last row of a task is a
summary of what it has written there.

The subscriptions and the watermark are those of the batch (see `checkpoint_transport`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from math import floor, inf
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext

from sapwood.engine.index import IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.errors import MessageError
from sapwood.join.state.event_time import TimePath, to_seconds
from sapwood.join.state.portable_state import PortableValue
from sapwood.spark.distribution.checkpoint_transport import load_from_checkpoint
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.distribution.match_result import MatchResult
from sapwood.spark.distribution.match_worker import LiveBroker, iter_values, load_broker, reject
from sapwood.spark.joins.message_log import LogWriter
from sapwood.spark.joins.schema import (
    LOG_COLUMNS,
    ExtractionSummary,
    LogRow,
    batch_schema,
    log_schema,
    serialize_numbers,
    serialize_ways,
    to_arrow,
)

_LATEST = 250_000_000_000
"""seconds: Spark's times end about the year 9999"""
_MESSAGES_PER_BATCH, _BYTES_PER_BATCH = 500, 32 << 20
"""the maximal number of messages, and of bytes that they match or log, in an Arrow batch"""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What the tasks of a batch need to know, which the driver writes before they run."""

    snapshot: IndexSnapshot
    watermark: int | None
    """in milliseconds; None if no message is late"""


def load_batch_plan(folder: str) -> BatchPlan:
    """Return the plan of the batch that this task belongs to."""
    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty("streaming.sql.batchId")
    assert batch is not None
    plan = load_from_checkpoint(folder, batch)
    assert isinstance(plan, BatchPlan)
    return plan


@dataclass(frozen=True, slots=True)
class ExtractWitnesses:
    """A function for `mapInArrow`: messages of one source in, rows of `batch_schema` out.

    The last columns of a message are its body, the problem of it, if any, and its event time, unless that is
    in the message. All others, the first of which is its id, pass unchanged.
    """

    plans: str
    """the folder of the plans"""
    log: str
    """the folder of the log's files"""
    source: int
    """the number of the source"""
    stream: str
    time: str | None
    """the path to the event time in a message"""
    columns: list[pa.DataType]
    """the types of the columns that pass"""
    text: bool
    """whether bodies are strings"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = load_batch_plan(self.plans)
        live = load_broker(plan.snapshot)
        path = TimePath(self.time, live.distributed.namespaces) if self.time is not None else None
        with MessageExtraction(live, plan.watermark, self.log, self.columns, self.text) as extraction:
            for batch in batches:
                for start in range(0, batch.num_rows, _MESSAGES_PER_BATCH):
                    yield from self._extract(extraction, batch.slice(start, _MESSAGES_PER_BATCH), path)
            yield extraction.finish(self.source)

    def _extract(
        self, extraction: MessageExtraction, batch: pa.RecordBatch, path: TimePath | None
    ) -> Iterator[pa.RecordBatch]:
        *others, bodies, problems, times = batch.columns
        extraction.begin(others, bodies)
        in_message = path is not None
        rows = zip(
            others[0].to_pylist(), iter_values(bodies), problems.to_pylist(), times.to_pylist(), strict=True
        )
        for id, body, problem, given in rows:
            message = Message(body) if body is not None else None
            if message is None or problem is not None:
                extraction.add_rejected(problem)
            else:
                extraction.add(self.stream, id, message, _time_reader(path, given), -1, in_message)
            if extraction.full:
                yield extraction.take()
        yield extraction.take()


def _time_reader(path: TimePath | None, given: datetime | None) -> Callable[[IndexMatches], float]:
    """Return a function that returns the event time of a message."""

    def read(found: IndexMatches) -> float:
        if path is None:
            if given is None:
                raise MessageError("it has no event time: published_at is null")
            return to_seconds(given)
        time = path.read(found.evaluator)
        if abs(time) > _LATEST:
            raise MessageError(f"its event time is beyond the year 9999: {time:g}")
        return time

    return read


def explain_lateness(watermark: int) -> str:
    """The reason why a message is late: the same for all messages of a batch, so that they can be counted."""
    at = datetime.fromtimestamp(watermark / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"too late for joins: it happened before {at}, the watermark of its batch;"
        " increase joins.lateness to accept it"
    )


class MessageExtraction:
    """The extraction of messages in one task: rows for the batch, and a file of the message log."""

    def __init__(
        self,
        live: LiveBroker,
        watermark: int | None,
        log: str,
        columns: Sequence[pa.DataType],
        text: bool,
    ) -> None:
        self._live = live
        self._broker = live.distributed
        self._watermark = watermark
        self._types = list(columns)
        self._schema = batch_schema(columns, pa.string() if text else pa.binary())
        self._log_schema = log_schema(columns)
        context = TaskContext.get()
        # by partition first, so that messages have the same order when a batch is repeated
        self._file = f"{context.partitionId() if context is not None else 0:06}-{uuid4().hex}.arrow"
        self._writer = LogWriter(f"{log}/{self._file}", self._log_schema)
        self._latest = -inf
        self._variables: dict[bytes, int] = {}
        self._references: set[int] = set()
        self._floor: int | None = None
        self._late = 0
        self._columns: list[pa.Array] = []
        self._bodies: pa.Array = pa.nulls(0)
        self._taken = 0
        self._clear()

    def _clear(self) -> None:
        self._problems: list[str | None] = []
        self._lateness: list[str | None] = []
        self._matches: list[bytes | None] = []
        self._logged: list[LogRow] = []
        self._logged_rows: list[int] = []
        self._bytes = 0

    def __enter__(self) -> MessageExtraction:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.abort()

    # -- messages --------------------------------------------------------------------------------------

    def begin(self, columns: Sequence[pa.Array], bodies: pa.Array) -> None:
        """Begin an Arrow batch of messages, each of which is then added."""
        self._columns = [
            column if column.type == type else column.cast(type)
            for column, type in zip(columns, self._types, strict=True)
        ]
        self._bodies = bodies
        self._taken = 0

    @property
    def full(self) -> bool:
        """Whether the messages that were added fill an Arrow batch."""
        return self._bytes >= _BYTES_PER_BATCH

    def add_rejected(self, problem: str | None, matches: MatchResult | None = None) -> None:
        """Add a message that is not read."""
        self._add(problem, None, matches)

    def add(
        self,
        stream: str,
        id: Any,
        message: Message,
        event_time: Callable[[IndexMatches], float],
        floor_time: int = -1,
        time_in_message: bool = False,
    ) -> None:
        """Parse and match a message. `time_in_message` says that `event_time` reads string-values of it;
        `floor_time` is that of feedback, which is not late."""
        broker = self._broker
        values: list[PortableValue] = []
        single_blocks: list[int] = []
        try:
            found = broker.find(message, with_text=time_in_message)
            time = event_time(found)
            is_read = broker.is_read(stream)
            if is_read:
                values, single_blocks = broker.extract(found, stream)
        except MessageError as error:
            if error.line is None:  # a problem, so that later stages reject it too, also those with tables
                self.add_rejected(error.reason)
            else:
                self.add_rejected(None, reject(error))
            return
        matches = self._live.match_found(message, found)
        if broker.has_costs:
            matches.costs = self._live.take_costs()
        self._latest = max(self._latest, time)
        late = is_read and floor_time < 0 and self._is_late(stream, time)
        if values or single_blocks:
            # a late message only matches single blocks
            ways = serialize_ways([values]) if values and not late else b""
            if ways or single_blocks:
                row = LogRow(
                    stream,
                    f"{stream}\0{id}".encode("utf-8", "surrogatepass"),
                    time,
                    self._live.version,
                    message.data,
                    message.encoding,
                    ways,
                    serialize_numbers(single_blocks),
                    floor_time if floor_time >= 0 else max(self._watermark or 0, 0),
                )
                self._log(row, [values] if ways else [], len(self._problems))
        self._add(None, explain_lateness(self._watermark or 0) if late else None, matches)

    def add_chain(self, row: LogRow, ways: Sequence[Sequence[PortableValue]]) -> None:
        """Add the first messages of a chain to the log."""
        self._references.update(row.records)
        self._log(row, ways, -1)
        if self.full and not self._problems:
            self._write_log()
            self._clear()

    def retain_from(self, floor_time: int) -> None:
        """Let the state retain what feedback may still be joined with."""
        if floor_time >= 0:
            self._floor = floor_time if self._floor is None else min(self._floor, floor_time)

    def _is_late(self, stream: str, time: float) -> bool:
        watermark = self._watermark
        return (
            watermark is not None
            and watermark > 0
            and floor(time * 1000) < watermark
            and self._broker.is_joined(stream)  # a message that no query joins with others is never late
        )

    def _log(self, row: LogRow, ways: Sequence[Sequence[PortableValue]], number: int) -> None:
        self._logged.append(row)
        self._logged_rows.append(number)
        self._bytes += len(row.body) + len(row.ways)
        at, latest = floor(row.time * 1000), self._variables
        for value in chain.from_iterable(ways):
            variable = value[0]
            if latest.get(variable, at - 1) < at:
                latest[variable] = at

    def _add(self, problem: str | None, lateness: str | None, matches: MatchResult | None) -> None:
        data = matches.to_bytes() if matches is not None else None
        self._problems.append(problem)
        self._late += lateness is not None
        self._lateness.append(lateness)
        self._matches.append(data)
        self._bytes += len(data or b"")

    # -- output ----------------------------------------------------------------------------------------

    def take(self) -> pa.RecordBatch:
        """Write the messages that joins read to the log, and return all that were added since the last call
        as rows of the batch."""
        self._write_log()
        count = len(self._problems)
        arrays = [
            *(column.slice(self._taken, count) for column in self._columns),
            self._bodies.slice(self._taken, count),
            pa.array(self._problems, pa.string()),
            pa.array(self._lateness, pa.string()),
            pa.array(self._matches, pa.binary()),
            pa.nulls(count, pa.binary()),
        ]
        self._taken += count
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _write_log(self) -> None:
        if not self._logged:
            return
        numbers = [self._taken + row if row >= 0 else None for row in self._logged_rows]
        rows = pa.array(numbers, pa.int64())
        own = [
            column.take(rows) if len(column) else pa.nulls(len(rows), type)
            for column, type in zip(
                self._columns or [pa.nulls(0)] * len(self._types), self._types, strict=True
            )
        ]
        logged = to_arrow(self._logged, LOG_COLUMNS)
        self._writer.write(pa.RecordBatch.from_arrays([*own, *logged.columns], schema=self._log_schema))

    def finish(self, source: int) -> pa.RecordBatch:
        """Finish the file of the log, and return the summary as a row of the batch."""
        self._write_log()
        self._clear()
        self._writer.close()
        summary = ExtractionSummary(
            source,
            self._latest if self._latest > -inf and source >= 0 else None,
            self._file if self._writer.rows else None,
            self._writer.rows,
            self._writer.bytes,
            list(self._variables.items()),
            sorted(self._references),
            self._floor,
            self._late,
        )
        arrays = [pa.nulls(1, field.type) for field in self._schema]
        arrays[-1] = pa.array([summary.to_bytes()], pa.binary())
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
