"""Messages and their values in a form that all processes understand, for state stores elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from sapwood.join.join_catalog import CatalogLink
from sapwood.join.state.message_state import MessageState, StoredMessage


class PortableValue(NamedTuple):
    """A value of a variable in a message."""

    variable: bytes
    """eight bytes made of the variable's definition"""
    value: str
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PortableMessage:
    """A message, or a partial match of a chain, with its values."""

    records: tuple[StoredMessage, ...]
    ways: list[list[PortableValue]]
    """the values of a message; of a chain, those of each way to bind the variables of later links"""
    chain: bytes = b""
    """eight bytes that identify the first blocks of the chain in every process"""

    @property
    def time(self) -> float:
        """The time of the latest message."""
        return max(record.time for record in self.records)

    @property
    def visible_from(self) -> int:
        """The lowest `visible_from` of its messages."""
        return min(record.visible_from for record in self.records)


@dataclass(eq=False, slots=True)
class StatePartition:
    """A part of the join state, which a distributed runtime joins and evicts by itself."""

    state: MessageState
    watermark: float = -inf
    """that of the last eviction"""
    removals: int = 0
    """how many queries had been removed by then"""


class EquatedVariables(NamedTuple):
    """The variables that a variable is equated with."""

    variables: frozenset[bytes]
    wait: float
    """in seconds: its value cannot join messages that are later by more"""


def equated_variables(
    links: Iterable[CatalogLink], key: Callable[[int], bytes]
) -> dict[bytes, EquatedVariables]:
    """Return the variables that each variable is equated with in some links; `key` returns their names."""
    others: dict[bytes, set[bytes]] = {}
    waits: dict[bytes, float] = {}
    for link in links:
        for pair in link.graph.pairs:
            left, right = map(key, pair)
            others.setdefault(left, set()).add(right)
            others.setdefault(right, set()).add(left)
            waits[left] = max(waits.get(left, 0.0), link.window)
            # the right side of an ordered link only joins messages that precede it and arrive late
            waits[right] = max(waits.get(right, 0.0), 0.0 if link.ordered else link.window)
    return {name: EquatedVariables(frozenset(found), waits[name]) for name, found in others.items()}
