"""Synchronization with a store: incremental where possible, from scratch where necessary, resumable."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from sapwood import Matcher, QueryError
from sapwood.errors import StoreError, TablesError
from sapwood.relational import RelationalMatcher
from sapwood.relational.storage import store_sync
from sapwood.relational.storage.store_sync import SyncState, UnsupportedLanguage, read_sync_state, synchronize
from sapwood.store import NewSubscription, SubscriptionStore

pytestmark = pytest.mark.slow

FOR = "for $x in //a return <r>{$x}</r>"
MESSAGES = [b"<r><a/></r>", b"<r><b>1</b></r>", b"<c><a>1</a><b/></c>", b"<a><b>2</b></a>"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SubscriptionStore]:
    with SubscriptionStore(str(tmp_path / "store.db")) as opened:
        yield opened


@pytest.fixture
def tables() -> Iterator[RelationalMatcher]:
    with RelationalMatcher(threads=1) as matcher:
        yield matcher


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list with an entry for each time that tables were cleared."""
    times: list[int] = []
    empty = store_sync.clear_tables

    def counted(matcher: RelationalMatcher, metadata: dict[str, str | None] | None = None) -> None:
        times.append(len(matcher))
        empty(matcher, metadata)

    monkeypatch.setattr(store_sync, "clear_tables", counted)
    return times


def ids(matcher: RelationalMatcher) -> list[str]:
    """Return the ids of all subscriptions in order."""
    return [id for (id,) in matcher.connection.rows("SELECT id FROM subscription ORDER BY number")]


def queries(matcher: RelationalMatcher) -> dict[str, str]:
    return {id: matcher.query(id) for id in ids(matcher)}


def check(tables: RelationalMatcher, store: SubscriptionStore) -> None:
    """Assert that the tables match as an automaton does with the store's subscriptions."""
    filters = [(id, query) for id, query in store.at(store.version) if not query.startswith("for ")]
    assert ids(tables) == [id for id, _ in filters]
    with Matcher(store.namespaces) as automaton:
        automaton.add_many(filters)
        expected = [list(matches) for matches in automaton.match_many(MESSAGES)]
    assert [list(matches) for matches in tables.match_many(MESSAGES)] == expected


def fill(store: SubscriptionStore, count: int, first: int = 0) -> None:
    store.import_many(NewSubscription(f"s{n}", f"//b[. = {n % 3}]") for n in range(first, first + count))


class Interrupted(BaseException):
    """Raised instead of a KeyboardInterrupt."""


def interrupted_after(chunks: int) -> Callable[[int], None]:
    def progressed(done: int) -> None:
        nonlocal chunks
        chunks -= 1
        if not chunks:
            raise Interrupted

    return progressed


# -- as the store is ---------------------------------------------------------------------------------------


def test_tables_follow_a_store(
    store: SubscriptionStore, tables: RelationalMatcher, cleared: list[int]
) -> None:
    random = Random(7)
    some = ["//a", "//b", "/r/b[. = 1]", "//a[b > 1]", "//a[not(b)]", FOR]
    fill(store, 6)
    synchronize(tables, store)
    for _ in range(8):
        for _ in range(random.randint(2, 5)):
            id = f"s{random.randrange(10)}"
            found = store.get(id)
            if found is None:
                store.add(id, random.choice(some), active=random.random() < 0.8)
                continue
            match random.randrange(5):
                case 0:
                    store.remove(id)
                case 1:
                    store.deactivate(id)
                case 2:
                    store.activate(id)
                case 3:
                    store.replace(id, random.choice(some))
                case 4:  # it comes back as it was, behind the others
                    store.remove(id)
                    store.add(id, found.query)
        assert synchronize(tables, store, chunk=4) == store.version
        check(tables, store)
    assert cleared == [0]


