"""The ids of subscriptions by their places in the store."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from cachetools import LRUCache
from sqlalchemy import select

from sapwood.store import store_schema
from sapwood.store.database import Database

_BLOCK = 1_000
"""places that are read together: those of a subscriber, or of many that begin to listen, are often close"""
_KEPT = 1_000
"""blocks"""


class SubscriptionNames:
    """Looks up ids by place, which never change: an id that is removed and added again has a new place."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._blocks: LRUCache[int, dict[int, str]] = LRUCache(_KEPT)
        self._lock = Lock()

    def find_known(self, places: Iterable[int]) -> dict[int, str] | None:
        """Return the ids if all of them are in memory."""
        wanted = set(places)
        found = self._look_up(wanted)
        return found if len(found) == len(wanted) else None

    def find(self, places: Iterable[int]) -> dict[int, str]:
        """Return the ids; those of subscriptions that were pruned from the store say so."""
        wanted = set(places)
        found = self._look_up(wanted)
        for number in {place // _BLOCK for place in wanted - found.keys()}:
            block = self._read(number)
            with self._lock:
                self._blocks[number] = block
            found |= {place: block[place] for place in wanted & block.keys()}
        return {place: found.get(place, f"(removed {place})") for place in wanted}

    def _look_up(self, wanted: set[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        with self._lock:
            for place in wanted:
                name = self._blocks.get(place // _BLOCK, {}).get(place)
                if name is not None:
                    found[place] = name
        return found

    def _read(self, block: int) -> dict[int, str]:
        columns = store_schema.history.c
        inside = columns.place.between(block * _BLOCK, (block + 1) * _BLOCK - 1)
        with self._store.reading() as connection:
            rows = connection.execute(select(columns.place, columns.id).where(inside).distinct())
            return {row.place: row.id for row in rows}
