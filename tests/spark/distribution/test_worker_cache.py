"""The cache of a worker process: bounded for each kind of value, thread-safe. Needs no Java."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import sleep

import pytest

from sapwood.spark.distribution.worker_cache import WorkerCache


class Broker:
    def __init__(self, version: int = 0) -> None:
        self.version = version


class Evaluator:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def fail() -> Broker:
    raise AssertionError("there is a value")


def test_a_value_is_created_once() -> None:
    cache = WorkerCache()
    first = cache.get_or_create(Broker, "a", Broker)
    assert cache.get_or_create(Broker, "a", fail) is first
    assert len(cache) == 1


def test_the_least_recently_used_value_is_evicted() -> None:
    cache = WorkerCache(2)
    kept = cache.get_or_create(Broker, "a", Broker)
    evicted = cache.get_or_create(Broker, "b", Broker)
    assert cache.get_or_create(Broker, "a", fail) is kept
    cache.get_or_create(Broker, "c", Broker)
    assert cache.get_or_create(Broker, "a", fail) is kept
    assert cache.get_or_create(Broker, "b", Broker) is not evicted
    assert len(cache) == 2


def test_kinds_do_not_evict_each_other() -> None:
    cache = WorkerCache(1)
    broker = cache.get_or_create(Broker, "a", Broker)
    evaluator = cache.get_or_create(Evaluator, "a", Evaluator)
    assert cache.get_or_create(Broker, "a", fail) is broker
    cache.get_or_create(Evaluator, "b", Evaluator)
    assert evaluator.closed == 1
    assert cache.get_or_create(Broker, "a", fail) is broker


def test_a_value_that_is_not_usable_any_more_is_replaced() -> None:
    cache = WorkerCache()
    old = cache.get_or_create(Broker, "a", lambda: Broker(1))
    new = cache.get_or_create(Broker, "a", lambda: Broker(2), lambda broker: broker.version >= 2)
    assert (old.version, new.version, len(cache)) == (1, 2, 1)


@pytest.mark.parametrize("is_usable", [lambda broker: True, lambda broker: False])
def test_memory_is_freed_before_the_next_value_is_created(is_usable: Callable[[Broker], bool]) -> None:
    cache = WorkerCache(1)
    before = weakref.ref(cache.get_or_create(Broker, "a", Broker))

    def create() -> Broker:
        gc.collect()
        assert before() is None
        return Broker()

    cache.get_or_create(Broker, "b" if is_usable(Broker()) else "a", create, is_usable)


def test_nothing_is_cached_if_creation_fails() -> None:
    cache = WorkerCache()
    with pytest.raises(AssertionError):
        cache.get_or_create(Broker, "a", fail)
    assert len(cache) == 0
    assert isinstance(cache.get_or_create(Broker, "a", Broker), Broker)


def test_clearing_closes_what_can_be_closed() -> None:
    cache = WorkerCache()
    evaluators = [cache.get_or_create(Evaluator, key, Evaluator) for key in "ab"]
    cache.get_or_create(Broker, "a", Broker)
    cache.clear()
    assert len(cache) == 0
    assert [evaluator.closed for evaluator in evaluators] == [1, 1]


def test_threads_share_one_value() -> None:
    cache = WorkerCache()
    start = Barrier(4)
    created: list[Broker] = []

    def create() -> Broker:
        sleep(0.01)
        created.append(Broker())
        return created[-1]

    def work() -> Broker:
        start.wait()
        return cache.get_or_create(Broker, "a", create)

    with ThreadPoolExecutor(4) as pool:
        found = [future.result() for future in [pool.submit(work) for _ in range(4)]]
    assert len(created) == 1
    assert all(broker is created[0] for broker in found)


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one entry, not 0"):
        WorkerCache(0)
