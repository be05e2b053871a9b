"""One query at a time: what joins cost if nothing of their evaluation is shared but the matcher.

It reads the same values as the relations do, looks up each of its own, and brings together what it finds in
one item. Tests compare it with the relations, and the bench measures what they save.
"""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.join.evaluation.residual_check import Candidate, CandidateStep, Side, satisfiable
from sapwood.join.evaluation.residual_sides import NowSide, PastSide
from sapwood.join.graph.templates import Graph
from sapwood.join.state.message_state import Arrival, MessageState

Options = list[tuple[int, int]]
"""runs of the past and of the arrival with one value"""


class OneByOne:
    """Answers for one arrival, query by query."""

    def __init__(self, arrival: Arrival, past: MessageState) -> None:
        self._past = past
        self._now = NowSide(arrival)
        self._sides: dict[int, PastSide] = {}
        self._runs: dict[int, list[int]] = {}
        for run, variable in enumerate(arrival.variable.tolist()):
            self._runs.setdefault(variable, []).append(run)
        self._values = arrival.value_of_run

    def items(self, graph: Graph, past_is_left: bool) -> Iterator[int]:
        """The earlier items that the arrival meets in one query."""
        found: dict[int, list[Options]] | None = None
        for left, right in graph.pairs:
            options = self._options(left, right) if past_is_left else self._options(right, left)
            if found is None:
                found = {item: [runs] for item, runs in options.items()}
            else:
                found = {i: [*before, options[i]] for i, before in found.items() if i in options}
            if not found:
                return
        for item, options_of in (found or {}).items():
            if self._fits(graph, item, options_of, past_is_left):
                yield item

    def _options(self, before: int, now: int) -> dict[int, Options]:
        """By item, the runs in which a variable of the past equals one of the arrival."""
        past = self._past
        options: dict[int, Options] = {}
        for run in self._runs.get(now, ()):
            for other in past.runs(self._values[run]):
                if past.run_variable[other] == before:
                    item = int(past.run_item[other])
                    if item >= 0:
                        options.setdefault(item, []).append((other, run))
        return options

    def _fits(self, graph: Graph, item: int, options_of: list[Options], past_is_left: bool) -> bool:
        shape = graph.shape
        if not shape.shared and not shape.others:
            return True
        past = self._sides.setdefault(item, PastSide(self._past, item))
        sides: tuple[Side, Side] = (past, self._now) if past_is_left else (self._now, past)
        steps = []
        for (left, right), options in zip(shape.equalities, options_of, strict=True):
            sided = options if past_is_left else [(now, before) for before, now in options]
            groups = [(sides[0].rows(one), sides[1].rows(other)) for one, other in sided]
            steps.append(CandidateStep(left, right, groups))
        return satisfiable(Candidate(shape, graph.left, graph.right, sides), steps)
