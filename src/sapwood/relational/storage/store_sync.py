"""From a store of subscriptions to tables, and on from one version to a later one.

Notes in the tables say whose subscriptions they hold, and how far they have come:

    store        where the store is, as `read_sync_state` tells it
    version      the version that the tables are at; absent while they are on the way to one
    mark         the store's mark of that version, or of the one they are on the way to
    unfinished   only on the way: from which version to which, and behind which place the rest begins

Each chunk is a transaction together with its notes. So whoever comes after a crash goes on where it happened,
and `read_sync_state` tells whoever asks that the tables have only a part of a population so far.

A subscription's number is its place in the store: answers come in the store's order, also for those that were
away for a while, or that went and came again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sapwood.engine.bulk_load import OnError
from sapwood.errors import TablesError
from sapwood.lang.languages import XPATH, detect_language
from sapwood.relational.relational_matcher import CHUNK, RelationalMatcher
from sapwood.relational.storage.table_schema import CACHED, TABLES
from sapwood.relational.subscription_catalog import Notes
from sapwood.store import SubscriptionStore

OnProgress = Callable[[int], None]

_NOT_EMPTIED = {"meta", "counter", "path_class", *CACHED}


class UnsupportedLanguage(ValueError):
    """A subscription in a language that tables do not hold; it is left out."""

    def __init__(self, language: str) -> None:
        self.language = language
        super().__init__(f"a query in {language}, which is no XPath filter, is not kept in tables")

    def __reduce__(self) -> tuple[type[UnsupportedLanguage], tuple[str]]:
        return type(self), (self.language,)


@dataclass(frozen=True, slots=True)
class SyncState:
    """What a set of tables holds."""

    store: str | None
    """whose subscriptions: the path or URL of a store; None if they came from none"""
    version: int | None
    """of the store; None on the way to one, and without a store"""
    unfinished: bool
    """whether the tables are on the way to a version, and hold only a part of it"""


def read_sync_state(matcher: RelationalMatcher) -> SyncState:
    """Whose subscriptions the tables hold, and of which version."""
    noted = matcher.tables.meta
    version = noted("version")
    return SyncState(
        noted("store"), int(version) if version is not None else None, noted("unfinished") is not None
    )


def synchronize(
    matcher: RelationalMatcher,
    store: SubscriptionStore,
    version: int | None = None,
    on_error: OnError | None = None,
    on_progress: OnProgress | None = None,
    chunk: int = CHUNK,
    also: Notes = dict,
) -> int:
    """Brings the tables to a version of the store, by default the newest, and tells which that is.

    If they are at an earlier version of the same store, only what has changed since is changed. If they are
    not, or that version was pruned, they are emptied and filled. What was interrupted is finished first.

    Of the active subscriptions, XPath filters go in; those in other languages are left out, and told to
    `on_error` as NoFilter. A query that is refused is told to it, too; without it, the error is raised, and
    the chunks before stay. `on_progress` is told after each chunk how many have been dealt with; `also` is
    asked what else to put on record with it.

    StoreError if there is no such version; TablesError if the tables hold what came from no store.
    """
    target = store.version if version is None else version
    return _Way(matcher, store, on_error, on_progress, chunk, also).to(target)


def clear_tables(matcher: RelationalMatcher, note: Mapping[str, str | None] | None = None) -> None:
    """Drops all subscriptions, namespaces and notes but the plan; `note` is put on record with it."""
    population, tables = matcher.population, matcher.tables
    with tables.lock:
        try:
            with tables.changing() as connection:
                for name in TABLES.keys() - _NOT_EMPTIED:
                    connection.run(f"DELETE FROM {name}")
                tables.forget_messages()
                connection.run("DELETE FROM meta WHERE name NOT IN ('format', 'plan')")
                tables.set_meta(note or {})
        finally:
            population.reload()


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What leads from one version, or from nothing, to another; and how much of it is done."""

    since: int | None
    until: int
    after: int = 0
    """the place up to which subscriptions are as they should be"""
    done: int = 0

    def __str__(self) -> str:
        return json.dumps(asdict(self))


class _Row(NamedTuple):
    place: int
    id: str
    query: str


