"""What earlier messages have to say, kept for those to come: values, and who had them where.

    value ──► runs        one for each (message, variable) that has the value
    run   ──► rows        the nodes that have it, with the nodes of the variables above them
    item  ──► messages    one, or several that a chain of blocks has brought together

Numbers, in columns; a value is a key of one dictionary, so what is kept grows with the values stored. What no
window can reach any more is swept now and then, and its room is taken back when half of all is dead.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import NO_INTS, Ints
from sapwood.engine.automaton.ragged_array import grow_array
from sapwood.join.evaluation.witnesses import Witness

Floats = NDArray[np.float64]
Until = Callable[[Ints, Floats], Floats]
"""how long the values of variables are good, in messages of some times"""
_FEW = 16
"""runs that are read faster than they are remembered"""
_OF_RUN, _OF_VALUE, _OF_MESSAGE = 50, 150, 350
"""bytes that each of them takes, about"""
_ROOM = 4_000_000
"""runs in all remembered slices"""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as joins keep it. Two are equal if they are of one message, even in different processes."""

    id: Hashable
    stream: str
    time: float
    sequence: int
    """how many messages came before it"""
    data: bytes = field(compare=False)
    encoding: str | None = field(compare=False)


class Arrival:
    """A message, or several that a chain has brought together, as it comes in: its runs, value by value."""

    def __init__(
        self, records: tuple[StoredMessage, ...], time: float, sequence: int, witnesses: Sequence[Witness]
    ) -> None:
        self.records = records
        self.time = time
        self.sequence = sequence
        """of its earliest message"""
        by_value: dict[str, dict[int, list[tuple[int, ...]]]] = {}
        for variable, value, nodes in witnesses:
            by_value.setdefault(value, {}).setdefault(variable, []).append(nodes)
        self.values = list(by_value)
        rows: list[tuple[int, ...]] = []
        variables: list[int] = []
        counts: list[int] = []
        for runs in by_value.values():
            variables += runs
            for nodes_of in runs.values():
                counts.append(len(nodes_of))
                rows += nodes_of
        self.runs_of_value = np.array([len(runs) for runs in by_value.values()], np.int32)
        self.value_of_run = [value for value, runs in by_value.items() for _ in runs]
        self.variable = np.array(variables, np.int32)
        self.count = np.array(counts, np.int32)
        self.row = np.cumsum(self.count, dtype=np.int32) - self.count
        width = max(map(len, rows), default=1)
        self.nodes = np.array([row + (-1,) * (width - len(row)) for row in rows], np.int32).reshape(-1, width)

    def __len__(self) -> int:
        return len(self.variable)


@dataclass(slots=True)
class _Slice:
    """The runs of one value, ready to be read, with room to grow."""

    runs: Ints
    variables: Ints
    items: Ints
    length: int

    def extend(self, runs: range, variables: list[int], item: int) -> None:
        end = self.length + len(runs)
        if end > len(self.runs):
            self.runs, self.variables, self.items = (
                grow_array(column, 2 * end) for column in (self.runs, self.variables, self.items)
            )
        self.runs[self.length : end] = runs
        self.variables[self.length : end] = variables
        self.items[self.length : end] = item
        self.length = end


@dataclass(slots=True)
class Common:
    """Runs of earlier messages that share a value with an arrival: which, whose, and which value."""

    runs: Ints
    variables: Ints
    items: Ints
    value: Ints
    """by its place among the arrival's"""


_NONE = Common(NO_INTS, NO_INTS, NO_INTS, NO_INTS)


