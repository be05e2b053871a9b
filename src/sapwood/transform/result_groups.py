"""The groups of a plan's result: the groupSequence-listSequence form of the YFilter thesis."""

from __future__ import annotations

from typing import NamedTuple

from sapwood.engine.fallback.lxml_process import MOST_GROUPS
from sapwood.engine.message.document import ContextNode


class TooManyGroups(Exception):
    """Raised when a query makes too many groups: the product of several large lists, for instance."""

    def __init__(self, query: str) -> None:
        super().__init__(f"more than {MOST_GROUPS:,} groups")
        self.query = query


class Group(NamedTuple):
    """One combination of bindings that satisfies the conditions, and the nodes that fill its holes."""

    bound: tuple[ContextNode, ...]
    """one node for each variable"""
    lists: tuple[list[ContextNode], ...]
    """one list for each hole of the template, in document order; it may be empty"""


__all__ = ["MOST_GROUPS", "Group", "TooManyGroups"]
