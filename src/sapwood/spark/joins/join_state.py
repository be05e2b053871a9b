"""The state of joins: two stateful operators that run in Spark's Python workers.

    ValueStateProcessor     value → the messages that have it      finds pairs of an older and a newer message
    MessageStateProcessor   message → its body and witnesses       adds the older message to each pair

Their grouping keys are buckets, not values, because Spark takes its time for each key; values and messages
are keys of maps within. What no message can be joined with any more is evicted when the watermark has passed
it, by slots of time; while feedback of an earlier batch is yet to be joined, by the watermark of that batch.
A value that very many messages have is stored in chunks, so that another message rewrites the last one only.
"""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Iterable, Iterator
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

from sapwood.spark.joins.schema import (
    CHAIN,
    EVENT_TIME,
    FOREVER,
    JOINABLE,
    KEY_LENGTH,
    LATE,
    PAIR,
    RETAIN,
    VALUE,
    CandidateRow,
    JoinRow,
    ParsedMessage,
    WitnessRow,
    from_frames,
    to_frames,
)
from sapwood.spark.joins.witness_extraction import bucket_of

STATE_FORMAT = 2
"""The format of the state and of the feedback in a checkpoint. Raise it with any change of the names and
types below, of what is pickled into them, of `schema.serialize_message` or of `bucket_of`."""
ENTRIES = "entries"
"""the state variable with what is stored by value, or by message"""
_EVICTIONS = "evictions"
_ENTRY_KEY = StructType([StructField("key", BinaryType()), StructField("chunk", IntegerType())])
_SLOT_KEY = StructType([StructField("slot", LongType()), StructField("batch", LongType())])
_BLOB = StructType([StructField("blob", BinaryType())])
_DEFERRED = (-1, 0)
"""the key of no slot: there is something to evict, though its timer has expired"""
_SLOT_LENGTH = 60_000
"""milliseconds: the longest time by which an eviction comes later than it might"""
_CHUNK_LENGTH = 128
"""messages with one value that are stored together"""


class _BucketState(StatefulProcessor):
    """A map of entries for each bucket, and by slots of time the keys of entries to evict."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._entries = handle.getMapState(ENTRIES, _ENTRY_KEY, _BLOB)
        self._evictions = handle.getMapState(_EVICTIONS, _SLOT_KEY, _BLOB)
        self._evicted: set[Any] = set()
        self._floor = FOREVER

    def close(self) -> None:
        pass

    def get(self, key: bytes, chunk: int = 0) -> bytes | None:
        found = self._entries.getValue((key, chunk))
        return bytes(found[0]) if found is not None else None

    def put(self, key: bytes, blob: bytes, chunk: int = 0) -> None:
        self._entries.updateValue((key, chunk), (blob,))

    def remove(self, key: bytes, chunk: int = 0) -> None:
        self._entries.removeKey((key, chunk))

    def retain_from(self, floor: int) -> None:
        """In this batch, evict nothing that is of use from this time on."""
        self._floor = min(self._floor, floor)

    def schedule_evictions(self, used: Iterable[tuple[int, bytes]], timers: TimerValues) -> None:
        """Schedule the eviction of keys for when the watermark is past these times."""
        slots: dict[int, set[bytes]] = {}
        for until, key in used:
            if until < FOREVER:
                slots.setdefault(until // _SLOT_LENGTH + 1, set()).add(key)
        batch = timers.getCurrentProcessingTimeInMs()  # that of the batch, also if it runs again
        for slot, keys in slots.items():
            self._evictions.updateValue((slot, batch), (pickle.dumps(sorted(keys)),))
            self._handle.registerTimer(slot * _SLOT_LENGTH)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        if key not in self._evicted:  # once for all timers of a batch
            self._evict_expired(key, timerValues)
        return iter(())

    def evict_deferred(self, key: Any, timers: TimerValues) -> None:
        """After the rows of a batch: evict what an earlier batch had to retain."""
        if self._evictions.getValue(_DEFERRED) is not None:
            self._evictions.removeKey(_DEFERRED)
            self._evict_expired(key, timers)

    def _evict_expired(self, key: Any, timers: TimerValues) -> None:
        self._evicted.add(key)
        now = timers.getCurrentWatermarkInMs()
        watermark = min(now, self._floor)
        slots = [tuple(slot) for slot in self._evictions.keys()]  # noqa: SIM118
        for slot in [slot for slot in slots if slot != _DEFERRED and slot[0] * _SLOT_LENGTH <= now]:
            if slot[0] * _SLOT_LENGTH > watermark:
                self._evictions.updateValue(_DEFERRED, (b"",))
                continue
            found = self._evictions.getValue(slot)
            for used in pickle.loads(bytes(found[0])) if found is not None else ():
                self.evict(used, watermark)
            self._evictions.removeKey(slot)

    @abstractmethod
    def evict(self, key: bytes, watermark: int) -> None:
        """Evict entries behind the watermark."""


# -- values ------------------------------------------------------------------------------------------------


class ValueEntry(NamedTuple):
    """A message that has a value."""

    time: int
    name: bytes
    until: int
    variables: bytes


class _ChunkRange(NamedTuple):
    """The number of a chunk and the times in it, so that it need not be read to be ruled out."""

    number: int
    first: int
    until: int


class _ValueEntries(NamedTuple):
    """The messages that have a value: the last ones, and the chunks of those before."""

    last: list[ValueEntry]
    chunks: list[_ChunkRange]
    next_chunk: int

    @classmethod
    def from_bytes(cls, blob: bytes | None) -> _ValueEntries:
        if blob is None:
            return cls([], [], 1)
        last, chunks, next_chunk = pickle.loads(blob)
        return cls([ValueEntry(*each) for each in last], [_ChunkRange(*each) for each in chunks], next_chunk)

    def to_bytes(self) -> bytes:
        last, chunks = [tuple(each) for each in self.last], [tuple(each) for each in self.chunks]
        return pickle.dumps((last, chunks, self.next_chunk), pickle.HIGHEST_PROTOCOL)


_NewEntries = dict[bytes, list[tuple[ValueEntry, bytes]]]
"""by value, the entries of a batch with the partners of their variables"""


class _EquatedVariables:
    """A cache, for one batch, of which variables are equated: most entries have the same ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], bool] = {}

    def intersect(self, variables: bytes, partners: bytes) -> bool:
        """Whether one of the variables is among the partners."""
        known = self._known.get((variables, partners))
        if known is None:
            others = set(_split_keys(partners))
            known = self._known[variables, partners] = not others.isdisjoint(_split_keys(variables))
        return known


