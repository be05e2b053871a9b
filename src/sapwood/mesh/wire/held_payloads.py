"""Payloads that wait for a dictionary: of each neighbour, the first that cannot be read and all behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

ASK_AGAIN = 1.0
GIVE_UP = 10.0
"""seconds after which payloads are dropped: their frames are then sent again, without the dictionary"""


@dataclass(slots=True)
class _Held(Generic[T]):
    """The payloads of a neighbour."""

    identities: tuple[bytes, ...]
    """the dictionaries that the first one needs"""
    since: float
    asked: float
    items: deque[T] = field(default_factory=deque)


class HeldPayloads(Generic[T]):
    """Payloads that cannot be read yet, by neighbour, in order."""

    def __init__(self) -> None:
        self._held: dict[str, _Held[T]] = {}
        self._lacking: dict[str, set[bytes]] = {}
        """by neighbour, dictionaries that it has used and does not have any more"""

    def holds(self, link: str) -> bool:
        """Return whether payloads of a neighbour wait, so that those behind have to wait, too."""
        return link in self._held

    def note_lack(self, link: str, identity: bytes) -> None:
        """Note that a neighbour does not have a dictionary that it has used."""
        self._lacking.setdefault(link, set()).add(identity)

    def note_offer(self, link: str) -> None:
        """Note that a neighbour has dictionaries again."""
        self._lacking.pop(link, None)

    def waits_in_vain(self, link: str, identities: Iterable[bytes]) -> bool:
        """Return whether a neighbour has said that it does not have one of these dictionaries."""
        return not self._lacking.get(link, set()).isdisjoint(identities)

    def add(self, link: str, item: T) -> None:
        """Hold a payload behind others of its neighbour."""
        self._held[link].items.append(item)

    def begin(self, link: str, item: T, identities: tuple[bytes, ...], now: float) -> None:
        """Hold the first payload of a neighbour that needs dictionaries."""
        self._held[link] = _Held(identities, now, now, deque([item]))

    def take(self, link: str) -> list[T]:
        """Return the payloads of a neighbour, which are held no more."""
        held = self._held.pop(link, None)
        return list(held.items) if held is not None else []

    def ask_again(self, now: float) -> Iterator[tuple[str, tuple[bytes, ...]]]:
        """Yield the neighbours that are to be asked for dictionaries once more."""
        for link, held in self._held.items():
            if now - held.asked >= ASK_AGAIN:
                held.asked = now
                yield link, held.identities

    def expired(self, now: float) -> list[str]:
        """Return the neighbours whose payloads have waited for too long, or in vain."""
        return [
            link
            for link, held in self._held.items()
            if now - held.since >= GIVE_UP or self.waits_in_vain(link, held.identities)
        ]
