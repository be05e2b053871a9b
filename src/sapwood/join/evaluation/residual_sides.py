"""The two that may meet, as candidates see them: nodes and values of an earlier item, or of an arrival."""

from __future__ import annotations

import numpy as np

from sapwood.join.evaluation.residual_check import Nodes
from sapwood.join.state.message_state import Arrival, MessageState

Valued = list[tuple[Nodes, str]]


class PastSide:
    """The rows and values of an earlier item."""

    def __init__(self, past: MessageState, item: int) -> None:
        self._past = past
        self._item = item
        self._known: dict[int, Valued] = {}

    def rows(self, run: int) -> list[Nodes]:
        row, count = int(self._past.run_row[run]), int(self._past.run_count[run])
        return list(map(tuple, self._past.nodes[row : row + count].tolist()))

    def valued(self, variable: int) -> Valued:
        known = self._known.get(variable)
        if known is None:
            past, every = self._past, self._past.runs_of_item(self._item)
            of_variable = np.flatnonzero(past.run_variable[every.start : every.stop] == variable)
            runs = (of_variable + every.start).tolist()
            known = [(nodes, past.run_value[run]) for run in runs for nodes in self.rows(run)]
            self._known[variable] = known
        return known


class NowSide:
    """The rows and values of an arrival."""

    def __init__(self, arrival: Arrival) -> None:
        self._arrival = arrival
        self._known: dict[int, Valued] = {}

    def rows(self, run: int) -> list[Nodes]:
        row, count = int(self._arrival.row[run]), int(self._arrival.count[run])
        return list(map(tuple, self._arrival.nodes[row : row + count].tolist()))

    def valued(self, variable: int) -> Valued:
        known = self._known.get(variable)
        if known is None:
            runs = np.flatnonzero(self._arrival.variable == variable).tolist()
            known = [(nodes, self._arrival.value_of_run[run]) for run in runs for nodes in self.rows(run)]
            self._known[variable] = known
        return known
