"""Queries that would close a cycle of streams are omitted: the same ones at a version in every pipeline."""

from __future__ import annotations

from pathlib import Path
from random import Random

from sapwood.engine import Limits
from sapwood.spark.distribution.pipeline_subscriptions import StoreSubscriptions
from sapwood.store import SubscriptionStore
from tests.spark.distribution.test_index_snapshot import Context


def feeding(read: str, fed: str) -> str:
    return f"{read}//a->x[b->p] JOIN{{p = q, 5 s}} Z//a->y[b->q] PUBLISH {fed}"


def served(subscriptions: StoreSubscriptions, version: int) -> tuple[set[str], set[str]]:
    """The subscriptions that are served, and those that are omitted."""
    subscriptions.snapshot(Context(), version)
    assert subscriptions._source is not None
    broker = subscriptions._source.broker
    assert all(broker.query(id) for id in map(str, broker))
    return set(map(str, broker)), set(subscriptions.left_out)


def test_a_query_is_served_as_soon_as_it_closes_no_circle_any_more(tmp_path: Path) -> None:
    location = str(tmp_path / "store.db")
    with SubscriptionStore(location) as store:
        store.add("there", feeding("S", "P"))
        store.add("back", feeding("P", "S"))
        store.add("filter", "//a")
    subscriptions = StoreSubscriptions(location, Limits(), joining=True)
    with SubscriptionStore(location) as store:
        assert served(subscriptions, store.version) == ({"there", "filter"}, {"back"})
        assert subscriptions.left_out["back"] == "a cycle of streams: 'P' → 'S' → 'P'"
        store.deactivate("there")
        assert served(subscriptions, store.version) == ({"back", "filter"}, set())
        store.activate("there")
        assert served(subscriptions, store.version) == ({"back", "filter"}, {"there"})
        store.replace("back", feeding("P", "Q"))
        assert served(subscriptions, store.version) == ({"back", "filter", "there"}, set())
    subscriptions.close()


def test_a_pipeline_that_begins_at_a_version_serves_whom_one_that_runs_does(tmp_path: Path) -> None:
    circles = 0
    for seed in range(12):
        rng, location = Random(seed), str(tmp_path / f"{seed}.db")
        with SubscriptionStore(location) as store:
            running = None
            for _ in range(15):
                id = rng.choice("abcdefg")
                if id in {each.id for each in store.subscriptions()}:
                    change = rng.choice((store.activate, store.deactivate, store.remove))
                    change(id)
                else:
                    read, fed = rng.sample("PQRS", 2)
                    store.add(id, feeding(read, fed))
                running = running or StoreSubscriptions(location, Limits(), joining=True)
                begun = StoreSubscriptions(location, Limits(), joining=True)
                assert served(running, store.version) == served(begun, store.version)
                circles += bool(begun.left_out)
                begun.close()
            assert running is not None
            running.close()
    assert circles > 40
