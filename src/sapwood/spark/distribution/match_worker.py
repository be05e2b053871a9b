"""The matching of one partition in a Python worker of Spark, Arrow batch by Arrow batch."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sapwood.broker.delivery import PublishResult
from sapwood.broker.distributed_broker import DistributedBroker
from sapwood.engine.index import IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.engine.subscriptions import ListedNumbers
from sapwood.errors import MessageError
from sapwood.join.state.portable_state import EquatedVariables
from sapwood.spark.distribution.index_snapshot import IndexSnapshot, unpack_index, update_subscribers
from sapwood.spark.distribution.match_result import (
    BODIES,
    COSTS,
    ERROR,
    FAILURES,
    MatchResult,
    Numbers,
    Rejection,
)
from sapwood.spark.distribution.worker_cache import WORKER_CACHE

MESSAGES_PER_BATCH = 1_000
MATCHES_PER_BATCH = 200_000
"""the maximal number of matches in a batch: a third of 500,000 subscriptions can match one message"""
_MESSAGES_AT_ONCE = 32
"""messages in memory beside the batch that they are from, since they can be large"""
BYTES_PER_BATCH = 64 * 1024 * 1024
"""the maximal number of bytes in a batch that transformations output"""
BYTES_PER_MESSAGE = 128 * 1024 * 1024
"""The bodies made of one message are one row, and with default memory Spark fails at rows twice as large."""


class LiveBroker:
    """The broker of a worker, its version, and by number the ids of subscriptions and their subscribers."""

    def __init__(self, snapshot: IndexSnapshot) -> None:
        self.broker, self.subscribers = unpack_index(snapshot.packed.value)
        self.distributed = DistributedBroker(self.broker)
        self.version = snapshot.packed_version
        gc.freeze()  # exempts the broker's objects from later collections
        self._id_type = pa.int64() if snapshot.numeric else pa.string()
        self.ids: pa.Array = pa.nulls(0, self._id_type)
        """the id of every number; null for a number that no subscription has"""
        self._names: pa.Array | None = None
        self._numeric_ids: Numbers | None = None
        self._first_id: int | None = None
        """the id of number 0, if ids are consecutive like numbers, as those of a file's lines are"""
        self._equated_variables: dict[bytes, EquatedVariables] | None = None
        self._list_ids()

    def can_advance_to(self, snapshot: IndexSnapshot) -> bool:
        """Whether the deltas of the snapshot lead from this version to its own."""
        return snapshot.first_version <= self.version <= snapshot.version

    def advance(self, snapshot: IndexSnapshot) -> None:
        """Apply the deltas of the snapshot that are newer than this version."""
        deltas = [delta for delta in snapshot.deltas if self.version < delta.version <= snapshot.version]
        for delta in deltas:
            delta.apply(self.broker)
            update_subscribers(self.subscribers, delta)
        self.version = snapshot.version
        if deltas:
            self._list_ids()
            self._equated_variables = None

    @property
    def equated_variables(self) -> dict[bytes, EquatedVariables]:
        """The variables that each variable of the joins is equated with."""
        if self._equated_variables is None:
            self._equated_variables = self.distributed.equated_variables()
        return self._equated_variables

    def match(self, source: bytes | str) -> MatchResult:
        """Match a message with all filters and transformations."""
        try:
            return self._to_result(self.broker.answer_alone(source))
        except MessageError as error:
            return reject(error)

    def match_found(self, message: Message, found: IndexMatches) -> MatchResult:
        """Match a message with the index matches that were found before."""
        try:
            return self._to_result(self.distributed.match(message, found))
        except MessageError as error:
            return reject(error)

    def _to_result(self, answer: PublishResult) -> MatchResult:
        size = sum(len(body) for _, body in answer.made)
        if size > BYTES_PER_MESSAGE:
            raise MessageError(f"transformations make more than {BYTES_PER_MESSAGE:,} bytes of it")
        result = MatchResult(answer.matches.numbers)
        if answer.made:
            result.transformations = np.fromiter((n for n, _ in answer.made), np.int64, len(answer.made))
            result.bodies = [body for _, body in answer.made]
        if answer.problems or answer.matches.undecided:
            result.failures = [
                {
                    "subscription": str(failure.subscription),
                    "kind": failure.kind.value,
                    "reason": failure.reason,
                }
                for failure in self.broker.failures(answer)
            ]
        return result

    def take_costs(self) -> dict[str, float]:
        """The seconds spent on each subscription that is evaluated on its own, since the last call."""
        return {str(id): seconds for id, seconds in self.broker.take_costs().items()}

    def ids_of(self, numbers: Numbers) -> pa.Array:
        """The ids of subscriptions, given by their numbers."""
        if self._numeric_ids is not None:  # a third of the time that Arrow takes
            return pa.array(self._numeric_ids.take(numbers))
        return self.ids.take(pa.array(numbers))

    def ids_of_all(self, numbers: Sequence[Numbers]) -> pa.Array:
        """The ids of the subscriptions of several messages, one after another."""
        if self._numeric_ids is None:
            return self.ids.take(pa.array(np.concatenate(numbers)))
        if self._first_id is not None:
            return pa.array(np.concatenate(numbers) + self._first_id)
        # into one array, part by part: a message may have thousands, and each copy of them takes time
        found = np.empty(sum(map(len, numbers)), np.int64)
        start = 0
        for part in numbers:
            end = start + len(part)
            self._numeric_ids.take(part, out=found[start:end], mode="clip")  # any other mode has a buffer
            start = end
        return pa.array(found)

    @property
    def names(self) -> pa.Array:
        """The subscriber of every number; null for a subscription without one."""
        if self._names is None:
            get = self.subscribers.get
            self._names = (
                pa.array(map(get, self.ids.to_pylist()), pa.string(), size=len(self.ids))
                if self.subscribers
                else pa.nulls(len(self.ids), pa.string())
            )
        return self._names

    def _list_ids(self) -> None:
        """List the id of every number, so that the ids of many numbers are taken at once."""
        ids, numbers = self.broker.numbered()
        positions = np.full(int(numbers.max()) + 1 if len(numbers) else 0, -1, np.int64)
        positions[numbers] = np.arange(len(ids))
        is_text = self._id_type == pa.string()
        listed = pa.array(map(str, ids) if is_text else ids, self._id_type)
        self.ids = listed.take(pa.array(positions, mask=positions < 0))
        self._names = None
        self._numeric_ids = None if is_text else self.ids.fill_null(0).to_numpy()
        self._first_id = None
        if not is_text and len(ids):
            offsets = np.asarray(ids, np.int64) - numbers
            self._first_id = int(offsets[0]) if (offsets == offsets[0]).all() else None


