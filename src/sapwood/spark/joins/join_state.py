"""What runs in Spark's Python workers to keep messages from batch to batch: two stateful operators.

    Strings   value → the messages that have it      brings pairs of an older and a newer message together
    Bodies    message → all of it                    adds to each pair the older message

Their keys are buckets, not values, because Spark takes its time for each key; values and messages are keys of
maps within. What no message can reach any more is dropped when the watermark has passed it, by slots of time;
while something goes on that came of an earlier batch, by the watermark of that batch.
A value that very many messages have is kept in chunks, so that another message adds to the last one only.
"""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from sapwood.spark.joins.witness_extraction import CHAIN, FOREVER, HOLD, KEY, TAKEN, TICK, VALUE, bucket_of

PAIR, LATE = "pair", "late"
PARTS = (
    "bucket INT, kind STRING, name BINARY, newer BINARY, t BIGINT, until BIGINT,"
    " record BINARY, row BINARY, watermark BIGINT, et TIMESTAMP"
)
OUT = "kind STRING, name BINARY, older BINARY, record BINARY, row BINARY, watermark BIGINT"

_PARTS = ["bucket", "kind", "name", "newer", "t", "until", "record", "row", "watermark"]
_OUT = ["kind", "name", "older", "record", "row", "watermark"]
_PLACE = StructType([StructField("key", BinaryType()), StructField("chunk", IntegerType())])
_SLOT = StructType([StructField("slot", LongType()), StructField("batch", LongType())])
_BLOB = StructType([StructField("blob", BinaryType())])
_HELD = (-1, 0)
"""a slot for none: there is something to be dropped, though its timer is gone"""
_SLOT_LENGTH = 60_000
"""milliseconds: what is of no use any more is dropped so much later at most"""
_CHUNK = 128
"""messages with one value that are kept together"""
_ROWS, _BYTES = 2_000, 16 << 20
"""of a frame that is passed on"""


