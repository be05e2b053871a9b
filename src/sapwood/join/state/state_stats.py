"""What joins keep, in figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TemplateState:
    """What is kept for the queries of one template. What several use is counted for each of them."""

    shape: str
    """two trees of columns, and the comparisons between them"""
    queries: int
    """distinct ones, but for windows and what they make"""
    messages: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class State:
    """What is kept in all, each thing counted once; bytes are an estimate."""

    messages: int
    rows: int
    """nodes with the value of a variable"""
    values: int
    """distinct string-values"""
    bytes: int
    watermark: float | None
    """the time before which messages are too late; None if there was no message yet"""
    templates: tuple[TemplateState, ...]
