"""What runs in Spark's Python workers: the matching of one partition, Arrow batch by Arrow batch."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sapwood.broker import Broker
from sapwood.broker.delivery import PublishResult
from sapwood.errors import MessageError
from sapwood.join.state.portable_state import EquatedVariables
from sapwood.spark.distribution.index_snapshot import IndexSnapshot

MESSAGES_PER_BATCH = 1_000
MATCHES_PER_BATCH = 200_000
"""A third of 500,000 subscriptions can match one message, so batches end at so many matches."""
BYTES_PER_BATCH = 64 * 1024 * 1024
"""They also end at so many bytes that transformations made."""
BYTES_PER_MESSAGE = 128 * 1024 * 1024
"""What is made of one message is one row, and with its usual memory Spark dies of rows twice as large."""

ERROR = pa.struct(
    [("reason", pa.string()), ("line", pa.int32()), ("column", pa.int32()), ("body", pa.binary())]
)
FAILURE = pa.struct([("subscription", pa.string()), ("kind", pa.string()), ("reason", pa.string())])
COST = pa.struct([("subscription", pa.string()), ("seconds", pa.float64())])


class LiveBroker:
    """A worker's broker, the version it stands at, and its ids as Arrow wants them."""

    def __init__(self, snapshot: IndexSnapshot) -> None:
        self.broker = Broker.unpack(snapshot.base.value)
        self.version = snapshot.base_version
        gc.freeze()  # half a million objects that live as long as the worker: not to be looked through again
        self._id_type = pa.int64() if snapshot.numeric else pa.string()
        self.ids: pa.Array = pa.nulls(0, self._id_type)
        self._partners: dict[bytes, EquatedVariables] | None = None
        self._list_ids()

    def leads_to(self, snapshot: IndexSnapshot) -> bool:
        """Whether the snapshot's changes lead on from here."""
        return snapshot.oldest <= self.version <= snapshot.version

    def advance(self, snapshot: IndexSnapshot) -> None:
        changes = [change for change in snapshot.changes if self.version < change.version <= snapshot.version]
        for change in changes:
            change.apply(self.broker)
        self.version = snapshot.version
        if changes:
            self._list_ids()
            self._partners = None

    @property
    def partners(self) -> dict[bytes, EquatedVariables]:
        """What the variables of joins are equated with."""
        if self._partners is None:
            self._partners = self.broker.network_of_joins.partners()
        return self._partners

    def _list_ids(self) -> None:
        """The id of every number, so that Arrow can take the ids of many numbers at once."""
        ids, numbers = self.broker.numbered()
        positions = np.full(int(numbers.max()) + 1 if len(numbers) else 0, -1, np.int64)
        positions[numbers] = np.arange(len(ids))
        listed = pa.array(map(str, ids) if self._id_type == pa.string() else ids, self._id_type)
        self.ids = listed.take(pa.array(positions, mask=positions < 0))


_KEPT = 2
_live: OrderedDict[str, LiveBroker] = OrderedDict()


def load_broker(snapshot: IndexSnapshot) -> LiveBroker:
    """This worker's broker at the snapshot's version; unpacked only if it has none that leads there."""
    live = _live.pop(snapshot.population, None)
    if live is None or not live.leads_to(snapshot):
        while len(_live) >= _KEPT:
            _live.popitem(last=False)
        live = LiveBroker(snapshot)
    live.advance(snapshot)
    _live[snapshot.population] = live
    return live


