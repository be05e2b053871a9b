"""Statistics of the join state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.join.graph.templates import TemplateRelations
from sapwood.join.state.message_state import MessageState


@dataclass(frozen=True, slots=True)
class TemplateState:
    """The state that the queries of one template use; rows that several templates use count for each."""

    shape: str
    """the join graph of the template: two trees of columns, and the comparisons between them"""
    queries: int
    """distinct join graphs, whatever their windows and output"""
    messages: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class State:
    """The size of the join state, everything counted once; bytes are an estimate."""

    messages: int
    rows: int
    """nodes with the value of a variable"""
    values: int
    """distinct string-values"""
    bytes: int
    watermark: float | None
    """the event time before which messages are late; None before the first message"""
    templates: tuple[TemplateState, ...]


def measure_state(
    state: MessageState, relations: Sequence[TemplateRelations], watermark: float | None
) -> State:
    """Return the size of a state, in all and for each template of some relations."""
    live = np.flatnonzero(state.live).astype(np.int32)
    messages = state.messages(live)
    return State(
        messages=len(messages),
        rows=int(state.run_count[live].sum()),
        values=len({state.run_value[run] for run in live.tolist()}),
        bytes=state.bytes(live, messages),
        watermark=watermark,
        templates=tuple([each for some in relations for each in _measure_templates(state, live, some)]),
    )


def _measure_templates(
    state: MessageState, live: Ints, relations: TemplateRelations
) -> Iterator[TemplateState]:
    for template in relations.templates.values():
        graphs = [relations.graph(row) for row in template.rows]
        variables = {v for g in graphs for left, right in g.pairs for v in (left, right)}
        runs = live[np.isin(state.run_variable[live], np.array(sorted(variables), np.int32))]
        messages = state.messages(runs)
        yield TemplateState(
            shape=str(template.graph),
            queries=len(graphs),
            messages=len(messages),
            rows=int(state.run_count[runs].sum()),
            bytes=state.bytes(runs, messages),
        )