@dataclass(slots=True)
class MessageState:
    """All that is kept."""

    remember: bool = True
    """keep the slices of frequent values ready to be read"""
    run_variable: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    run_item: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    """-1: dead"""
    run_row: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    run_count: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    run_until: Floats = field(default_factory=lambda: np.zeros(64, np.float64))
    run_value: list[str] = field(default_factory=list)
    nodes: NDArray[np.int32] = field(default_factory=lambda: np.zeros((64, 2), np.int32))
    rows: int = 0
    item_time: Floats = field(default_factory=lambda: np.zeros(64, np.float64))
    item_sequence: NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, np.int64))
    item_first_run: Ints = field(default_factory=lambda: np.zeros(64, np.int32))
    records: list[tuple[StoredMessage, ...]] = field(default_factory=list)
    latest: float = float("-inf")
    """the largest time of an item"""
    _runs_of: dict[str, int | array[int]] = field(default_factory=dict)
    _slices: OrderedDict[str, _Slice] = field(default_factory=OrderedDict)
    _remembered: int = 0
    _dead: int = 0

    def __len__(self) -> int:
        """Runs, dead ones included."""
        return len(self.run_value)

    # -- keeping ---------------------------------------------------------------------------------------

    def keep(self, arrival: Arrival, until: Floats, watermark: float) -> None:
        """Keeps the runs that are good until the watermark, or beyond."""
        kept = np.flatnonzero(until >= watermark).astype(np.int32)
        if not len(kept):
            return
        first, item = len(self.run_value), len(self.records)
        self._reserve(first + len(kept), self.rows + int(arrival.count.sum()), item + 1, arrival)
        end = first + len(kept)
        self.run_variable[first:end] = arrival.variable[kept]
        self.run_item[first:end] = item
        self.run_count[first:end] = arrival.count[kept]
        self.run_until[first:end] = until[kept]
        self._keep_rows(arrival, kept, first)
        self.item_time[item] = arrival.time
        self.item_sequence[item] = arrival.sequence
        self.item_first_run[item] = first
        self.records.append(arrival.records)
        self.latest = max(self.latest, arrival.time)
        variables = arrival.variable.tolist()
        for run, number in enumerate(kept.tolist(), first):
            value = arrival.value_of_run[number]
            self.run_value.append(value)
            self._file(value, run, variables[number], item)

    def _keep_rows(self, arrival: Arrival, kept: Ints, first: int) -> None:
        if len(kept) == len(arrival):
            nodes = arrival.nodes
        else:
            mask = np.zeros(len(arrival), np.bool_)
            mask[kept] = True
            nodes = arrival.nodes[np.repeat(mask, arrival.count)]
        counts = arrival.count[kept]
        self.run_row[first : first + len(kept)] = self.rows + np.cumsum(counts) - counts
        self.nodes[self.rows : self.rows + len(nodes), : nodes.shape[1]] = nodes
        self.rows += len(nodes)

    def _reserve(self, runs: int, rows: int, items: int, arrival: Arrival) -> None:
        if runs > len(self.run_variable):
            for name in ("run_variable", "run_item", "run_row", "run_count", "run_until"):
                setattr(self, name, grow_array(getattr(self, name), 2 * runs))
        if items > len(self.item_time):
            for name in ("item_time", "item_sequence", "item_first_run"):
                setattr(self, name, grow_array(getattr(self, name), 2 * items))
        width = max(self.nodes.shape[1], arrival.nodes.shape[1])
        if rows > len(self.nodes) or width > self.nodes.shape[1]:
            length = 2 * rows if rows > len(self.nodes) else len(self.nodes)
            wider = np.zeros((length, width), np.int32)
            wider[: self.rows, : self.nodes.shape[1]] = self.nodes[: self.rows]
            self.nodes = wider

    def _file(self, value: str, run: int, variable: int, item: int) -> None:
        runs = self._runs_of.get(value)
        if runs is None:
            self._runs_of[value] = run
        elif isinstance(runs, int):
            self._runs_of[value] = array("i", (runs, run))
        else:
            runs.append(run)
            known = self._slices.get(value)
            if known is not None:
                known.extend(range(run, run + 1), [variable], item)
                self._remembered += 1

    # -- reading ---------------------------------------------------------------------------------------

    def common(self, arrival: Arrival) -> Common:
        """The runs of earlier messages that have one of an arrival's values."""
        known: list[_Slice] = []
        value: list[int] = []
        single: list[int] = []
        single_value: list[int] = []
        runs_of = self._runs_of
        for number, text in enumerate(arrival.values):
            runs = runs_of.get(text)
            if runs is None:
                continue
            if isinstance(runs, int):
                single.append(runs)
                single_value.append(number)
            else:
                known.append(self._slice(text, runs))
                value.append(number)
        if single:
            known.append(self._read(np.array(single, np.int32)))
        if not known:
            return _NONE
        numbers = np.repeat(np.array(value, np.int32), [s.length for s in known[: len(value)]])
        if single:
            numbers = np.concatenate((numbers, np.array(single_value, np.int32)))
        if len(known) == 1:
            only = known[0]
            n = only.length
            common = Common(only.runs[:n], only.variables[:n], only.items[:n], numbers)
        else:
            common = Common(
                np.concatenate([s.runs[: s.length] for s in known]),
                np.concatenate([s.variables[: s.length] for s in known]),
                np.concatenate([s.items[: s.length] for s in known]),
                numbers,
            )
        return self._living(common) if self._dead else common

    def at_most(self, runs: int, arrival: Arrival) -> bool:
        """Whether earlier messages have an arrival's values in no more than so many runs."""
        runs_of = self._runs_of
        for value in arrival.values:
            known = runs_of.get(value)
            if known is not None:
                runs -= 1 if isinstance(known, int) else len(known)
        return runs >= 0

    def _living(self, common: Common) -> Common:
        living = self.run_item.take(common.runs) >= 0
        if living.all():
            return common
        return Common(
            common.runs[living], common.variables[living], common.items[living], common.value[living]
        )

    def _slice(self, value: str, runs: array[int]) -> _Slice:
        if not self.remember or len(runs) < _FEW:
            return self._read(np.array(runs, np.int32))
        known = self._slices.get(value)
        if known is not None:
            self._slices.move_to_end(value)
            return known
        known = self._slices[value] = self._read(np.array(runs, np.int32))
        self._remembered += known.length
        while self._remembered > _ROOM and len(self._slices) > 1:
            self._remembered -= self._slices.popitem(last=False)[1].length
        return known

    def _read(self, runs: Ints) -> _Slice:
        return _Slice(runs, self.run_variable.take(runs), self.run_item.take(runs), len(runs))

    def runs(self, value: str) -> Iterable[int]:
        """The runs of a value, dead ones included."""
        runs = self._runs_of.get(value, ())
        return (runs,) if isinstance(runs, int) else runs

    def runs_of_item(self, item: int) -> range:
        """The runs that were kept of an item."""
        following = item + 1
        end = int(self.item_first_run[following]) if following < len(self.records) else len(self)
        return range(int(self.item_first_run[item]), end)

    # -- forgetting ------------------------------------------------------------------------------------

    def sweep(self, watermark: float) -> None:
        """Forgets what no message at or after the watermark can reach."""
        dead = (self.run_until[: len(self)] < watermark) & self.living
        if dead.any():
            self._bury(dead)

    def shorten(self, until: Until) -> None:
        """Lets nothing be good for longer than its variable and time say now."""
        living = np.flatnonzero(self.living)
        times = self.item_time.take(self.run_item.take(living))
        now = until(self.run_variable.take(living), times)
        self.run_until[living] = np.minimum(self.run_until.take(living), now)

    def _bury(self, dead: NDArray[np.bool_]) -> None:
        end = len(self)
        self.run_item[:end][dead] = -1
        self._dead = int((self.run_item[:end] < 0).sum())
        self._slices.clear()
        self._remembered = 0
        if self._dead == end or self._dead > end // 2 + 512:
            self._compact()

    def _compact(self) -> None:
        """Takes back the room of what is dead."""
        end = len(self)
        living = np.flatnonzero(self.run_item[:end] >= 0).astype(np.int32)
        items, item_of_run = np.unique(self.run_item[living], return_inverse=True)
        counts = self.run_count[living]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(self.run_row[living], counts) + within
        values = self.run_value
        self.run_value = [values[run] for run in living.tolist()]
        for name in ("run_variable", "run_count", "run_until"):
            setattr(self, name, _packed(getattr(self, name)[living]))
        self.run_item = _packed(item_of_run.astype(np.int32))
        self.run_row = _packed((np.cumsum(counts) - counts).astype(np.int32))
        self.nodes = _packed(self.nodes[rows])
        self.rows = len(rows)
        for name in ("item_time", "item_sequence"):
            setattr(self, name, _packed(getattr(self, name)[items]))
        self.item_first_run = _packed(np.searchsorted(item_of_run, np.arange(len(items))).astype(np.int32))
        self.records = [self.records[item] for item in items.tolist()]
        self.latest = float(self.item_time[: len(items)].max()) if len(items) else float("-inf")
        self._dead = 0
        self._runs_of = {}
        for run, value in enumerate(self.run_value):
            self._file(value, run, 0, 0)

    # -- reporting -------------------------------------------------------------------------------------

    @property
    def living(self) -> NDArray[np.bool_]:
        """Of every run, whether it is still there."""
        alive: NDArray[np.bool_] = self.run_item[: len(self)] >= 0
        return alive

    def messages(self, runs: Ints) -> set[StoredMessage]:
        """The messages that some runs are of."""
        return {record for item in np.unique(self.run_item[runs]) for record in self.records[item]}

    def bytes(self, runs: Ints, messages: set[StoredMessage]) -> int:
        """About how much memory some runs and their messages take."""
        values = {self.run_value[run] for run in runs.tolist()}
        of_rows = int(self.run_count[runs].sum()) * 4 * int(self.nodes.shape[1])
        of_values = sum(map(len, values)) + len(values) * _OF_VALUE
        of_messages = sum(_OF_MESSAGE + len(record.data) for record in messages)
        return len(runs) * _OF_RUN + of_rows + of_values + of_messages


def _packed(column: NDArray[Any]) -> NDArray[Any]:
    """With some room at the end, so that it can grow."""
    return np.concatenate((column, np.zeros((max(16, len(column) // 4), *column.shape[1:]), column.dtype)))