class _Way:
    """Tables on the way to a version of a store."""

    def __init__(
        self,
        matcher: RelationalMatcher,
        store: SubscriptionStore,
        on_error: OnError | None,
        on_progress: OnProgress | None,
        chunk: int,
        also: Notes,
    ) -> None:
        self._matcher = matcher
        self._tables = matcher.tables
        self._population = matcher.population
        self._store = store
        self._name = _name(store)
        self._namespaces = store.namespaces
        self._on_error = on_error
        self._on_progress = on_progress
        self._chunk = chunk
        self._also = also

    def to(self, version: int) -> int:
        self._store.mark(version)  # says that there is no such version before anything is changed
        self._check_ownership()
        unfinished = self._unfinished(version)
        if unfinished is not None:
            self._go(unfinished)
        since = self._reached(version)
        if since is None:
            start = _Stretch(None, version)
            clear_tables(self._matcher, self._notes(start, self._store.mark(version), finished=False))
            self._go(start)
        elif since < version:
            self._go(_Stretch(since, version))
        return version

    # -- where the tables are --------------------------------------------------------------------------

    def _check_ownership(self) -> None:
        if self._tables.meta("store") is None and (count := len(self._matcher)):
            raise TablesError(
                f"{self._tables.path} holds {count:,} subscriptions that come from no store, and would lose "
                "them; give another file for the store's"
            )

    def _unfinished(self, version: int) -> _Stretch | None:
        """What was interrupted, if it leads to this version or an earlier one and can be finished."""
        noted = self._tables.meta("unfinished")
        if noted is None:
            return None
        stretch = _Stretch(**json.loads(noted))
        readable = stretch.since is None or stretch.since >= self._store.oldest
        return stretch if readable and self._is_same(stretch.until, version) else None

    def _reached(self, version: int) -> int | None:
        """The version that the tables are at, if this one can be reached from there."""
        noted = self._tables.meta("version")
        return int(noted) if noted is not None and self._is_same(int(noted), version) else None

    def _is_same(self, earlier: int, version: int) -> bool:
        """Whether the tables' notes are of this store, which still knows the earlier version.

        A store may have been deleted and another made in its place; hence the mark.
        """
        return (
            self._tables.meta("store") == self._name
            and self._store.oldest <= earlier <= version
            and self._tables.meta("mark") == self._store.mark(earlier)
            and all(
                self._matcher.namespaces.get(prefix, uri) == uri for prefix, uri in self._namespaces.items()
            )
        )

    def _notes(self, stretch: _Stretch, mark: str, finished: bool) -> dict[str, str | None]:
        return {
            "store": self._name,
            "version": str(stretch.until) if finished else None,
            "mark": mark,
            "unfinished": None if finished else str(stretch),
        }

    # -- the way ---------------------------------------------------------------------------------------

    def _go(self, stretch: _Stretch) -> None:
        self._population.declare(self._namespaces)
        mark = self._store.mark(stretch.until)
        gone, rows = self._changes(stretch)
        for some, last in _chunks(rows, self._chunk):
            if some:
                stretch = replace(stretch, after=some[-1].place, done=stretch.done + len(some))
            self._change(gone, some, self._notes(stretch, mark, last))
            gone = []
            if self._on_progress is not None:
                self._on_progress(stretch.done)

    def _changes(self, stretch: _Stretch) -> tuple[list[str], Iterable[_Row]]:
        """The ids that go, and what comes or is another now, in the order of places."""
        if stretch.since is None:
            return [], map(_Row._make, self._store.placed(stretch.until, stretch.after))
        changes = self._store.changes(stretch.since, stretch.until)
        begun = [_Row._make(row) for row in self._store.placed(stretch.until, stretch.after, stretch.since)]
        # Some of these only have another subscriber. Others went and came back as they were, which is no
        # change to the store, but they have another place.
        put = {id for id, _ in changes.put}
        places = self._population.numbers([row.id for row in begun if row.id not in put])
        return changes.removed, [
            row for row in begun if row.id in put or places.get(row.id, row.place) != row.place
        ]

    def _change(self, gone: list[str], rows: list[_Row], notes: Mapping[str, str | None]) -> None:
        filters = [row for row in rows if self._is_filter(row)]
        # What is refused, or is no filter any more, must go although nothing comes in its stead.
        going = [*gone, *(row.id for row in rows)]
        self._population.change(
            going,
            [(row.id, row.query) for row in filters],
            self._on_error,
            note=lambda: {**self._also(), **notes},
            places={row.id: row.place for row in filters},
        )

    def _is_filter(self, row: _Row) -> bool:
        language = detect_language(row.query)
        if language != XPATH and self._on_error is not None:
            self._on_error(row.id, UnsupportedLanguage(language))
        return language == XPATH


def _name(store: SubscriptionStore) -> str:
    """The store's name, the same from whichever folder it is opened."""
    return store.name if "://" in store.name else str(Path(store.name).resolve())


def _chunks(rows: Iterable[_Row], size: int) -> Iterator[tuple[list[_Row], bool]]:
    """The rows, so many at a time, and whether they are the last; one chunk at least."""
    rest = iter(rows)
    some = list(islice(rest, size))
    while following := list(islice(rest, size)):
        yield some, False
        some = following
    yield some, True