def reject(error: MessageError) -> MatchResult:
    """The result of a message that cannot be read."""
    return MatchResult(rejection=Rejection(error.reason, error.line, error.column))


def load_broker(snapshot: IndexSnapshot) -> LiveBroker:
    """Return this worker's broker at the version of the snapshot. It is unpacked only if the worker has none
    that the deltas can bring there."""
    live = WORKER_CACHE.get_or_create(
        LiveBroker,
        snapshot.source,
        lambda: LiveBroker(snapshot),
        is_usable=lambda broker: broker.can_advance_to(snapshot),
    )
    live.advance(snapshot)
    return live


@dataclass(frozen=True, slots=True)
class MatchPartition:
    """A function for `mapInArrow`: messages in, one row out for each, with its subscriptions or its error.

    If the snapshot has transformations, `bodies` has what each subscription makes, null for a filter.
    `undecided` has the subscriptions that have no result, and why; it is null if all have one.
    """

    snapshot: IndexSnapshot
    body: str
    problem: str | None
    """a column with the reason why a message is rejected unread, if there is one"""
    profile: bool = False
    matches: str | None = None
    """a column with a `MatchResult` for messages that were matched before, null for others"""
    numbered: bool = False
    """whether subscriptions are the broker's numbers, and not ids"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        live = load_broker(self.snapshot)
        for batch in batches:
            for start in range(0, batch.num_rows, MESSAGES_PER_BATCH):
                yield from self._match(live, batch.slice(start, MESSAGES_PER_BATCH))

    def _match(self, live: LiveBroker, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        consumed = {self.body, self.problem, self.matches}
        passed = [name for name in batch.schema.names if name not in consumed]
        results = _ResultColumns(live, self.snapshot.transforming, self.profile, self.numbered)
        start = 0
        for row in self._add_results(live, batch, results):
            if results.full or row == batch.num_rows:
                rows = batch.slice(start, row - start)
                names, arrays = results.take()
                yield pa.RecordBatch.from_arrays([*map(rows.column, passed), *arrays], passed + names)
                start = row

    def _add_results(self, live: LiveBroker, batch: pa.RecordBatch, results: _ResultColumns) -> Iterator[int]:
        """Match the messages of a batch, and yield how many are done, after each or after several."""
        inputs = [batch.column(name) if name else None for name in (self.body, self.problem, self.matches)]
        start, size = 0, _MESSAGES_AT_ONCE
        while start < batch.num_rows:
            size = min(size, batch.num_rows - start)
            values: list[list[Any]] = [
                column.slice(start, size).to_pylist() if column is not None else [None] * size
                for column in inputs
            ]
            bodies, problems, matches = values
            unread = None not in bodies and problems.count(None) == matches.count(None) == size
            # the rows of deliveries are the same when a batch is repeated
            listed = live.broker.list_filters(bodies, ordered=self.numbered) if unread else None
            start += size
            if listed is not None:
                results.add_listed(listed)
                yield start
                # as many that their matches fill an Arrow batch
                size = min(_MESSAGES_AT_ONCE, max(1, MATCHES_PER_BATCH * size // (len(listed.numbers) + 1)))
                continue
            rows = zip(bodies, problems, matches, strict=True)
            for row, (body, problem, found) in enumerate(rows, start + 1 - size):
                results.add(_match_row(live, body, problem, found), body)
                yield row


def _match_row(
    live: LiveBroker, body: bytes | str | None, problem: str | None, matches: bytes | None
) -> MatchResult:
    if problem is not None or body is None:
        return MatchResult(rejection=Rejection(problem or "the message is null"))
    return MatchResult.from_bytes(matches) if matches is not None else live.match(body)


def iter_values(column: pa.Array) -> Iterator[Any]:
    """Iterate over the values of a column, 32 in memory at a time, since messages can be large."""
    for start in range(0, len(column), 32):
        yield from column.slice(start, 32).to_pylist()


class _ResultColumns:
    """A builder of Arrow columns from the results of successive messages."""

    def __init__(self, live: LiveBroker, transforming: bool, profile: bool, numbered: bool) -> None:
        self._live = live
        self._numbered = numbered
        self._transforming = transforming
        self._profile = profile
        self._clear()

    def _clear(self) -> None:
        self._numbers: list[Numbers] = []  # of filters and of transformations, message by message
        self._lengths: list[int] = []  # of filters and of transformations, two for each message
        self._bodies: list[bytes] = []
        self._errors: list[dict[str, Any] | None] = []
        self._failures: list[list[dict[str, str]] | None] = []
        self._costs: dict[str, float] = {}
        self._matches = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether the results fill an Arrow batch."""
        return self._matches >= MATCHES_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def add(self, result: MatchResult, body: bytes | str | None) -> None:
        """Add the result of a message; its body becomes part of an error."""
        error = None
        if result.rejection is not None:
            raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
            error = {**result.rejection._asdict(), "body": raw}
        self._numbers += result.filters, result.transformations
        self._lengths += len(result.filters), len(result.transformations)
        self._bodies += result.bodies
        self._errors.append(error)
        self._failures.append(result.failures)
        self._add_costs(result.costs)
        self._matches += len(result.filters) + len(result.transformations)
        self._bytes += sum(map(len, result.bodies))

    def add_listed(self, listed: ListedNumbers) -> None:
        """Add the filters that several messages match."""
        self._numbers.append(listed.numbers)
        for length in np.diff(listed.ends, prepend=0).tolist():
            self._lengths += length, 0
        self._errors += [None] * len(listed.ends)
        self._failures += [None] * len(listed.ends)
        self._matches += len(listed.numbers)

    def _add_costs(self, costs: dict[str, float]) -> None:
        for id, seconds in costs.items():
            self._costs[id] = self._costs.get(id, 0.0) + seconds

    def take(self) -> tuple[list[str], list[pa.Array]]:
        """The names and arrays of all results since the last call."""
        lengths = np.array(self._lengths, np.int64)
        offsets = np.zeros(len(self._errors) + 1, np.int32)
        np.cumsum(lengths[::2] + lengths[1::2], out=offsets[1:])
        offsets = pa.array(offsets)
        numbers = self._numbers
        ids = pa.array(np.concatenate(numbers)) if self._numbered else self._live.ids_of_all(numbers)
        columns = {"subscriptions": pa.ListArray.from_arrays(offsets, ids)}
        if self._transforming:
            columns["bodies"] = pa.ListArray.from_arrays(offsets, self._align_bodies(lengths))
        columns["error"] = pa.array(self._errors, ERROR)
        columns["undecided"] = pa.array(self._failures, FAILURES)
        if self._profile:
            self._add_costs(self._live.take_costs())
            costs = [{"subscription": id, "seconds": seconds} for id, seconds in self._costs.items()]
            columns["costs"] = pa.array([costs] + [None] * (len(self._errors) - 1), COSTS)
        self._clear()
        return list(columns), list(columns.values())

    def _align_bodies(self, lengths: Numbers) -> pa.Array:
        """The bodies at the positions of their subscriptions, with null for filters."""
        is_made = np.repeat(np.arange(len(lengths)) % 2 > 0, lengths)
        which = np.cumsum(is_made) - 1
        return pa.array(self._bodies, BODIES.value_type).take(pa.array(which, mask=~is_made))
