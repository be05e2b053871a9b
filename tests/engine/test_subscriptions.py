"""Subscriptions in C against those in dicts: the same answers after the same changes."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Hashable

import numpy as np
import pytest

from sapwood import Matcher
from sapwood.engine.limits import Tuning
from sapwood.engine.subscriptions import DictSubscriptions, Subscriptions, load_subscriptions
from tests.support.compiled_kernel import compiled_kernel

compiled_kernel()  # skips all of it where there is none

from sapwood.engine.kernel.kernel_subscriptions import KernelSubscriptions  # noqa: E402

IDS: list[Hashable] = [
    *range(60),
    *(f"id {i}" for i in range(60)),
    *((i, "pair") for i in range(30)),
    None,
    2.5,
]


def assert_same(compiled: Subscriptions, python: Subscriptions, slots: list[int]) -> None:
    wanted = np.array(slots, np.int32)
    assert compiled.numbers(wanted).tolist() == python.numbers(wanted).tolist()
    assert compiled.ids(wanted) == python.ids(wanted)
    assert [compiled.count(slot) for slot in slots] == [python.count(slot) for slot in slots]
    assert len(compiled) == len(python)
    one, other = compiled.columns(), python.columns()
    assert list(one.ids) == list(other.ids)
    assert one.numbers.tolist() == other.numbers.tolist()
    assert one.slots.tolist() == other.slots.tolist()
    assert one.texts == other.texts


@pytest.mark.parametrize("seed", range(12))
def test_random_changes(seed: int) -> None:
    """With many and few subscriptions to a slot, and with numbers that do not ascend."""
    rng = random.Random(seed)
    compiled, python = KernelSubscriptions(), DictSubscriptions()
    slots = rng.choice([3, 40])
    backwards = rng.random() < 0.3
    next_number = 0
    for _ in range(1_500):
        id = rng.choice(IDS)
        assert (id in compiled) == (id in python)
        if id not in python:
            next_number += 1
            number = 10_000 - next_number if backwards and rng.random() < 0.1 else 100_000 + next_number
            text = rng.choice([None, None, f"/text{next_number}"])
            slot = rng.randrange(slots)
            assert compiled.add(id, number, slot, text) == python.add(id, number, slot, text)
        elif rng.random() < 0.3:
            slot, text = rng.randrange(slots), rng.choice([None, "/moved"])
            assert compiled.move(id, slot, text) == python.move(id, slot, text)
        elif rng.random() < 0.7:
            assert compiled.remove(id) == python.remove(id)
        if id in python:
            assert compiled.get(id) == python.get(id)
        if rng.random() < 0.05:
            assert_same(compiled, python, rng.sample(range(slots + 2), rng.randint(0, slots)))
    assert_same(compiled, python, list(range(slots)))
    assert_same(load_subscriptions(python.columns(), Tuning()), python, list(range(slots)))
    assert_same(compiled, load_subscriptions(compiled.columns(), Tuning(kernel=False)), list(range(slots)))


@pytest.mark.parametrize("table", [KernelSubscriptions, DictSubscriptions])
def test_an_id_that_is_not_there_or_there_already(table: type[Subscriptions]) -> None:
    subscriptions = table()
    subscriptions.add("a", 1, 0, None)
    for unknown in (lambda: subscriptions.get("b"), lambda: subscriptions.remove("b")):
        with pytest.raises(KeyError, match="b"):
            unknown()
    with pytest.raises(KeyError, match="b"):
        subscriptions.move("b", 1, None)
    with pytest.raises(KeyError, match="a"):
        subscriptions.add("a", 2, 0, None)
    with pytest.raises(TypeError, match="unhashable"):
        subscriptions.add([], 2, 0, None)  # type: ignore[arg-type]
    assert subscriptions.columns().ids == ["a"]


class Reentrant:
    """An id that changes the subscriptions while it is compared."""

    def __init__(self, subscriptions: KernelSubscriptions) -> None:
        self.subscriptions = subscriptions
        self.compared = 0

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        self.compared += 1
        if self.compared == 1:
            for i in range(200):
                self.subscriptions.add(f"more {i}", 1_000 + i, 3, None)
            self.subscriptions.remove(7)
        return False


def test_an_id_whose_comparison_changes_the_subscriptions() -> None:
    subscriptions = KernelSubscriptions()
    subscriptions.add(7, 0, 0, None)
    id = Reentrant(subscriptions)
    assert id not in subscriptions
    assert id.compared
    assert 7 not in subscriptions
    assert len(subscriptions) == 200


def test_an_id_that_refers_to_its_matcher_is_collected_with_it() -> None:
    class Id:
        matcher: Matcher | None = None

    id = Id()
    matcher = id.matcher = Matcher()
    matcher.add(id, "/a")
    gone = weakref.ref(id)
    del id, matcher
    gc.collect()
    assert gone() is None


def test_holes_are_closed() -> None:
    subscriptions = KernelSubscriptions()
    for i in range(10_000):
        subscriptions.add(i, i, i % 7, None)
    for i in range(10_000):
        if i % 50:
            subscriptions.remove(i)
    for i in range(20_000, 20_100):
        subscriptions.add(i, i, 1, None)
    assert subscriptions.columns().ids == [*range(0, 10_000, 50), *range(20_000, 20_100)]
    assert subscriptions.ids(np.arange(7, dtype=np.int32)) == subscriptions.columns().ids