def _split_keys(keys: bytes) -> Iterator[bytes]:
    return (keys[i : i + KEY_LENGTH] for i in range(0, len(keys), KEY_LENGTH))


def _within_window(one: ValueEntry, other: ValueEntry) -> bool:
    """Whether the later of two messages is within the window of the earlier."""
    return other.time <= one.until if one.time <= other.time else one.time <= other.until


class ValueStateProcessor(_BucketState):
    """Rows of extraction in; messages out, of which late ones are marked, and pairs of names."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        watermark = timerValues.getCurrentWatermarkInMs()
        values: _NewEntries = {}
        messages = self._messages(from_frames(rows, WitnessRow), watermark, values)
        yield from to_frames(messages, CandidateRow)
        yield from to_frames(self._pairs(values), CandidateRow)
        used = ((entry.until, value) for value, new in values.items() for entry, _ in new)
        self.schedule_evictions(used, timerValues)
        self.evict_deferred(key, timerValues)

    def _messages(
        self, rows: Iterator[WitnessRow], watermark: int, values: _NewEntries
    ) -> Iterator[CandidateRow]:
        """Yield the messages, and collect the values."""
        for row in rows:
            kind, floor = row.kind, row.floor
            late = floor < 0 and watermark > 0 and row.time < watermark
            if kind == VALUE:
                if not late:
                    entry = ValueEntry(row.time, row.name, row.until, row.variables)
                    values.setdefault(row.value, []).append((entry, row.partners))
            elif kind == RETAIN:
                self.retain_from(floor)
                yield CandidateRow(row.bucket, kind, row.name, watermark=floor)
            elif kind != EVENT_TIME:
                yield CandidateRow(
                    row.bucket,
                    LATE if late and kind == JOINABLE else kind,
                    row.name,
                    b"",
                    row.until,
                    row.parsed,
                    floor if floor >= 0 else max(watermark, 0),
                )

    def _pairs(self, values: _NewEntries) -> Iterator[CandidateRow]:
        """Yield the pairs of an older and a newer message, each once, and store the new entries."""
        seen: set[tuple[bytes, bytes]] = set()
        equated = _EquatedVariables()
        for value, new in values.items():
            new.sort()
            stored = _ValueEntries.from_bytes(self.get(value))
            before: dict[bytes, list[ValueEntry]] = {}  # by the variables, since most are not equated
            for older in (*self._read_chunks(value, stored, new), *stored.last):
                before.setdefault(older.variables, []).append(older)
            for entry, partners in new:
                candidates = (some for own, some in before.items() if equated.intersect(own, partners))
                for older in chain.from_iterable(candidates):
                    pair = older.name, entry.name
                    if _within_window(older, entry) and older.name != entry.name and pair not in seen:
                        seen.add(pair)
                        bucket = bucket_of(older.name, self.buckets)
                        yield CandidateRow(bucket, PAIR, older.name, entry.name)
                before.setdefault(entry.variables, []).append(entry)
            self._store(value, stored, [entry for entry, _ in new])

    def _read_chunks(
        self, value: bytes, stored: _ValueEntries, new: list[tuple[ValueEntry, bytes]]
    ) -> Iterator[ValueEntry]:
        """Yield the entries of the chunks in whose range of time new entries are."""
        first, until = new[0][0].time, max(entry.until for entry, _ in new)
        for chunk in stored.chunks:
            if chunk.first <= until and first <= chunk.until:
                blob = self.get(value, chunk.number)
                yield from (ValueEntry(*each) for each in pickle.loads(blob or pickle.dumps([])))

    def _store(self, value: bytes, stored: _ValueEntries, new: list[ValueEntry]) -> None:
        last, chunks, number = [*stored.last, *new], list(stored.chunks), stored.next_chunk
        while len(last) >= _CHUNK_LENGTH:
            full, last = last[:_CHUNK_LENGTH], last[_CHUNK_LENGTH:]
            self.put(value, pickle.dumps([tuple(each) for each in full]), number)
            chunks.append(_ChunkRange(number, min(e.time for e in full), max(e.until for e in full)))
            number += 1
        self.put(value, _ValueEntries(last, chunks, number).to_bytes())

    def evict(self, key: bytes, watermark: int) -> None:
        blob = self.get(key)
        if blob is None:
            return
        stored = _ValueEntries.from_bytes(blob)
        last = [entry for entry in stored.last if entry.until >= watermark]
        chunks = [chunk for chunk in stored.chunks if chunk.until >= watermark]
        for chunk in stored.chunks:
            if chunk.until < watermark:
                self.remove(key, chunk.number)
        if not last and not chunks:
            self.remove(key)
        elif len(last) < len(stored.last) or len(chunks) < len(stored.chunks):
            self.put(key, _ValueEntries(last, chunks, stored.next_chunk).to_bytes())


# -- messages ----------------------------------------------------------------------------------------------


class MessageStateProcessor(_BucketState):
    """Messages and pairs of names in; messages out, and pairs with the older message."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        pairs: dict[bytes, set[bytes]] = {}
        stored: list[tuple[int, bytes]] = []
        messages = self._messages(from_frames(rows, CandidateRow), pairs, stored)
        yield from to_frames(messages, JoinRow)
        self.schedule_evictions(stored, timerValues)
        yield from to_frames(self._pairs(pairs), JoinRow)
        self.evict_deferred(key, timerValues)

    def _messages(
        self,
        rows: Iterator[CandidateRow],
        pairs: dict[bytes, set[bytes]],
        stored: list[tuple[int, bytes]],
    ) -> Iterator[JoinRow]:
        """Yield the messages, store those that joins read, and collect the pairs."""
        for row in rows:
            kind, name = row.kind, row.name
            if kind == PAIR:
                pairs.setdefault(name, set()).add(row.newer)
                continue
            if kind == RETAIN:
                self.retain_from(row.watermark)
                continue
            yield JoinRow(kind, name, b"", row.parsed, row.watermark)
            if kind in (JOINABLE, CHAIN) and row.until >= 0:
                self.put(name, pickle.dumps((row.until, row.parsed.message)))
                stored.append((row.until, name))

    def _pairs(self, pairs: dict[bytes, set[bytes]]) -> Iterator[JoinRow]:
        for name, newer in sorted(pairs.items()):
            blob = self.get(name)
            if blob is not None:
                older = ParsedMessage(pickle.loads(blob)[1])
                for each in sorted(newer):
                    yield JoinRow(PAIR, each, name, older)

    def evict(self, key: bytes, watermark: int) -> None:
        blob = self.get(key)
        if blob is not None and pickle.loads(blob)[0] < watermark:
            self.remove(key)
