"""Several processes with one store: no version is lost, and every version is complete."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from sapwood.errors import StoreError
from sapwood.store import NewSubscription, SubscriptionStore

pytestmark = pytest.mark.slow

PROCESSES = 3
TURNS = 12
CHUNK = 5


def write(location: str, name: int) -> list[int]:
    """Opens the store, which may not be there yet, and changes it in every way; the versions made."""
    made: list[int] = []
    with SubscriptionStore(location) as store:
        for turn in range(TURNS):
            id = f"{name}-{turn}"
            made.append(store.add(id, "//a"))
            made.append(store.replace(id, f"//b[@n = {name}]"))
            if turn % 3 == 0:
                made.append(store.remove(id))
            new = [NewSubscription(f"{id}-{n}", "//c") for n in range(CHUNK)]
            made.append(store.import_many(new).version)
    return made


def add_everything(location: str, name: int) -> int:
    """How many of the same ids this process was the first to add."""
    new = [NewSubscription(str(n), "//a", subscriber=str(name)) for n in range(300)]
    with SubscriptionStore(location) as store:
        return store.import_many(new, on_error=lambda row, error: None, chunk=20).added


def compete(location: str, name: int) -> int:
    won = 0
    with SubscriptionStore(location) as store:
        for n in range(30):
            try:
                store.add(f"prize-{n}", "//a", subscriber=str(name))
                won += 1
            except StoreError as error:
                assert "already" in str(error)
    return won


def read(location: str) -> None:
    """Reads versions while others make them; each must be whole, and stay as it was."""
    seen: dict[int, int] = {}
    with SubscriptionStore(location) as store:
        while len(seen) < 200 and _LAST not in seen:
            version = store.version
            found = list(store.at(version))
            assert sum(query == "//c" for _, query in found) % CHUNK == 0
            assert seen.setdefault(version, len(found)) == len(found)


_LAST = PROCESSES * (3 * TURNS + TURNS // 3)


def test_writers_take_turns_and_readers_see_whole_versions(location: str) -> None:
    with ProcessPoolExecutor(PROCESSES + 1, mp_context=get_context("spawn")) as pool:
        writers = [pool.submit(write, location, name) for name in range(PROCESSES)]
        reader = pool.submit(read, location)
        made = [version for writer in writers for version in writer.result()]
        reader.result()
    assert sorted(made) == list(range(1, _LAST + 1))
    with SubscriptionStore(location, create=False) as store:
        assert store.version == _LAST
        assert len(store) == PROCESSES * (TURNS * (CHUNK + 1) - TURNS // 3)
        places = [s.place for s in store.subscriptions()]
        assert len(set(places)) == len(places)
        rebuilt: dict[str, str] = {}
        for version in range(_LAST):
            changes = store.changes(version, version + 1)
            for id in changes.removed:
                del rebuilt[id]
            rebuilt.update(changes.put)
        assert rebuilt == dict(store.at(_LAST))


def test_an_id_is_added_once_whoever_comes_first(location: str) -> None:
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        names = range(PROCESSES)
        added = sum(pool.map(add_everything, [location] * PROCESSES, names))
        won = sum(pool.map(compete, [location] * PROCESSES, names))
    assert (added, won) == (300, 30)
    with SubscriptionStore(location, create=False) as store:
        assert len(store) == 330
