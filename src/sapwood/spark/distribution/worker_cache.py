"""The cache of a Spark worker process: compiled objects that outlive a task, a few of each kind.

Spark reuses Python workers, so what a task builds from a broadcast snapshot (a broker, a shredder) serves the
tasks that follow. All such objects are in the one `WORKER_CACHE` of the process, under their class and a key,
usually the snapshot's id:

    broker = WORKER_CACHE.get_or_create(LiveBroker, snapshot.id, lambda: LiveBroker(snapshot))

Each class has room for the same small number of entries, and evicts its own least recently used one: a large
broker never pushes out a shredder. An entry is evicted before its successor is created, so that the memory of
both is never needed at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, Protocol, TypeVar, runtime_checkable

ENTRIES_PER_KIND = 2
"""The snapshot in use, and the one before it, which a late or repeated task may still have."""

V = TypeVar("V")


@runtime_checkable
class SupportsClose(Protocol):
    """An object that frees resources on eviction."""

    def close(self) -> None: ...


class WorkerCache:
    """A thread-safe cache with one bounded LRU map for each class of values."""

    def __init__(self, entries_per_kind: int = ENTRIES_PER_KIND) -> None:
        if entries_per_kind < 1:
            raise ValueError(f"a cache has room for at least one entry, not {entries_per_kind!r}")
        self._entries_per_kind = entries_per_kind
        self._kinds: dict[type[Any], OrderedDict[Hashable, Any]] = {}
        self._lock = RLock()  # reentrant: creating one value may need another

    def get_or_create(
        self,
        kind: type[V],
        key: Hashable,
        create: Callable[[], V],
        is_usable: Callable[[V], bool] = lambda value: True,
    ) -> V:
        """Return the value under `key`; create it if there is none, or none that `is_usable`."""
        with self._lock:
            entries = self._kinds.setdefault(kind, OrderedDict())
            if key in entries:
                value: V = entries[key]
                if is_usable(value):
                    entries.move_to_end(key)
                    return value
                _close(entries.pop(key))
                del value
            while len(entries) >= self._entries_per_kind:
                _close(entries.popitem(last=False)[1])
            value = create()
            entries[key] = value
            return value

    def clear(self) -> None:
        """Evict all values."""
        with self._lock:
            for entries in self._kinds.values():
                while entries:
                    _close(entries.popitem()[1])

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._kinds.values()))


def _close(value: object) -> None:
    if isinstance(value, SupportsClose):
        value.close()


WORKER_CACHE = WorkerCache()
"""The cache of this process."""