class _Keeping(StatefulProcessor):
    """A map of keys for each bucket, and by slots of time the keys of which something may be dropped."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._kept = handle.getMapState("kept", _PLACE, _BLOB)
        self._due = handle.getMapState("due", _SLOT, _BLOB)
        self._swept: set[Any] = set()
        self._floor = FOREVER

    def close(self) -> None:
        pass

    def get(self, key: bytes, chunk: int = 0) -> bytes | None:
        found = self._kept.getValue((key, chunk))
        return bytes(found[0]) if found is not None else None

    def put(self, key: bytes, blob: bytes, chunk: int = 0) -> None:
        self._kept.updateValue((key, chunk), (blob,))

    def drop(self, key: bytes, chunk: int = 0) -> None:
        self._kept.removeKey((key, chunk))

    def hold(self, floor: int) -> None:
        """In this batch, drops nothing that is of use from this time on."""
        self._floor = min(self._floor, floor)

    def remember(self, used: Iterable[tuple[int, bytes]], timers: TimerValues) -> None:
        """Of keys, when something may be dropped: once the watermark is past these times."""
        slots: dict[int, set[bytes]] = {}
        for until, key in used:
            if until < FOREVER:
                slots.setdefault(until // _SLOT_LENGTH + 1, set()).add(key)
        batch = timers.getCurrentProcessingTimeInMs()  # that of the batch, also if it is served again
        for slot, keys in slots.items():
            self._due.updateValue((slot, batch), (pickle.dumps(sorted(keys)),))
            self._handle.registerTimer(slot * _SLOT_LENGTH)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        if key not in self._swept:  # once for all timers of a batch
            self._sweep(key, timerValues)
        return iter(())

    def sweep_again(self, key: Any, timers: TimerValues) -> None:
        """After the rows of a batch: drops what had to be held in one before."""
        if self._due.getValue(_HELD) is not None:
            self._due.removeKey(_HELD)
            self._sweep(key, timers)

    def _sweep(self, key: Any, timers: TimerValues) -> None:
        self._swept.add(key)
        now = timers.getCurrentWatermarkInMs()
        watermark = min(now, self._floor)
        places = [tuple(place) for place in self._due.keys()]  # noqa: SIM118
        past = [place for place in places if place != _HELD and place[0] * _SLOT_LENGTH <= now]
        for place in past:
            if place[0] * _SLOT_LENGTH > watermark:
                self._due.updateValue(_HELD, (b"",))
                continue
            found = self._due.getValue(place)
            for used in pickle.loads(bytes(found[0])) if found is not None else ():
                self.expire(used, watermark)
            self._due.removeKey(place)

    @abstractmethod
    def expire(self, key: bytes, watermark: int) -> None:
        """Drops what is of no use after the watermark."""


# -- values ------------------------------------------------------------------------------------------------


class ValueEntry(NamedTuple):
    """A message that has a value."""

    t: int
    name: bytes
    until: int
    own: bytes


class _Chunk(NamedTuple):
    """What is known of a chunk without reading it."""

    number: int
    first: int
    """the least time in it"""
    until: int


class _Held(NamedTuple):
    """The messages that have a value: the last ones, and the chunks of those before."""

    last: list[ValueEntry]
    chunks: list[_Chunk]
    following: int

    @classmethod
    def read(cls, blob: bytes | None) -> _Held:
        if blob is None:
            return cls([], [], 1)
        last, chunks, following = pickle.loads(blob)
        return cls([ValueEntry(*each) for each in last], [_Chunk(*each) for each in chunks], following)

    def written(self) -> bytes:
        last, chunks = [tuple(each) for each in self.last], [tuple(each) for each in self.chunks]
        return pickle.dumps((last, chunks, self.following), pickle.HIGHEST_PROTOCOL)


@lru_cache(100_000)
def _equated(own: bytes, partners: bytes) -> bool:
    """Whether one of the variables is among the partners."""
    known = {partners[i : i + KEY] for i in range(0, len(partners), KEY)}
    return any(own[i : i + KEY] in known for i in range(0, len(own), KEY))


def _reach(one: ValueEntry, other: ValueEntry) -> bool:
    """Whether the later of two messages is within the window of the earlier."""
    return other.t <= one.until if one.t <= other.t else one.t <= other.until


class ValueStateProcessor(_Keeping):
    """Rows of `joining` in; messages out, those that are too late marked so, and pairs of names."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        watermark = timerValues.getCurrentWatermarkInMs()
        values: dict[bytes, list[tuple[ValueEntry, bytes]]] = {}
        passed = self._sorted_out(rows, watermark, values)
        yield from _frames(passed, _PARTS, event_time=True)
        yield from _frames(self._pairs(values), _PARTS, event_time=True)
        used = ((entry.until, value) for value, new in values.items() for entry, _ in new)
        self.remember(used, timerValues)
        self.sweep_again(key, timerValues)

    def _sorted_out(
        self,
        frames: Iterator[pd.DataFrame],
        watermark: int,
        values: dict[bytes, list[tuple[ValueEntry, bytes]]],
    ) -> Iterator[tuple[Any, ...]]:
        """The messages; values are put where they belong."""
        names = ["bucket", "kind", "name", "value", "t", "until", "own", "partners", "record", "row", "floor"]
        for bucket, kind, name, value, t, until, own, partners, record, row, floor in _tuples(frames, names):
            late = floor < 0 and watermark > 0 and t < watermark
            if kind == VALUE:
                if not late:
                    values.setdefault(value, []).append((ValueEntry(t, name, until, own), partners))
            elif kind == HOLD:
                self.hold(floor)
                yield bucket, kind, name, b"", t, until, record, row, floor
            elif kind != TICK:
                kind = LATE if late and kind == TAKEN else kind
                since = floor if floor >= 0 else max(watermark, 0)
                yield bucket, kind, name, b"", t, until, record, row, since

    def _pairs(self, values: dict[bytes, list[tuple[ValueEntry, bytes]]]) -> Iterator[tuple[Any, ...]]:
        """Pairs of an older and a newer message, each once."""
        told: set[tuple[bytes, bytes]] = set()
        for value, new in values.items():
            new.sort()
            held = _Held.read(self.get(value))
            before: dict[bytes, list[ValueEntry]] = {}  # by the variables, since most do not fit together
            for older in (*self._within(value, held, new), *held.last):
                before.setdefault(older.own, []).append(older)
            for entry, partners in new:
                fitting = (some for own, some in before.items() if _equated(own, partners))
                for older in chain.from_iterable(fitting):
                    pair = older.name, entry.name
                    if _reach(older, entry) and older.name != entry.name and pair not in told:
                        told.add(pair)
                        bucket = bucket_of(older.name, self.buckets)
                        yield bucket, PAIR, older.name, entry.name, older.t, -1, b"", b"", 0
                before.setdefault(entry.own, []).append(entry)
            self._keep(value, held, [entry for entry, _ in new])

    def _within(self, value: bytes, held: _Held, new: list[tuple[ValueEntry, bytes]]) -> Iterator[ValueEntry]:
        """Of what is in chunks, that which new messages may reach."""
        first, until = new[0][0].t, max(entry.until for entry, _ in new)
        for chunk in held.chunks:
            if chunk.first <= until and first <= chunk.until:
                blob = self.get(value, chunk.number)
                yield from (ValueEntry(*each) for each in pickle.loads(blob or pickle.dumps([])))

    def _keep(self, value: bytes, held: _Held, new: list[ValueEntry]) -> None:
        last, chunks, following = [*held.last, *new], list(held.chunks), held.following
        while len(last) >= _CHUNK:
            full, last = last[:_CHUNK], last[_CHUNK:]
            self.put(value, pickle.dumps([tuple(each) for each in full]), following)
            chunks.append(_Chunk(following, min(e.t for e in full), max(e.until for e in full)))
            following += 1
        self.put(value, _Held(last, chunks, following).written())

    def expire(self, key: bytes, watermark: int) -> None:
        blob = self.get(key)
        if blob is None:
            return
        held = _Held.read(blob)
        last = [entry for entry in held.last if entry.until >= watermark]
        chunks = [chunk for chunk in held.chunks if chunk.until >= watermark]
        for chunk in held.chunks:
            if chunk.until < watermark:
                self.drop(key, chunk.number)
        if not last and not chunks:
            self.drop(key)
        elif len(last) < len(held.last) or len(chunks) < len(held.chunks):
            self.put(key, _Held(last, chunks, held.following).written())


