"""The shared evaluation: all queries at once, on the values that a message has in common with the state.

1. pairs    the variable pairs that are equal, and in which items: one lookup for all templates
2. rows     the rows all of whose pairs are equal in one item; found by way of the rarest pair. A row of one
            pair, with nothing else to check, matches with all items of the pair: these are not looked at
3. nodes    variables that start from one variable must start from one node: checked in arrays where every
            pair has one pair of nodes, and otherwise by the residual check, like comparisons other than =.
            That one takes a candidate at a time, so it sees only those that suit the window of a query
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import NO_INTS, Ints
from sapwood.join.evaluation.residual_check import CurrentSide, EqualRuns, StateSide, is_satisfiable
from sapwood.join.evaluation.window_check import WindowCheck
from sapwood.join.graph.templates import TemplateRelations
from sapwood.join.state.message_state import ByVariable, CurrentItem, RunColumns

_MANY_ITEMS = 64
"""items of a row from which on they are better not copied, but checked by themselves"""


class EqualPair(NamedTuple):
    """A variable pair that is equal by one value: the runs of the state, and the run of the current item."""

    pair: int
    stored: RunColumns
    current: int


@dataclass(slots=True)
class _PairColumns:
    """Variable pairs that are equal, in columns: the item of the state, and the runs of both sides."""

    pair: Ints
    item: Ints
    stored: Ints
    """the run of the state"""
    current: Ints
    """the run of the current item"""


class MatchedRows(NamedTuple):
    """The rows that the current item satisfies with items of the state."""

    frequent: list[tuple[int, Ints]]
    """rows of one pair that is equal in many items, with these"""
    rows: Ints
    """other rows, each beside an item"""
    items: Ints


def find_equal_pairs(
    relations: TemplateRelations,
    current: CurrentItem,
    common: Sequence[tuple[int, ByVariable]],
    state_is_left: bool,
) -> list[EqualPair]:
    """Return the pairs that are equal in the current item and items of the state, which are on one side."""
    found: list[EqualPair] = []
    for value, columns in common:
        for run in range(current.first_run[value], current.first_run[value + 1]):
            partners = relations.pairs.partners(current.variables[run], not state_is_left)
            if len(partners) < len(columns):
                found += [EqualPair(n, columns[v], run) for v, n in partners.items() if v in columns]
            else:
                found += [EqualPair(partners[v], c, run) for v, c in columns.items() if v in partners]
    return found


def match_rows(relations: TemplateRelations, equal: Sequence[EqualPair], check: WindowCheck) -> MatchedRows:
    """Return the rows that the current item satisfies with an item of the state, and that item; whether the
    windows of their members suit the two is left open."""
    by_pair: dict[int, list[EqualPair]] = {}
    counts: dict[int, int] = {}  # of items; one with several values is counted more than once
    for each in equal:
        by_pair.setdefault(each.pair, []).append(each)
        counts[each.pair] = counts.get(each.pair, 0) + each.stored.length
    relations.count_equal(counts)
    frequent: list[tuple[int, Ints]] = []
    single: list[tuple[int, Ints]] = []
    others: list[Ints] = []
    for pair, found in by_pair.items():
        indexed = relations.rows_under(pair)
        if indexed.single:
            items = found[0].stored.items
            if len(found) > 1:
                items = np.unique(np.concatenate([each.stored.items for each in found]))
            (single if len(items) < _MANY_ITEMS else frequent).extend((row, items) for row in indexed.single)
        if len(indexed.others):
            others.append(indexed.others)
    rows, items = _in_columns(single)
    if others:
        complete, rarest = _with_all_pairs(relations, np.concatenate(others), counts)
        if len(complete):
            evaluation = _Evaluation(relations, _to_columns(equal), check)
            more_rows, more_items = evaluation.match(complete, rarest)
            rows, items = np.concatenate((rows, more_rows)), np.concatenate((items, more_items))
    return MatchedRows(frequent, rows, items)


def _in_columns(matched: Sequence[tuple[int, Ints]]) -> tuple[Ints, Ints]:
    """Return each row beside each of its items."""
    if not matched:
        return NO_INTS, NO_INTS
    lengths = [len(items) for _, items in matched]
    rows = np.repeat(np.array([row for row, _ in matched], np.int32), lengths)
    return rows, np.concatenate([items for _, items in matched])


def _with_all_pairs(relations: TemplateRelations, rows: Ints, counts: dict[int, int]) -> tuple[Ints, Ints]:
    """Return the rows all of whose pairs are equal in any items, and the rarest pair of each."""
    items_of = np.zeros(len(relations.pairs), np.int32)
    items_of[list(counts)] = list(counts.values())
    pairs, source = relations.pairs_of.gather(rows)
    equal_items = items_of.take(pairs)
    missing = equal_items == 0
    if missing.any():
        complete = np.ones(len(rows), np.bool_)
        complete[source[missing]] = False
        remaining = complete.take(source)
        rows, pairs, equal_items = rows[complete], pairs[remaining], equal_items[remaining]
    if not len(rows):
        return NO_INTS, NO_INTS
    lengths = relations.pairs_of.lengths.take(rows)
    ranked = (equal_items.astype(np.int64) << 32) | np.arange(len(equal_items))
    least = np.minimum.reduceat(ranked, np.cumsum(lengths) - lengths) & 0xFFFFFFFF
    return rows, pairs.take(least)


def _to_columns(equal: Sequence[EqualPair]) -> _PairColumns:
    lengths = [each.stored.length for each in equal]
    return _PairColumns(
        np.repeat(np.array([each.pair for each in equal], np.int32), lengths),
        np.concatenate([each.stored.items for each in equal]),
        np.concatenate([each.stored.runs for each in equal]),
        np.repeat(np.array([each.current for each in equal], np.int32), lengths),
    )


class _Evaluation:
    """The evaluation of rows of several pairs, or with more to check, on one current item."""

    def __init__(self, relations: TemplateRelations, equal: _PairColumns, check: WindowCheck) -> None:
        self._relations = relations
        self._check = check
        self._current = check.current
        self._state = check.state
        self._state_is_left = check.state_is_left
        self._current_side = CurrentSide(check.current)
        self._sides: dict[int, StateSide] = {}
        self._items = max(len(check.state.records), 1)
        keys = equal.pair.astype(np.int64) * self._items + equal.item
        if len(keys) > 1 and (keys[1:] < keys[:-1]).any():
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            columns = (equal.pair, equal.item, equal.stored, equal.current)
            equal = _PairColumns(*(column[order] for column in columns))
        self._equal = equal
        # the distinct keys (pair, item), and where the equal pairs of each start and end
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        self._first = starts.astype(np.int32)
        self._keys = keys[starts]
        self._ends = np.append(self._first[1:], np.int32(len(keys)))

    def match(self, rows: Ints, rarest: Ints) -> tuple[Ints, Ints]:
        """Return the rows that match, and the items that they match with, by way of their rarest pair."""
        pair, item = self._equal.pair.take(self._first), self._equal.item.take(self._first)
        new = np.flatnonzero(np.concatenate(([True], pair[1:] != pair[:-1])))
        items_of = np.zeros(len(self._relations.pairs), np.int32)
        first_of = np.zeros(len(self._relations.pairs), np.int32)
        items_of[pair[new]] = np.diff(np.append(new, len(pair)))
        first_of[pair[new]] = new
        times = items_of.take(rarest)
        source = np.repeat(np.arange(len(rows), dtype=np.int32), times)
        within = np.arange(len(source), dtype=np.int32) - np.repeat(np.cumsum(times) - times, times)
        return self._in_one_item(rows.take(source), item.take(first_of.take(rarest).take(source) + within))

    def _in_one_item(self, rows: Ints, items: Ints) -> tuple[Ints, Ints]:
        """Return the candidates all of whose pairs are equal in their item, with nodes that agree."""
        relations = self._relations
        pairs, source = relations.pairs_of.gather(rows)
        wanted = pairs.astype(np.int64) * self._items + items.take(source)
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        present = self._keys.take(place) == wanted
        complete = np.ones(len(rows), np.bool_)
        complete[source[~present]] = False
        remaining = complete.take(source)
        rows, items, place = rows[complete], items[complete], place[remaining].astype(np.int32)
        matching = self._check_nodes(rows, items, place)
        return rows[matching], items[matching]

    def _check_nodes(self, rows: Ints, items: Ints, place: Ints) -> NDArray[np.bool_]:
        """Return for each candidate whether its nodes agree; `place` has the keys of its pairs."""
        relations, first = self._relations, self._first
        templates = relations.template_of.take(rows)
        matching = relations.plain.take(templates)
        if not len(rows) or matching.all():
            return matching
        lengths = relations.pairs_of.lengths.take(rows)
        before = (np.cumsum(lengths) - lengths).astype(np.int32)
        one = self._ends.take(place) - first.take(place) == 1
        one &= self._state.run_count.take(self._equal.stored.take(first.take(place))) == 1
        one &= self._current.count.take(self._equal.current.take(first.take(place))) == 1
        simple = ~matching & ~relations.compared.take(templates) & np.logical_and.reduceat(one, before)
        if simple.any():
            chosen = np.flatnonzero(simple)
            matching[chosen] = self._nodes_agree(templates[chosen], before[chosen], place)
        residual = np.flatnonzero(~(simple | relations.plain.take(templates)))
        residual = residual[self._check.suits_any(relations, rows.take(residual), items.take(residual))]
        for candidate in residual.tolist():
            at = int(before[candidate])
            places = place[at : at + int(lengths[candidate])].tolist()
            matching[candidate] = self._check_residual(int(rows[candidate]), int(items[candidate]), places)
        return matching

    def _nodes_agree(self, templates: Ints, before: Ints, place: Ints) -> NDArray[np.bool_]:
        """Return whether shared columns have one node, where every pair has one run of one row per side."""
        relations = self._relations
        shared, source = relations.shared.gather(templates)
        side, one, height, other, other_height = relations.same[shared].T
        offset = before.take(source)
        same = self._nodes(side, place.take(offset + one), height) == self._nodes(
            side, place.take(offset + other), other_height
        )
        agree = np.ones(len(templates), np.bool_)
        agree[source[~same]] = False
        return agree

    def _nodes(self, side: Ints, place: Ints, height: Ints) -> Ints:
        at = self._first.take(place)
        state, current = self._state, self._current
        in_state = (side == 0) == self._state_is_left
        nodes = np.empty(len(side), np.int32)
        rows = state.run_row.take(self._equal.stored.take(at[in_state]))
        nodes[in_state] = state.nodes[rows, height[in_state]]
        rows = current.row.take(self._equal.current.take(at[~in_state]))
        nodes[~in_state] = current.nodes[rows, height[~in_state]]
        return nodes

    # -- the residual check ----------------------------------------------------------------------------

    def _side_of(self, item: int) -> StateSide:
        side = self._sides.get(item)
        if side is None:
            side = self._sides[item] = StateSide(self._state, item)
        return side

    def _check_residual(self, row: int, item: int, places: list[int]) -> bool:
        graph, equal = self._relations.graph(row), self._equal
        runs: list[EqualRuns] = []
        for place in places:
            some = slice(int(self._first[place]), int(self._ends[place]))
            runs.append(list(zip(equal.stored[some].tolist(), equal.current[some].tolist(), strict=True)))
        return is_satisfiable(graph, self._side_of(item), self._current_side, runs, self._state_is_left)