def test_unchanged_subscriptions_are_not_loaded_again(
    store: SubscriptionStore, tables: RelationalMatcher, monkeypatch: pytest.MonkeyPatch, cleared: list[int]
) -> None:
    fill(store, 20)
    synchronize(tables, store)
    put: list[str] = []
    change = tables.catalog.apply_changes

    def recorded(removed: list[str], new: list[tuple[str, str]], *rest: object, **named: object) -> None:
        put.extend(id for id, _ in new)
        change(removed, new, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(tables.catalog, "apply_changes", recorded)
    assert synchronize(tables, store) == 1
    store.replace("s3", "//c")
    store.replace("s4", "//b[. = 1]", subscriber="anna")  # the same query
    store.add("new", "//b")
    assert synchronize(tables, store) == 4
    assert (put, cleared) == (["s3", "new"], [0])
    assert read_sync_state(tables) == SyncState(str(Path(store.name).resolve()), 4, False)
    assert ids(tables) == [*(f"s{n}" for n in range(20)), "new"]


def test_only_active_filters_go_in(store: SubscriptionStore, tables: RelationalMatcher) -> None:
    store.add("off", "//a", active=False)
    store.add("made", FOR)
    store.add("joined", "news/r->v[a->v1] FOLLOWED BY{v1=w1, INF} news/r->w[a->w1]")
    store.add("filter", "//a")
    told: dict[object, ValueError] = {}
    synchronize(tables, store, on_error=told.__setitem__)
    assert ids(tables) == ["filter"]
    assert {id: getattr(error, "language", None) for id, error in told.items()} == {
        "made": "for-where-return",
        "joined": "xscl",
    }
    assert all(isinstance(error, UnsupportedLanguage) for error in told.values())
    store.replace("filter", FOR)
    store.replace("made", "//b")
    store.activate("off")
    synchronize(tables, store)  # nobody need be told
    assert ids(tables) == ["off", "made"]
    store.replace("filter", "//c")
    synchronize(tables, store)
    assert ids(tables) == ["off", "made", "filter"]


def test_namespaces_are_the_stores(store: SubscriptionStore, tables: RelationalMatcher) -> None:
    store.declare({"p": "urn:p"})
    store.add("one", "//p:a")
    synchronize(tables, store)
    store.declare({"q": "urn:q"})
    store.add("two", "//q:a")
    synchronize(tables, store)
    assert list(tables.match(b'<a xmlns="urn:q"/>')) == ["two"]
    assert tables.namespaces == {"p": "urn:p", "q": "urn:q"}


def test_any_later_version_can_be_loaded(
    store: SubscriptionStore, tables: RelationalMatcher, cleared: list[int]
) -> None:
    for n in range(1, 6):
        store.add(f"s{n}", "//a")
    assert synchronize(tables, store, 2) == 2
    assert ids(tables) == ["s1", "s2"]
    assert synchronize(tables, store, 4) == 4
    assert (ids(tables), cleared) == (["s1", "s2", "s3", "s4"], [0])
    synchronize(tables, store, 1)  # the way back is not known
    assert (ids(tables), cleared) == (["s1"], [0, 4])
    with pytest.raises(StoreError, match="no version 9 yet"):
        synchronize(tables, store, 9)
    assert ids(tables) == ["s1"]


def test_an_empty_store(store: SubscriptionStore, tables: RelationalMatcher) -> None:
    assert synchronize(tables, store) == 0
    assert read_sync_state(tables).version == 0
    fill(store, 2)
    store.remove("s0", "s1")
    assert synchronize(tables, store) == 2
    assert len(tables) == 0


# -- anew ----------------------------------------------------------------------------------------------------


def test_tables_at_a_pruned_version_are_cleared(
    store: SubscriptionStore, tables: RelationalMatcher, cleared: list[int]
) -> None:
    fill(store, 5)
    synchronize(tables, store)
    store.remove("s1")
    store.add("new", "//a")
    store.prune(2)
    synchronize(tables, store)
    check(tables, store)
    assert cleared == [0, 5]


def test_another_store(store: SubscriptionStore, tables: RelationalMatcher, tmp_path: Path) -> None:
    store.declare({"p": "urn:p"})
    store.add("one", "//p:a")
    synchronize(tables, store)
    with SubscriptionStore(str(tmp_path / "other.db")) as other:
        other.declare({"p": "urn:other"})
        other.add("two", "//p:a")
        synchronize(tables, other)
    assert ids(tables) == ["two"]
    assert list(tables.match(b'<a xmlns="urn:other"/>')) == ["two"]
    assert list(tables.match(b'<a xmlns="urn:p"/>')) == []


def test_a_store_that_was_created_again(tables: RelationalMatcher, tmp_path: Path) -> None:
    """It is in the same place and at the same version, but has other subscriptions."""
    for query in ("//a", "//b"):
        for file in tmp_path.glob("store.db*"):
            file.unlink()
        with SubscriptionStore(str(tmp_path / "store.db")) as store:
            store.import_many(NewSubscription(f"s{n}", query) for n in range(10))
            synchronize(tables, store)
            check(tables, store)


def test_the_store_is_the_same_from_another_folder(
    tables: RelationalMatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleared: list[int]
) -> None:
    for folder, path in ((tmp_path, "store.db"), (Path("/"), str(tmp_path / "store.db"))):
        monkeypatch.chdir(folder)
        with SubscriptionStore(path) as store:
            synchronize(tables, store)
    assert cleared == [0]


def test_subscriptions_of_no_store_are_not_deleted(
    store: SubscriptionStore, tables: RelationalMatcher
) -> None:
    tables.add("mine", "//a")
    fill(store, 1)
    with pytest.raises(TablesError, match="1 subscriptions that come from no store"):
        synchronize(tables, store)
    assert ids(tables) == ["mine"]


def test_synchronized_tables_cannot_be_changed_directly(
    store: SubscriptionStore, tables: RelationalMatcher
) -> None:
    fill(store, 2)
    synchronize(tables, store)
    changes: list[Callable[[], None]] = [
        lambda: tables.add("mine", "//a"),
        lambda: tables.add_many([("mine", "//a")]),
        lambda: tables.replace("s0", "//a"),
        lambda: tables.remove("s0"),
    ]
    for change in changes:
        with pytest.raises(TablesError, match=r"is synchronized with .*store.db: change its"):
            change()
    assert ids(tables) == ["s0", "s1"]


# -- interruptions -------------------------------------------------------------------------------------------


def test_an_interrupted_load_is_resumed(store: SubscriptionStore, tmp_path: Path, cleared: list[int]) -> None:
    fill(store, 50)
    file = tmp_path / "tables"
    with RelationalMatcher(file) as tables, pytest.raises(Interrupted):
        synchronize(tables, store, on_progress=interrupted_after(2), chunk=10)
    store.remove("s2", "s45")
    store.add("new", "//a")
    done: list[int] = []
    with RelationalMatcher(file) as tables:
        assert read_sync_state(tables) == SyncState(str(Path(store.name).resolve()), None, True)
        assert len(tables) == 20
        synchronize(tables, store, on_progress=done.append, chunk=10)
        check(tables, store)
        assert read_sync_state(tables).version == 3
    assert done == [30, 40, 50, 1]
    assert cleared == [0]


def test_an_interrupted_change_is_resumed(
    store: SubscriptionStore, tables: RelationalMatcher, cleared: list[int]
) -> None:
    fill(store, 5)
    synchronize(tables, store)
    fill(store, 30, first=5)
    store.remove("s1")
    with pytest.raises(Interrupted):
        synchronize(tables, store, on_progress=interrupted_after(1), chunk=10)
    assert read_sync_state(tables).unfinished
    store.remove("s7", "s33")
    synchronize(tables, store, chunk=10)
    check(tables, store)
    assert (read_sync_state(tables).version, cleared) == (4, [0])


@pytest.mark.parametrize("when", ["load", "change"])
def test_an_interrupted_change_from_a_pruned_version(
    store: SubscriptionStore, tables: RelationalMatcher, cleared: list[int], when: str
) -> None:
    fill(store, 30)
    if when == "change":
        synchronize(tables, store)
        fill(store, 30, first=30)
    with pytest.raises(Interrupted):
        synchronize(tables, store, on_progress=interrupted_after(1), chunk=10)
    store.remove("s2")
    store.prune(store.version)
    synchronize(tables, store, chunk=10)
    check(tables, store)
    assert len(cleared) == 2


def test_an_interruption_amid_a_chunk(
    store: SubscriptionStore, tables: RelationalMatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 5)
    synchronize(tables, store)
    store.add("new", "//a")

    def interrupt(*_: object, **named: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(tables.catalog, "apply_changes", interrupt)
        synchronize(tables, store)
    assert "new" not in [id for message in MESSAGES for id in tables.match(message)]
    store.remove("new")
    store.replace("s1", "//c")
    synchronize(tables, store)
    check(tables, store)


# -- queries that are refused --------------------------------------------------------------------------------


def spoil(store: SubscriptionStore, id: str) -> None:
    """Write an invalid query into a store, as another version of Sapwood might have."""
    with sqlite3.connect(store.name) as connection:
        connection.execute(
            "UPDATE sapwood_subscriptions SET query = '//a[' WHERE id = ? AND until IS NULL", (id,)
        )
    connection.close()


def test_a_refused_query_is_reported_and_deleted(store: SubscriptionStore, tables: RelationalMatcher) -> None:
    fill(store, 3)
    synchronize(tables, store)
    store.replace("s1", "//c")
    spoil(store, "s1")
    with pytest.raises(QueryError):
        synchronize(tables, store)
    assert read_sync_state(tables).version == 1
    told: list[object] = []
    synchronize(tables, store, on_error=lambda id, error: told.append((id, type(error))))
    assert told == [("s1", QueryError)]
    assert ids(tables) == ["s0", "s2"]
    store.replace("s1", "//a")
    synchronize(tables, store)
    check(tables, store)