# -- messages ----------------------------------------------------------------------------------------------


class MessageStateProcessor(_Keeping):
    """Messages and pairs of names in; messages out, and pairs with the older message."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        pairs: dict[bytes, set[bytes]] = {}
        kept: list[tuple[int, bytes]] = []
        yield from _frames(self._messages(rows, pairs, kept), _OUT)
        self.remember(kept, timerValues)
        yield from _frames(self._pairs(pairs), _OUT)
        self.sweep_again(key, timerValues)

    def _messages(
        self, frames: Iterator[pd.DataFrame], pairs: dict[bytes, set[bytes]], kept: list[tuple[int, bytes]]
    ) -> Iterator[tuple[Any, ...]]:
        """The messages, which are kept; pairs are put together."""
        names = ["kind", "name", "newer", "until", "record", "row", "watermark"]
        for kind, name, newer, until, record, row, watermark in _tuples(frames, names):
            if kind == PAIR:
                pairs.setdefault(name, set()).add(newer)
                continue
            if kind == HOLD:
                self.hold(watermark)
                continue
            yield kind, name, b"", record, row, watermark
            if kind in (TAKEN, CHAIN) and until >= 0:
                self.put(name, pickle.dumps((until, record)))
                kept.append((until, name))

    def _pairs(self, pairs: dict[bytes, set[bytes]]) -> Iterator[tuple[Any, ...]]:
        for name, newer in sorted(pairs.items()):
            blob = self.get(name)
            if blob is not None:
                record = pickle.loads(blob)[1]
                for each in sorted(newer):
                    yield PAIR, each, name, record, b"", 0

    def expire(self, key: bytes, watermark: int) -> None:
        blob = self.get(key)
        if blob is not None and pickle.loads(blob)[0] < watermark:
            self.drop(key)


# -- frames ------------------------------------------------------------------------------------------------


def _tuples(frames: Iterator[pd.DataFrame], names: list[str]) -> Iterator[tuple[Any, ...]]:
    for frame in frames:
        yield from zip(*(frame[name].tolist() for name in names), strict=True)


def _frames(
    rows: Iterable[tuple[Any, ...]], names: list[str], event_time: bool = False
) -> Iterator[pd.DataFrame]:
    """Rows as frames of bounded size."""
    pending: list[tuple[Any, ...]] = []
    size, record = 0, names.index("record")
    for row in rows:
        pending.append(row)
        size += len(row[record])
        if len(pending) >= _ROWS or size >= _BYTES:
            yield _frame(pending, names, event_time)
            pending, size = [], 0
    if pending:
        yield _frame(pending, names, event_time)


def _frame(rows: list[tuple[Any, ...]], names: list[str], event_time: bool) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=names)
    if event_time:
        frame["et"] = pd.Series([pd.NaT] * len(rows), dtype="datetime64[ns]")
    return frame
