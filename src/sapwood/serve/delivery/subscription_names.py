"""The ids of subscriptions by their places in the store."""

from __future__ import annotations

from collections.abc import Iterable

from cachetools import LRUCache
from sqlalchemy import select

from sapwood.store import store_schema
from sapwood.store.database import Database

_KEPT = 500_000
_AT_ONCE = 500


class SubscriptionNames:
    """Looks up ids by place, which never change: an id that is removed and added again has a new place."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._names: LRUCache[int, str] = LRUCache(_KEPT)

    def find_known(self, places: Iterable[int]) -> dict[int, str] | None:
        """Return the ids if all of them are in memory."""
        found = {}
        for place in places:
            name = self._names.get(place)
            if name is None:
                return None
            found[place] = name
        return found

    def find(self, places: Iterable[int]) -> dict[int, str]:
        """Return the ids; those of subscriptions that were pruned from the store say so."""
        wanted = sorted(set(places))
        columns = store_schema.history.c
        query = select(columns.place, columns.id).distinct()
        found: dict[int, str] = {}
        with self._store.reading() as connection:
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                found.update(
                    (row[0], row[1]) for row in connection.execute(query.where(columns.place.in_(some)))
                )
        for place, name in found.items():
            self._names[place] = name
        return {place: found.get(place, f"(removed {place})") for place in wanted}
