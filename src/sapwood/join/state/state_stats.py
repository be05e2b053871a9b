"""Statistics of the join state."""

from __future__ import annotations

from dataclasses import dataclass


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
