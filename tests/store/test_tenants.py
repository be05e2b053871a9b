"""Tenants of one store see nothing of each other, and subscriptions may be restricted to streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sapwood.errors import StoreError
from sapwood.store import Changes, NewSubscription, SubscriptionStore


@pytest.fixture
def other(store: SubscriptionStore, location: str) -> Iterator[SubscriptionStore]:
    with SubscriptionStore(location, tenant="acme") as other:
        yield other


def test_tenants_share_nothing_but_the_version(store: SubscriptionStore, other: SubscriptionStore) -> None:
    store.declare({"p": "urn:one"})
    other.declare({"p": "urn:two"})
    start = store.add("s", "//a", subscriber="anna")
    version = other.add("s", "//p:b", subscriber="bert")
    assert version == store.version == other.version == start + 1
    assert (store.namespaces, other.namespaces) == ({"p": "urn:one"}, {"p": "urn:two"})
    assert [(s.query, s.subscriber) for s in store.subscriptions()] == [("//a", "anna")]
    assert [(s.query, s.subscriber) for s in other.subscriptions()] == [("//p:b", "bert")]
    assert (list(store.at(version)), list(other.at(version))) == ([("s", "//a")], [("s", "//p:b")])
    assert store.changes(start, version) == Changes([], [])
    assert list(store.subscribers(-1, version)) == [("s", "anna")]
    assert (len(store), len(other)) == (1, 1)
    other.remove("s")
    assert "s" in store and "s" not in other
    assert store.changes(version, store.version) == Changes([], [])
    assert other.changes(version, store.version) == Changes(["s"], [])


def test_imports_and_replacements_stay_with_their_tenant(
    store: SubscriptionStore, other: SubscriptionStore
) -> None:
    store.add("s", "//a")
    rows = [NewSubscription("s", "//b"), NewSubscription("t", "//c")]
    assert other.import_many(rows, replace=True).added == 2
    other.replace("s", "//d")
    other.deactivate("t")
    assert [(s.id, s.query) for s in store.subscriptions()] == [("s", "//a")]
    assert [(s.id, s.query, s.active) for s in other.subscriptions()] == [
        ("s", "//d", True),
        ("t", "//c", False),
    ]


def test_engines_without_streams_do_not_read_what_is_restricted(store: SubscriptionStore) -> None:
    first = store.add("all", "//a")
    second = store.add("some", "//b", streams=["news", "stocks"])
    assert list(store.at(second)) == [("all", "//a")]
    assert [p[1:] for p in store.placed(second)] == [("all", "//a")]
    assert store.changes(first, second) == Changes([], [])
    assert store.begun(0, second) == [("all", "//a", first)]
    assert (store.restricted(first), store.restricted(second)) == (0, 1)
    third = store.replace("all", "//a", streams=("news",))
    assert store.changes(second, third) == Changes(["all"], [])
    assert store.replace("all", "//a") == third, "streams of None stay"
    fourth = store.replace("all", "//a", streams=())
    assert store.changes(third, fourth) == Changes([], [("all", "//a")])
    assert store.begun(second, fourth) == [("all", "//a", fourth)]
    assert [s.streams for s in store.subscriptions()] == [(), ("news", "stocks")]


@pytest.mark.parametrize("streams", [["a", "a"], ["a\0"], [3]])
def test_names_of_streams_are_checked(store: SubscriptionStore, streams: list[str]) -> None:
    with pytest.raises(StoreError, match="stream"):
        store.add("s", "//a", streams=streams)


def test_one_string_is_not_taken_for_the_names_of_streams(store: SubscriptionStore) -> None:
    with pytest.raises(StoreError, match=r"such as \['news'\], not one string"):
        store.add("s", "//a", streams="news")
    store.add("s", "//a")
    with pytest.raises(StoreError, match="not one string"):
        store.replace("s", "//a", streams="news")


def test_the_name_of_a_tenant_is_checked(location: str) -> None:
    with pytest.raises(StoreError, match="tenant must not hold the character NUL"):
        SubscriptionStore(location, tenant="a\0")


JOIN = "orders/order[@id->i] FOLLOWED BY{i = j, 1 day} payments/payment[@for->j]"
RESTRICTED_JOIN = (
    r"the join 'j' cannot be restricted to streams \('orders'\): a join names its streams itself"
)


def test_a_join_is_not_restricted_to_streams(store: SubscriptionStore) -> None:
    with pytest.raises(StoreError, match=RESTRICTED_JOIN + "$"):
        store.add("j", JOIN, streams=["orders"])
    assert (len(store), store.version) == (0, 0)
    store.add("j", JOIN, streams=[])
    with pytest.raises(StoreError, match=RESTRICTED_JOIN + "$"):
        store.replace("j", JOIN, streams=["orders"])
    store.replace("j", "//order", streams=["orders"])
    with pytest.raises(StoreError, match=RESTRICTED_JOIN + "; the query that it replaces is restricted"):
        store.replace("j", JOIN)
    assert [(s.query, s.streams) for s in store.subscriptions()] == [("//order", ("orders",))]
    store.replace("j", JOIN, streams=())
    assert [(s.language, s.streams) for s in store.subscriptions()] == [("xscl", ())]


def test_imports_refuse_restricted_joins_and_add_the_rest(store: SubscriptionStore) -> None:
    store.add("kept", "//order", streams=["orders"])
    rows = [
        NewSubscription("j", JOIN, streams=("orders",)),
        NewSubscription("f", "//order", streams=("orders",)),
        NewSubscription("kept", JOIN),
        NewSubscription("k", JOIN, streams=()),
    ]
    refused: list[str] = []
    report = store.import_many(rows, True, lambda row, error: refused.append(f"{row.id}: {error}"))
    assert (report.added, report.replaced, report.refused) == (2, 0, 2)
    assert [reason.partition(" cannot")[0] for reason in refused] == [
        "j: the join 'j'",
        "kept: the join 'kept'",
    ]
    assert [(s.id, s.language) for s in store.subscriptions()] == [
        ("kept", "xpath"),
        ("f", "xpath"),
        ("k", "xscl"),
    ]
    version = store.version
    with pytest.raises(StoreError, match=RESTRICTED_JOIN) as caught:
        store.import_many([NewSubscription("new", "//a"), rows[0]])
    assert caught.value.__notes__ == ["in the subscription 'j'"]
    assert (store.version, len(store)) == (version, 3), "the chunk is rolled back"
