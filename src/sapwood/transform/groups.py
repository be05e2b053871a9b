"""What a plan makes of a message: the groupSequence-listSequence form of the YFilter thesis."""

from __future__ import annotations

from typing import NamedTuple

from sapwood.engine.document import ContextNode

MOST_GROUPS = 100_000
"""that a query may make of one message"""


class TooManyGroups(Exception):
    """A query makes more of a message than can be meant: the product of several large lists, say."""

    def __init__(self, query: str) -> None:
        super().__init__(f"more than {MOST_GROUPS:,} groups: {query[:200]}")


class Group(NamedTuple):
    """One combination of bindings that survived, and what its holes are filled with."""

    bound: tuple[ContextNode, ...]
    """one node for each variable"""
    lists: tuple[list[ContextNode], ...]
    """one list for each hole of the template, in document order; empty ones are kept"""
