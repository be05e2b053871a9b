"""What a plan makes of a message: the groupSequence-listSequence form of the YFilter thesis."""

from __future__ import annotations

from typing import NamedTuple

from sapwood.engine.fallback.lxml_process import MOST_GROUPS
from sapwood.engine.message.document import ContextNode


class TooManyGroups(Exception):
    """A query makes more of a message than can be meant: the product of several large lists, say."""

    def __init__(self, query: str) -> None:
        super().__init__(f"more than {MOST_GROUPS:,} groups")
        self.query = query


class Group(NamedTuple):
    """One combination of bindings that survived, and what its holes are filled with."""

    bound: tuple[ContextNode, ...]
    """one node for each variable"""
    lists: tuple[list[ContextNode], ...]
    """one list for each hole of the template, in document order; empty ones are kept"""


__all__ = ["MOST_GROUPS", "Group", "TooManyGroups"]
