"""The join state: the values of earlier messages, indexed for the joins of later ones.

    value ──► runs        one for each (item, variable) that has the value
    run   ──► rows        the nodes with the value, and the nodes of the variables above them
    item  ──► messages    one message, or the several of a chain's partial match

All are numbers in columns; a value is a key of one dictionary, so the state grows with the distinct values.
Runs that no window reaches any more are evicted from time to time: first they are marked dead, and when half
of all runs are dead, the columns are compacted.
"""

from __future__ import annotations

import logging
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.ragged_array import grow_array
from sapwood.join.evaluation.witnesses import Witness

Floats = NDArray[np.float64]
Expiry = Callable[[Ints, Floats], Floats]
"""returns the last watermarks at which the values of variables are needed, in messages of given times"""
_FEW_RUNS = 16
"""runs of a value that are gathered faster than they are looked up in the cache"""
_RUN_BYTES, _VALUE_BYTES, _MESSAGE_BYTES = 50, 150, 350
"""estimated memory of each"""
_CACHED_RUNS = 4_000_000
"""runs in all cached columns of frequent values"""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in the join state. Two are equal if they are of one message, even in different processes."""

    id: Hashable
    stream: str
    time: float
    visible_from: int = field(hash=False)
    """the version of the subscriptions at which it came: queries that were added later do not see it. In one
    process every message is a version of its own; on Spark it is the version of the subscription store"""
    data: bytes = field(compare=False)
    encoding: str | None = field(compare=False)
    arrival: int = 0
    """its position in the order in which messages came; 0 where there is no such order"""


class RecordStore(Protocol):
    """The messages of the items of a state by number: a list, or a store that loads them on access."""

    def append(self, records: tuple[StoredMessage, ...], /) -> None:
        """Add the messages of the next item."""

    def __getitem__(self, item: int, /) -> tuple[StoredMessage, ...]: ...

    def __len__(self) -> int: ...

    def retain(self, items: Sequence[int], /) -> RecordStore:
        """Return a store of some items only, which are numbered anew."""


class RecordList(list[tuple[StoredMessage, ...]]):
    """The messages of all items in memory."""

    def retain(self, items: Sequence[int]) -> RecordList:
        return RecordList([self[item] for item in items])


class CurrentItem:
    """The message that is being joined, or a partial match of a chain: its runs, value by value."""

    def __init__(
        self, records: tuple[StoredMessage, ...], time: float, visible_from: int, witnesses: Sequence[Witness]
    ) -> None:
        self.records = records
        self.time = time
        self.visible_from = visible_from
        """that of its earliest message"""
        by_value: dict[str, dict[int, list[tuple[int, ...]]]] = {}
        for variable, value, nodes in witnesses:
            by_value.setdefault(value, {}).setdefault(variable, []).append(nodes)
        self.values = list(by_value)
        rows: list[tuple[int, ...]] = []
        counts: list[int] = []
        self.variables: list[int] = []
        self.value_of_run: list[str] = []
        self.first_run = [0]
        """of each value, and the number of runs"""
        for value, runs in by_value.items():
            self.variables += runs
            self.value_of_run += [value] * len(runs)
            self.first_run.append(len(self.variables))
            for nodes_of in runs.values():
                counts.append(len(nodes_of))
                rows += nodes_of
        self.variable = np.array(self.variables, np.int32)
        self.count = np.array(counts, np.int32)
        self.row = np.cumsum(self.count, dtype=np.int32) - self.count
        width = max(map(len, rows), default=1)
        self.nodes = np.array([row + (-1,) * (width - len(row)) for row in rows], np.int32).reshape(-1, width)

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.variable)


@dataclass(slots=True)
class RunColumns:
    """The runs of one value and variable, and their items, in columns with spare room at the end."""

    _runs: Ints
    _items: Ints
    length: int

    @property
    def runs(self) -> Ints:
        return self._runs[: self.length]

    @property
    def items(self) -> Ints:
        return self._items[: self.length]

    def append(self, run: int, item: int) -> None:
        at = self.length
        if at == len(self._runs):
            self._runs, self._items = (
                grow_array(column, 2 * (at + 1)) for column in (self._runs, self._items)
            )
        self._runs[at], self._items[at] = run, item
        self.length = at + 1


ByVariable = dict[int, RunColumns]
"""the runs of a value"""


@dataclass(slots=True)
class MessageState:
    """The runs, rows and items of all earlier messages that some window still reaches."""

    cached: bool = True
    """whether the columns of frequent values are cached"""
    run_variable: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    run_item: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    """-1: dead"""
    run_row: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    run_count: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    run_expiry: Floats = field(default_factory=lambda: np.zeros(64, np.float64))
    """the last watermark at which it is needed"""
    run_value: list[str] = field(default_factory=list)
    nodes: NDArray[np.int32] = field(default_factory=lambda: np.zeros((64, 2), np.int32))
    rows: int = 0
    item_time: Floats = field(default_factory=lambda: np.zeros(64, np.float64))
    item_visible_from: NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, np.int64))
    item_first_run: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    records: RecordStore = field(default_factory=RecordList)
    """the messages of each item"""
    latest: float = float("-inf")
    """the largest time of an item"""
    oldest_version: int = 1 << 62
    """no item is visible from an earlier version on"""
    _runs_of: dict[str, int | array[int]] = field(default_factory=dict)
    _columns: OrderedDict[str, ByVariable] = field(default_factory=OrderedDict)
    _cached_runs: int = 0
    _dead: int = 0

    def __len__(self) -> int:
        """The number of runs, dead ones included."""
        return len(self.run_value)

    # -- insertion -------------------------------------------------------------------------------------

    def insert(self, current: CurrentItem, expiry: Floats, watermark: float) -> None:
        """Insert an item with the runs that do not expire before the watermark."""
        inserted = np.flatnonzero(expiry >= watermark).astype(np.int32)
        if not len(inserted):
            return
        first, item = len(self.run_value), len(self.records)
        self._reserve(first + len(inserted), self.rows + int(current.count.sum()), item + 1, current)
        end = first + len(inserted)
        self.run_variable[first:end] = current.variable[inserted]
        self.run_item[first:end] = item
        self.run_count[first:end] = current.count[inserted]
        self.run_expiry[first:end] = expiry[inserted]
        self._insert_rows(current, inserted, first)
        self.item_time[item] = current.time
        self.item_visible_from[item] = current.visible_from
        self.item_first_run[item] = first
        self.records.append(current.records)
        self.latest = max(self.latest, current.time)
        self.oldest_version = min(self.oldest_version, current.visible_from)
        variables, values = current.variables, current.value_of_run
        for run, number in enumerate(inserted.tolist(), first):
            value = values[number]
            self.run_value.append(value)
            self._index_run(value, run, variables[number], item)

    def _insert_rows(self, current: CurrentItem, inserted: Ints, first: int) -> None:
        if len(inserted) == len(current):
            nodes = current.nodes
        else:
            mask = np.zeros(len(current), np.bool_)
            mask[inserted] = True
            nodes = current.nodes[np.repeat(mask, current.count)]
        counts = current.count[inserted]
        self.run_row[first : first + len(inserted)] = self.rows + np.cumsum(counts) - counts
        self.nodes[self.rows : self.rows + len(nodes), : nodes.shape[1]] = nodes
        self.rows += len(nodes)

    def _reserve(self, runs: int, rows: int, items: int, current: CurrentItem) -> None:
        if runs > len(self.run_variable):
            for name in ("run_variable", "run_item", "run_row", "run_count", "run_expiry"):
                setattr(self, name, grow_array(getattr(self, name), 2 * runs))
        if items > len(self.item_time):
            for name in ("item_time", "item_visible_from", "item_first_run"):
                setattr(self, name, grow_array(getattr(self, name), 2 * items))
        width = max(self.nodes.shape[1], current.nodes.shape[1])
        if rows > len(self.nodes) or width > self.nodes.shape[1]:
            length = 2 * rows if rows > len(self.nodes) else len(self.nodes)
            wider = np.zeros((length, width), np.int32)
            wider[: self.rows, : self.nodes.shape[1]] = self.nodes[: self.rows]
            self.nodes = wider

    def _index_run(self, value: str, run: int, variable: int, item: int) -> None:
        runs = self._runs_of.get(value)
        if runs is None:
            self._runs_of[value] = run
        elif isinstance(runs, int):
            self._runs_of[value] = array("i", (runs, run))
        else:
            runs.append(run)
            columns = self._columns.get(value)
            if columns is not None:
                of_variable = columns.get(variable)
                if of_variable is None:
                    columns[variable] = RunColumns(np.array([run], np.int32), np.array([item], np.int32), 1)
                else:
                    of_variable.append(run, item)
                self._cached_runs += 1

    # -- lookup ----------------------------------------------------------------------------------------

    def find_common(self, current: CurrentItem) -> list[tuple[int, ByVariable]]:
        """Return the runs that have one of the current item's values, by the value's position."""
        found: list[tuple[int, ByVariable]] = []
        few: list[int] = []
        few_values: list[int] = []
        for number, text in enumerate(current.values):
            runs = self._runs_of.get(text)
            if runs is None:
                continue
            if isinstance(runs, int):
                few.append(runs)
                few_values.append(number)
            elif self.cached and len(runs) >= _FEW_RUNS:
                found.append((number, self._columns_of(text, runs)))
            else:
                few += runs
                few_values += [number] * len(runs)
        if few:
            found += self._group(few, few_values).items()
        return found

    def has_at_most(self, runs: int, current: CurrentItem) -> bool:
        """Return whether the current item's values have at most `runs` runs in the state."""
        runs_of = self._runs_of
        for value in current.values:
            found = runs_of.get(value)
            if found is not None:
                runs -= 1 if isinstance(found, int) else len(found)
        return runs >= 0

    def _columns_of(self, value: str, runs: array[int]) -> ByVariable:
        """Return the runs of a frequent value, which are cached."""
        columns = self._columns.get(value)
        if columns is not None:
            self._columns.move_to_end(value)
            return columns
        columns = self._columns[value] = self._group(runs, [0] * len(runs)).get(0, {})
        self._cached_runs += _count_runs(columns)
        while self._cached_runs > _CACHED_RUNS and len(self._columns) > 1:
            self._cached_runs -= _count_runs(self._columns.popitem(last=False)[1])
        return columns

    def _group(self, runs: Sequence[int], values: Sequence[int]) -> dict[int, ByVariable]:
        """Return the live ones among runs, given with positions of their values, by these and by variable."""
        every, value = np.array(runs, np.int32), np.array(values, np.int64)
        if self._dead:
            live = self.run_item.take(every) >= 0
            every, value = every[live], value[live]
        if not len(every):
            return {}
        keys = (value << 32) | self.run_variable.take(every)
        order = np.argsort(keys, kind="stable")
        keys, every = keys[order], every[order]
        items = self.run_item.take(every)
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        grouped: dict[int, ByVariable] = {}
        bounds = pairwise([*starts.tolist(), len(keys)])
        for key, (start, end) in zip(keys[starts].tolist(), bounds, strict=True):
            columns = RunColumns(every[start:end], items[start:end], end - start)
            grouped.setdefault(key >> 32, {})[key & 0xFFFFFFFF] = columns
        return grouped

    def runs(self, value: str) -> Iterable[int]:
        """Return the runs of a value, dead ones included."""
        runs = self._runs_of.get(value, ())
        return (runs,) if isinstance(runs, int) else runs

    def runs_of_item(self, item: int) -> range:
        """Return the runs of an item."""
        following = item + 1
        end = int(self.item_first_run[following]) if following < len(self.records) else len(self)
        return range(int(self.item_first_run[item]), end)

    # -- eviction --------------------------------------------------------------------------------------

    def evict_expired(self, watermark: float) -> None:
        """Evict the runs that no message at or after the watermark can reach."""
        expired = (self.run_expiry[: len(self)] < watermark) & self.live
        if expired.any():
            self._evict(expired)

    def limit_expiry(self, expiry: Expiry) -> None:
        """Let runs expire earlier where their variables are needed for less time than before."""
        live = np.flatnonzero(self.live)
        times = self.item_time.take(self.run_item.take(live))
        limit = expiry(self.run_variable.take(live), times)
        self.run_expiry[live] = np.minimum(self.run_expiry.take(live), limit)

    def _evict(self, expired: NDArray[np.bool_]) -> None:
        end = len(self)
        self.run_item[:end][expired] = -1
        self._dead = int((self.run_item[:end] < 0).sum())
        self._columns.clear()
        self._cached_runs = 0
        _log.debug("evicted %d of %d runs from the join state", int(expired.sum()), end)
        if self._dead == end or self._dead > end // 2 + 512:
            self._compact()

    def _compact(self) -> None:
        """Reclaim the memory of dead runs, and of items without runs."""
        end, items_before = len(self), len(self.records)
        live = np.flatnonzero(self.run_item[:end] >= 0).astype(np.int32)
        items, item_of_run = np.unique(self.run_item[live], return_inverse=True)
        counts = self.run_count[live]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(self.run_row[live], counts) + within
        values = self.run_value
        self.run_value = [values[run] for run in live.tolist()]
        for name in ("run_variable", "run_count", "run_expiry"):
            setattr(self, name, _with_room(getattr(self, name)[live]))
        self.run_item = _with_room(item_of_run.astype(np.int32))
        self.run_row = _with_room((np.cumsum(counts) - counts).astype(np.int32))
        self.nodes = _with_room(self.nodes[rows])
        self.rows = len(rows)
        for name in ("item_time", "item_visible_from"):
            setattr(self, name, _with_room(getattr(self, name)[items]))
        self.item_first_run = _with_room(np.searchsorted(item_of_run, np.arange(len(items))).astype(np.int32))
        self.records = self.records.retain(items.tolist())
        self.latest = float(self.item_time[: len(items)].max()) if len(items) else float("-inf")
        self.oldest_version = int(self.item_visible_from[: len(items)].min()) if len(items) else 1 << 62
        self._dead = 0
        self._runs_of = {}
        for run, value in enumerate(self.run_value):
            self._index_run(value, run, 0, 0)
        _log.debug("compacted the join state: %d of %d items remain", len(items), items_before)

    # -- statistics ------------------------------------------------------------------------------------

    @property
    def live(self) -> NDArray[np.bool_]:
        """For every run, whether it is not dead."""
        live: NDArray[np.bool_] = self.run_item[: len(self)] >= 0
        return live

    def messages(self, runs: Ints) -> set[StoredMessage]:
        """Return the messages of some runs."""
        return {record for item in np.unique(self.run_item[runs]) for record in self.records[item]}

    def bytes(self, runs: Ints, messages: set[StoredMessage]) -> int:
        """Estimate the memory of some runs and their messages."""
        values = {self.run_value[run] for run in runs.tolist()}
        of_rows = int(self.run_count[runs].sum()) * 4 * int(self.nodes.shape[1])
        of_values = sum(map(len, values)) + len(values) * _VALUE_BYTES
        of_messages = sum(_MESSAGE_BYTES + len(record.data) for record in messages)
        return len(runs) * _RUN_BYTES + of_rows + of_values + of_messages


def _count_runs(columns: ByVariable) -> int:
    return sum(column.length for column in columns.values())


def _with_room(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column with spare room at the end."""
    return np.concatenate((column, np.zeros((max(16, len(column) // 4), *column.shape[1:]), column.dtype)))
