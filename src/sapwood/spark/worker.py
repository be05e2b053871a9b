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

from sapwood.engine import Matcher
from sapwood.errors import MessageError
from sapwood.spark.edition import Edition

MESSAGES_PER_BATCH = 1_000
MATCHES_PER_BATCH = 200_000
"""A third of 500,000 subscriptions can match one message, so batches end at so many matches."""

ERROR = pa.struct(
    [("reason", pa.string()), ("line", pa.int32()), ("column", pa.int32()), ("body", pa.binary())]
)
COST = pa.struct([("subscription", pa.string()), ("seconds", pa.float64())])


class LiveMatcher:
    """A worker's matcher, the version it stands at, and its ids as Arrow wants them."""

    def __init__(self, edition: Edition) -> None:
        self.matcher = Matcher.unpack(edition.base.value)
        self.version = edition.base_version
        gc.freeze()  # half a million objects that live as long as the worker: not to be looked through again
        self._id_type = pa.int64() if edition.numeric else pa.string()
        self.ids: pa.Array = pa.nulls(0, self._id_type)
        self._list_ids()

    def leads_to(self, edition: Edition) -> bool:
        """Whether the edition's changes lead on from here."""
        return edition.oldest <= self.version <= edition.version

    def advance(self, edition: Edition) -> None:
        changes = [change for change in edition.changes if self.version < change.version <= edition.version]
        for change in changes:
            change.apply(self.matcher)
        self.version = edition.version
        if changes:
            self._list_ids()

    def _list_ids(self) -> None:
        """The id of every number, so that Arrow can take the ids of many numbers at once."""
        ids, numbers = self.matcher.numbered()
        positions = np.full(int(numbers.max()) + 1 if len(numbers) else 0, -1, np.int64)
        positions[numbers] = np.arange(len(ids))
        listed = pa.array(map(str, ids) if self._id_type == pa.string() else ids, self._id_type)
        self.ids = listed.take(pa.array(positions, mask=positions < 0))


_KEPT = 2
_live: OrderedDict[str, LiveMatcher] = OrderedDict()


def live_matcher(edition: Edition) -> LiveMatcher:
    """This worker's matcher at the edition's version; unpacked only if it has none that leads there."""
    live = _live.pop(edition.population, None)
    if live is None or not live.leads_to(edition):
        while len(_live) >= _KEPT:
            _live.popitem(last=False)
        live = LiveMatcher(edition)
    live.advance(edition)
    _live[edition.population] = live
    return live


@dataclass(frozen=True, slots=True)
class MatchPartition:
    """A function for `mapInArrow`: messages in, one row out for each, with its subscriptions or its error."""

    edition: Edition
    body: str
    problem: str | None
    """a column that says why a message is to be rejected unread, if there is one"""
    profile: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        live = live_matcher(self.edition)
        for batch in batches:
            for start in range(0, batch.num_rows, MESSAGES_PER_BATCH):
                yield from self._matched(live, batch.slice(start, MESSAGES_PER_BATCH))

    def _matched(self, live: LiveMatcher, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        dropped = {self.body, self.problem}
        kept = [name for name in batch.schema.names if name not in dropped]
        problems = batch.column(self.problem) if self.problem else pa.nulls(batch.num_rows)
        answers = _Answers(live, self.profile)
        start = 0
        for row, (body, problem) in enumerate(
            zip(_few(batch.column(self.body)), _few(problems), strict=True)
        ):
            answers.add(body, problem)
            if answers.matches >= MATCHES_PER_BATCH or row + 1 == batch.num_rows:
                rows = batch.slice(start, row + 1 - start)
                columns = [rows.column(name) for name in kept]
                names, arrays = answers.columns()
                yield pa.RecordBatch.from_arrays(columns + arrays, kept + names)
                answers = _Answers(live, self.profile)
                start = row + 1


def _few(column: pa.Array) -> Iterator[Any]:
    """The values of a column, a few taken out at a time, since messages can be large."""
    for start in range(0, len(column), 32):
        yield from column.slice(start, 32).to_pylist()


class _Answers:
    """The answers to successive messages, as columns in the making."""

    def __init__(self, live: LiveMatcher, profile: bool) -> None:
        self._live = live
        self._profile = profile
        self._numbers: list[NDArray[np.int64]] = []
        self._lengths: list[int] = []
        self._errors: list[dict[str, Any] | None] = []
        self.matches = 0

    def add(self, body: bytes | str | None, problem: str | None) -> None:
        error = None
        numbers = _NONE
        if problem is not None or body is None:
            error = _error(problem or "the message is null", None, None, body)
        else:
            try:
                numbers = self._live.matcher.match(body).unordered
            except MessageError as refused:
                error = _error(refused.reason, refused.line, refused.column, body)
        self._numbers.append(numbers)
        self._lengths.append(len(numbers))
        self._errors.append(error)
        self.matches += len(numbers)

    def columns(self) -> tuple[list[str], list[pa.Array]]:
        offsets = np.zeros(len(self._lengths) + 1, np.int32)
        np.cumsum(self._lengths, out=offsets[1:])
        ids = self._live.ids.take(pa.array(np.concatenate(self._numbers)))
        lists = pa.ListArray.from_arrays(pa.array(offsets), ids)
        names, arrays = ["subscriptions", "error"], [lists, pa.array(self._errors, ERROR)]
        if self._profile:
            costs = self._live.matcher.take_costs()
            spent = [{"subscription": str(id), "seconds": seconds} for id, seconds in costs.items()]
            names.append("costs")
            arrays.append(pa.array([spent] + [None] * (len(self._lengths) - 1), pa.list_(COST)))
        return names, arrays


_NONE: NDArray[np.int64] = np.empty(0, np.int64)


def _error(reason: str, line: int | None, column: int | None, body: bytes | str | None) -> dict[str, Any]:
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return {"reason": reason, "line": line, "column": column, "body": raw}
