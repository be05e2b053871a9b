"""Any version can be read as it was: a store beside a plain model of itself, over random changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapwood.errors import StoreError
from sapwood.store import Changes, NewSubscription, SubscriptionStore

IDS = st.sampled_from("abcd")
QUERIES = st.sampled_from(["//x", "//y", "//z"])
CHANGES = st.one_of(
    st.tuples(st.just("add"), IDS, QUERIES, st.booleans()),
    st.tuples(st.just("replace"), IDS, QUERIES),
    st.tuples(st.just("remove"), IDS),
    st.tuples(st.just("activate"), IDS),
    st.tuples(st.just("deactivate"), IDS),
    st.tuples(st.just("import"), st.lists(st.tuples(IDS, QUERIES), max_size=6), st.booleans()),
)


@dataclass
class Model:
    """id → (query, active) in the order added, and what was active at every version."""

    now: dict[str, tuple[str, bool]] = field(default_factory=dict)
    versions: list[dict[str, str]] = field(default_factory=lambda: [{}])

    def apply(self, change: tuple[object, ...]) -> None:
        before = dict(self.now)
        match change:
            case ("add", str(id), str(query), bool(active)) if id not in self.now:
                self.now[id] = query, active
            case ("replace", str(id), str(query)) if id in self.now:
                self.now[id] = query, self.now[id][1]
            case ("remove", str(id)):
                self.now.pop(id, None)
            case ("activate" | "deactivate" as what, str(id)) if id in self.now:
                self.now[id] = self.now[id][0], what == "activate"
            case ("import", list(rows), bool(replace)):
                for id, query in rows:
                    if id not in self.now:
                        self.now[id] = query, True
                    elif replace:
                        self.now[id] = query, self.now[id][1]
        if self.now != before:
            self.versions.append({id: query for id, (query, active) in self.now.items() if active})


def apply(store: SubscriptionStore, change: tuple[object, ...]) -> None:
    name, *arguments = change
    if name == "import":
        rows, replace = arguments
        new = [NewSubscription(*row) for row in rows]  # type: ignore[attr-defined]
        store.import_many(new, bool(replace), on_error=lambda row, error: None)
        return
    if name == "add":
        id, query, active = arguments
        arguments = [id, query, "", "xpath", active]
    try:
        getattr(store, str(name))(*arguments)
    except StoreError as error:
        assert "subscription" in str(error)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # each example has a store of its own
@given(changes=st.lists(CHANGES, max_size=14), pruned=st.integers(0, 14))
def test_every_version_is_as_it_was(
    fresh: Callable[[], str], changes: list[tuple[object, ...]], pruned: int
) -> None:
    model = Model()
    with SubscriptionStore(fresh()) as store:
        for change in changes:
            apply(store, change)
            model.apply(change)
            assert store.version == len(model.versions) - 1
        assert [(s.id, (s.query, s.active)) for s in store.subscriptions()] == list(model.now.items())
        check(store, model, 0)
        oldest = min(pruned, store.version)
        store.prune(oldest)
        assert store.oldest == oldest
        check(store, model, oldest)


def check(store: SubscriptionStore, model: Model, oldest: int) -> None:
    """All versions, and the changes between any two, from the oldest on."""
    for since in range(oldest, store.version + 1):
        assert list(store.at(since)) == list(model.versions[since].items())
        for until in range(since, store.version + 1):
            before, after = model.versions[since], model.versions[until]
            changes = store.changes(since, until)
            assert sorted(changes.removed) == sorted(before.keys() - after.keys())
            assert changes.put == [(id, query) for id, query in after.items() if before.get(id) != query]


def test_a_subscription_that_was_removed_and_added_again_is_not_a_change(store: SubscriptionStore) -> None:
    store.add("s", "//a")
    store.deactivate("s")
    store.activate("s")
    store.remove("s")
    store.add("s", "//a", subscriber="anna")
    assert store.changes(1, 5) == Changes(removed=[], put=[])
    assert store.changes(2, 5).put == [("s", "//a")]
    assert store.changes(3, 4).removed == ["s"]


def test_reading_a_pruned_version_is_an_error(store: SubscriptionStore) -> None:
    store.add("s", "//a")
    store.replace("s", "//b")
    store.replace("s", "//c")
    reading = store.at(1)
    assert store.prune(2) == 1
    for attempt in (lambda: store.at(1), lambda: store.changes(1, 3), lambda: list(reading)):
        with pytest.raises(StoreError, match="version 1 was pruned; the oldest that is kept is 2"):
            attempt()
    assert store.prune(1) == store.prune(2) == 0
    assert store.oldest == 2
    assert list(store.at(2)) == [("s", "//b")]
    assert store.version == 3


def test_a_store_pruned_to_now_keeps_what_is_current(store: SubscriptionStore) -> None:
    store.add("a", "//a")
    store.add("b", "//b")
    store.remove("a")
    assert store.prune(store.version) == 1
    assert list(store.at(3)) == [("b", "//b")]
    assert store.add("a", "//a") == 4
