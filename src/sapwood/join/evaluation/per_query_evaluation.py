"""The evaluation of one query at a time: joins that share nothing but the matcher.

It reads the same values as the shared evaluation, looks up the pairs of each query by itself, and combines
those of one item. It is faster for few queries and few values; tests compare both, and benchmarks measure
what sharing saves.
"""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.join.evaluation.residual_check import CurrentSide, EqualRuns, StateSide, is_satisfiable
from sapwood.join.graph.canonical_graph import JoinGraph
from sapwood.join.state.message_state import CurrentItem, MessageState


class PerQueryEvaluator:
    """Evaluates join graphs on one current item, graph by graph."""

    def __init__(self, current: CurrentItem, state: MessageState) -> None:
        self._state = state
        self._current = CurrentSide(current)
        self._sides: dict[int, StateSide] = {}
        self._runs: dict[int, list[int]] = {}
        for run, variable in enumerate(current.variable.tolist()):
            self._runs.setdefault(variable, []).append(run)
        self._values = current.value_of_run

    def items(self, graph: JoinGraph, state_is_left: bool) -> Iterator[int]:
        """Yield the items of the state that satisfy a join graph together with the current item."""
        found: dict[int, list[EqualRuns]] | None = None
        for left, right in graph.pairs:
            equal = self._find_equal(left, right) if state_is_left else self._find_equal(right, left)
            if found is None:
                found = {item: [runs] for item, runs in equal.items()}
            else:
                found = {i: [*before, equal[i]] for i, before in found.items() if i in equal}
            if not found:
                return
        for item, runs_of in (found or {}).items():
            if self._is_match(graph, item, runs_of, state_is_left):
                yield item

    def _find_equal(self, stored: int, current: int) -> dict[int, EqualRuns]:
        """Return by item the runs in which a variable of the state equals one of the current item."""
        state = self._state
        equal: dict[int, EqualRuns] = {}
        for run in self._runs.get(current, ()):
            for other in state.runs(self._values[run]):
                if state.run_variable[other] == stored:
                    item = int(state.run_item[other])
                    if item >= 0:
                        equal.setdefault(item, []).append((other, run))
        return equal

    def _is_match(self, graph: JoinGraph, item: int, runs_of: list[EqualRuns], state_is_left: bool) -> bool:
        template = graph.template_graph
        if not template.shared and not template.inequalities:
            return True
        stored = self._sides.get(item)
        if stored is None:
            stored = self._sides[item] = StateSide(self._state, item)
        return is_satisfiable(graph, stored, self._current, runs_of, state_is_left)