@dataclass(frozen=True, slots=True)
class MatchPartition:
    """A function for `mapInArrow`: messages in, one row out for each, with its subscriptions or its error.

    If the snapshot has transformations, `bodies` has what each of the subscriptions makes, null for a filter.
    `undecided` has the subscriptions that have no answer, and why; it is null if all have one.
    """

    snapshot: IndexSnapshot
    body: str
    problem: str | None
    """a column that says why a message is to be rejected unread, if there is one"""
    profile: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        live = load_broker(self.snapshot)
        for batch in batches:
            for start in range(0, batch.num_rows, MESSAGES_PER_BATCH):
                yield from self._matched(live, batch.slice(start, MESSAGES_PER_BATCH))

    def _matched(self, live: LiveBroker, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        dropped = {self.body, self.problem}
        kept = [name for name in batch.schema.names if name not in dropped]
        problems = batch.column(self.problem) if self.problem else pa.nulls(batch.num_rows)
        answers = self._no_answers(live)
        start = 0
        for row, (body, problem) in enumerate(
            zip(iter_values(batch.column(self.body)), iter_values(problems), strict=True)
        ):
            answers.add(body, problem)
            if answers.enough or row + 1 == batch.num_rows:
                rows = batch.slice(start, row + 1 - start)
                columns = [rows.column(name) for name in kept]
                names, arrays = answers.columns()
                yield pa.RecordBatch.from_arrays(columns + arrays, kept + names)
                answers = self._no_answers(live)
                start = row + 1

    def _no_answers(self, live: LiveBroker) -> _Answers:
        return _Answers(live, self.snapshot.transforming, self.profile)


def iter_values(column: pa.Array) -> Iterator[Any]:
    """The values of a column, a few taken out at a time, since messages can be large."""
    for start in range(0, len(column), 32):
        yield from column.slice(start, 32).to_pylist()


class _Answers:
    """The answers to successive messages, as columns in the making."""

    def __init__(self, live: LiveBroker, transforming: bool, profile: bool) -> None:
        self._live = live
        self._transforming = transforming
        self._profile = profile
        self._numbers: list[NDArray[np.int64]] = []  # of filters and of transformations, message by message
        self._made: list[bytes] = []
        self._errors: list[dict[str, Any] | None] = []
        self._failures: list[list[dict[str, str]] | None] = []
        self._matches = 0
        self._bytes = 0

    @property
    def enough(self) -> bool:
        """Whether they fill an Arrow batch."""
        return self._matches >= MATCHES_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def add(self, body: bytes | str | None, problem: str | None) -> None:
        error = failures = None
        filters = transformations = _NONE
        if problem is not None or body is None:
            error = _error(problem or "the message is null", None, None, body)
        else:
            try:
                answer = self._live.broker.answer_alone(body)
                if answer.made:
                    transformations = self._keep(answer.made)
                filters = answer.matches.unordered
                failures = self._failed(answer)
            except MessageError as refused:
                error = _error(refused.reason, refused.line, refused.column, body)
        self._numbers += filters, transformations
        self._errors.append(error)
        self._failures.append(failures)
        self._matches += len(filters) + len(transformations)

    def _failed(self, answer: PublishResult) -> list[dict[str, str]] | None:
        if not answer.problems and not answer.matches.undecided:
            return None
        ids = self._live.broker.failures(answer)
        return [{"subscription": str(f.subscription), "kind": f.kind.value, "reason": f.reason} for f in ids]

    def _keep(self, made: list[tuple[int, bytes]]) -> NDArray[np.int64]:
        """Takes what was made of a message; the numbers of those who made it."""
        size = sum(len(body) for _, body in made)
        if size > BYTES_PER_MESSAGE:
            raise MessageError(f"transformations make more than {BYTES_PER_MESSAGE:,} bytes of it")
        self._bytes += size
        self._made += [body for _, body in made]
        return np.fromiter((number for number, _ in made), np.int64, len(made))

    def columns(self) -> tuple[list[str], list[pa.Array]]:
        lengths = np.fromiter(map(len, self._numbers), np.int64, len(self._numbers))
        offsets = np.zeros(len(self._errors) + 1, np.int32)
        np.cumsum(lengths[::2] + lengths[1::2], out=offsets[1:])
        offsets = pa.array(offsets)
        ids = self._live.ids.take(pa.array(np.concatenate(self._numbers)))
        names, arrays = ["subscriptions"], [pa.ListArray.from_arrays(offsets, ids)]
        if self._transforming:
            names.append("bodies")
            arrays.append(pa.ListArray.from_arrays(offsets, self._bodies(lengths)))
        names.append("error")
        arrays.append(pa.array(self._errors, ERROR))
        names.append("undecided")
        arrays.append(pa.array(self._failures, pa.list_(FAILURE)))
        if self._profile:
            costs = self._live.broker.take_costs()
            spent = [{"subscription": str(id), "seconds": seconds} for id, seconds in costs.items()]
            names.append("costs")
            arrays.append(pa.array([spent] + [None] * (len(self._errors) - 1), pa.list_(COST)))
        return names, arrays

    def _bodies(self, lengths: NDArray[np.int64]) -> pa.Array:
        """What was made, in its place among all subscriptions, with null for filters."""
        is_made = np.repeat(np.arange(len(lengths)) % 2 > 0, lengths)
        which = np.cumsum(is_made) - 1
        return pa.array(self._made, pa.string()).take(pa.array(which, mask=~is_made))


_NONE: NDArray[np.int64] = np.empty(0, np.int64)


def _error(reason: str, line: int | None, column: int | None, body: bytes | str | None) -> dict[str, Any]:
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return {"reason": reason, "line": line, "column": column, "body": raw}
