"""The evaluation of all queries at once, for a message and the values it shares with earlier ones.

1. pairs    of variables that are equal, and in which earlier items: one look-up for all templates
2. rows     all of whose pairs are there, in one and the same item; found by way of the rarest pair
3. nodes    variables that start from one variable must start from one node; checked in arrays where every
            pair has one pair of nodes, and otherwise one candidate at a time, like comparisons but =
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import NO_INTS, Ints
from sapwood.join.evaluation.residual_check import Candidate, CandidateStep, Nodes, Side, satisfiable
from sapwood.join.evaluation.residual_sides import NowSide, PastSide
from sapwood.join.graph.templates import Relations
from sapwood.join.state.message_state import Arrival, Common, MessageState


@dataclass(slots=True)
class Equal:
    """Pairs of variables that are equal, in which items, and in which runs of both sides."""

    pair: Ints
    item: Ints
    past: Ints
    now: Ints


def equal_pairs(relations: Relations, arrival: Arrival, common: Common, past_is_left: bool) -> Equal:
    """The pairs that are equal in an arrival and earlier items, if these are on that side."""
    of_value = arrival.runs_of_value
    first = np.cumsum(of_value, dtype=np.int32) - of_value
    times = of_value.take(common.value)
    place = np.repeat(np.arange(len(times), dtype=np.int32), times)
    within = np.arange(len(place), dtype=np.int32) - np.repeat(np.cumsum(times) - times, times)
    now = first.take(common.value).take(place) + within
    here, there = arrival.variable.take(now), common.variables.take(place)
    pair = relations.pairs.find(there, here) if past_is_left else relations.pairs.find(here, there)
    wanted = pair >= 0
    place = place[wanted]
    return Equal(pair[wanted], common.items.take(place), common.runs.take(place), now[wanted])


def rows_met(
    relations: Relations, equal: Equal, arrival: Arrival, past: MessageState, past_is_left: bool
) -> tuple[Ints, Ints]:
    """The rows that an arrival and an earlier item meet, and that item."""
    if not len(equal.pair):
        return NO_INTS, NO_INTS
    return _Evaluation(relations, equal, arrival, past, past_is_left).met()


class _Evaluation:
    def __init__(
        self, relations: Relations, equal: Equal, arrival: Arrival, past: MessageState, past_is_left: bool
    ) -> None:
        self._relations = relations
        self._arrival = arrival
        self._past = past
        self._past_is_left = past_is_left
        self._now = NowSide(arrival)
        self._sides: dict[int, PastSide] = {}
        self._items = max(len(past.records), 1)
        keys = equal.pair.astype(np.int64) * self._items + equal.item
        if len(keys) > 1 and (keys[1:] < keys[:-1]).any():
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            equal = Equal(*(column[order] for column in (equal.pair, equal.item, equal.past, equal.now)))
        self._equal = equal
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        self._first = starts.astype(np.int32)
        self._keys = keys[starts]
        self._ends = np.append(self._first[1:], np.int32(len(keys)))

    def met(self) -> tuple[Ints, Ints]:
        relations = self._relations
        pair, item = self._equal.pair.take(self._first), self._equal.item.take(self._first)
        new = np.flatnonzero(np.concatenate(([True], pair[1:] != pair[:-1])))
        present = pair[new]
        items_of = np.zeros(len(relations.pairs), np.int32)
        first_of = np.zeros(len(relations.pairs), np.int32)
        items_of[present] = np.diff(np.append(new, len(pair)))
        first_of[present] = new
        relations.evaluated(present, items_of[present])
        relations.filed.reserve(len(relations.pairs))
        rows = relations.filed.numbers(present)
        if not len(rows):
            return NO_INTS, NO_INTS
        rows, start = self._everywhere(rows, items_of)
        times = items_of.take(start)
        source = np.repeat(np.arange(len(rows), dtype=np.int32), times)
        within = np.arange(len(source), dtype=np.int32) - np.repeat(np.cumsum(times) - times, times)
        return self._in_one(rows.take(source), item.take(first_of.take(start).take(source) + within))

    def _everywhere(self, rows: Ints, items_of: Ints) -> tuple[Ints, Ints]:
        """The rows all of whose pairs are there somewhere, and of each the pair in fewest items."""
        pairs, source = self._relations.pairs_of.gather(rows)
        counts = items_of.take(pairs)
        missing = counts == 0
        if missing.any():
            alive = np.ones(len(rows), np.bool_)
            alive[source[missing]] = False
            kept = alive.take(source)
            rows, pairs, counts = rows[alive], pairs[kept], counts[kept]
        if not len(rows):
            return NO_INTS, NO_INTS
        lengths = self._relations.pairs_of.lengths.take(rows)
        ranked = (counts.astype(np.int64) << 32) | np.arange(len(counts))
        least = np.minimum.reduceat(ranked, np.cumsum(lengths) - lengths) & 0xFFFFFFFF
        return rows, pairs.take(least)

    def _in_one(self, rows: Ints, items: Ints) -> tuple[Ints, Ints]:
        """Those of which all pairs are in the item, and whose nodes fit together."""
        relations = self._relations
        templates = relations.template_of.take(rows)
        single = relations.pairs_of.lengths.take(rows) == 1
        single &= relations.plain.take(templates)
        if single.all():
            return rows, items
        done = rows[single], items[single]
        rows, items = rows[~single], items[~single]
        pairs, source = relations.pairs_of.gather(rows)
        wanted = pairs.astype(np.int64) * self._items + items.take(source)
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        there = self._keys.take(place) == wanted
        alive = np.ones(len(rows), np.bool_)
        alive[source[~there]] = False
        kept = alive.take(source)
        rows, items, place = rows[alive], items[alive], place[kept].astype(np.int32)
        fitting = self._fitting(rows, items, place)
        return np.concatenate((done[0], rows[fitting])), np.concatenate((done[1], items[fitting]))

    def _fitting(self, rows: Ints, items: Ints, place: Ints) -> NDArray[np.bool_]:
        """Of rows with the places of their pairs among the keys, whether the nodes fit together."""
        relations, first = self._relations, self._first
        templates = relations.template_of.take(rows)
        fitting = relations.plain.take(templates)
        if not len(rows) or fitting.all():
            return fitting
        lengths = relations.pairs_of.lengths.take(rows)
        before = (np.cumsum(lengths) - lengths).astype(np.int32)
        one = self._ends.take(place) - first.take(place) == 1
        one &= self._past.run_count.take(self._equal.past.take(first.take(place))) == 1
        one &= self._arrival.count.take(self._equal.now.take(first.take(place))) == 1
        simple = ~fitting & ~relations.compared.take(templates) & np.logical_and.reduceat(one, before)
        if simple.any():
            chosen = np.flatnonzero(simple)
            fitting[chosen] = self._nodes_agree(templates[chosen], before[chosen], place)
        for candidate in np.flatnonzero(~(simple | relations.plain.take(templates))).tolist():
            at = int(before[candidate])
            places = place[at : at + int(lengths[candidate])].tolist()
            fitting[candidate] = self._satisfiable(int(rows[candidate]), int(items[candidate]), places)
        return fitting

    def _nodes_agree(self, templates: Ints, before: Ints, place: Ints) -> NDArray[np.bool_]:
        """Whether shared columns have one node, if every pair has one run of one row on both sides."""
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
        past, now = self._past, self._arrival
        in_past = (side == 0) == self._past_is_left
        nodes = np.empty(len(side), np.int32)
        rows = past.run_row.take(self._equal.past.take(at[in_past]))
        nodes[in_past] = past.nodes[rows, height[in_past]]
        rows = now.row.take(self._equal.now.take(at[~in_past]))
        nodes[~in_past] = now.nodes[rows, height[~in_past]]
        return nodes

    # -- one at a time ---------------------------------------------------------------------------------

    def _side_of(self, item: int) -> PastSide:
        side = self._sides.get(item)
        if side is None:
            side = self._sides[item] = PastSide(self._past, item)
        return side

    def _satisfiable(self, row: int, item: int, places: list[int]) -> bool:
        graph = self._relations.graph(row)
        past, now = self._side_of(item), self._now
        sides: tuple[Side, Side] = (past, now) if self._past_is_left else (now, past)
        steps: list[CandidateStep] = []
        for (left, right), place in zip(graph.shape.equalities, places, strict=True):
            groups: list[tuple[list[Nodes], list[Nodes]]] = []
            for at in range(int(self._first[place]), int(self._ends[place])):
                runs = int(self._equal.past[at]), int(self._equal.now[at])
                one, other = runs if self._past_is_left else runs[::-1]
                groups.append((sides[0].rows(one), sides[1].rows(other)))
            steps.append(CandidateStep(left, right, groups))
        return satisfiable(Candidate(graph.shape, graph.left, graph.right, sides), steps)
