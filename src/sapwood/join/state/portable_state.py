"""What messages have to say, for those who keep it elsewhere: by names that all processes understand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sapwood.join.catalog_entries import Filed
from sapwood.join.state.message_state import StoredMessage


class PortableValue(NamedTuple):
    """A value that a variable has in a message."""

    variable: bytes
    """of eight bytes, made of the variable's definition"""
    value: str
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PortableMessage:
    """A message, or several that a chain has brought together, and what they have to say."""

    records: tuple[StoredMessage, ...]
    ways: list[list[PortableValue]]
    """one for a message; for a chain, one for each way to bind what goes on"""
    chain: bytes = b""
    """eight bytes that stand for the first blocks of the chain in every process"""

    @property
    def time(self) -> float:
        """That of the latest message."""
        return max(record.time for record in self.records)

    @property
    def sequence(self) -> int:
        """That of the earliest message."""
        return min(record.sequence for record in self.records)


class EquatedVariables(NamedTuple):
    """What a variable is equated with."""

    variables: frozenset[bytes]
    wait: float
    """seconds: for messages that are later than its own by more, its value is of no use"""


def equated_variables(links: Iterable[Filed], key: Callable[[int], bytes]) -> dict[bytes, EquatedVariables]:
    """What each variable is equated with in some links; `key` tells what to call it."""
    others: dict[bytes, set[bytes]] = {}
    waits: dict[bytes, float] = {}
    for filed in links:
        for pair in filed.graph.pairs:
            left, right = map(key, pair)
            others.setdefault(left, set()).add(right)
            others.setdefault(right, set()).add(left)
            waits[left] = max(waits.get(left, 0.0), filed.window)
            # what follows waits only for what is before it in time, and comes late
            waits[right] = max(waits.get(right, 0.0), 0.0 if filed.ordered else filed.window)
    return {name: EquatedVariables(frozenset(found), waits[name]) for name, found in others.items()}
