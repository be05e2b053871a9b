"""What a plan makes of a message: the groupSequence-listSequence form of the YFilter thesis."""

from __future__ import annotations

from typing import NamedTuple

from sapwood.engine.document import ContextNode


class Group(NamedTuple):
    """One combination of bindings that survived, and what its holes are filled with."""

    bound: tuple[ContextNode, ...]
    """one node for each variable"""
    lists: tuple[list[ContextNode], ...]
    """one list for each hole of the template, in document order; empty ones are kept"""
