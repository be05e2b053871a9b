"""Places and marks of a store, by which a copy follows it version by version."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sapwood.errors import StoreError
from sapwood.store import NewSubscription, SubscriptionStore


def test_subscriptions_come_with_their_places(store: SubscriptionStore) -> None:
    store.import_many(NewSubscription(id, f"//{id}") for id in "abcd")
    store.replace("b", "//x")
    store.deactivate("c")
    assert list(store.placed(3)) == [(1, "a", "//a"), (2, "b", "//x"), (4, "d", "//d")]
    assert list(store.placed(1)) == [(1, "a", "//a"), (2, "b", "//b"), (3, "c", "//c"), (4, "d", "//d")]
    assert list(store.placed(3, after=2)) == [(4, "d", "//d")]
    assert [(id, query) for _, id, query in store.placed(3)] == list(store.at(3))


def test_those_that_were_not_just_so_before(store: SubscriptionStore) -> None:
    store.import_many(NewSubscription(id, f"//{id}") for id in "abcd")
    store.remove("a")
    store.add("a", "//a")  # as it was, but in another place
    store.deactivate("c")
    store.activate("c")
    store.replace("d", "//x")
    assert list(store.placed(6, since=1)) == [(3, "c", "//c"), (4, "d", "//x"), (5, "a", "//a")]
    assert list(store.placed(6, after=3, since=1)) == [(4, "d", "//x"), (5, "a", "//a")]
    assert list(store.placed(6, since=6)) == []


def test_a_mark_stays_with_its_version(store: SubscriptionStore) -> None:
    store.import_many(NewSubscription(str(n), "//a") for n in range(500))
    mark = store.mark(1)
    store.replace("499", "//b")
    assert store.mark(1) == mark != store.mark(2)
    store.prune(1)
    store.add("new", "//c")
    assert store.mark(1) == mark
    for version, why in ((0, "was pruned"), (9, "no version 9 yet")):
        with pytest.raises(StoreError, match=why):
            store.mark(version)
        with pytest.raises(StoreError, match=why):
            store.placed(version)


def test_a_mark_tells_stores_apart(fresh: Callable[[], str]) -> None:
    marks = []
    for last in ("//a", "//b", "//a"):
        with SubscriptionStore(fresh()) as store:
            store.import_many(NewSubscription(str(n), "//x") for n in range(999))
            store.add("999", last)
            marks.append(store.mark(2))
    assert marks[0] == marks[2] != marks[1]
