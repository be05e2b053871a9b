"""Synchronizes tables with a store of subscriptions, from scratch or from one version to a later one.

Entries of the table `meta` say which store it is, and how far the synchronization has come:

    store        the store's path or URL
    version      the version of the tables; absent during a synchronization
    mark         the store's mark of that version, or of the target version
    unfinished   only during a synchronization: its range of versions, and the position reached

Each chunk is a transaction together with these entries. So after a crash the next run resumes there, and
`read_sync_state` reports that the tables are incomplete.

A subscription's number is its position in the store: matches come in the store's order, also for those that
were inactive for a while, or were removed and added again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sapwood.engine.bulk_load import OnError
from sapwood.errors import SapwoodError, TablesError
from sapwood.lang.languages import XPATH, detect_language
from sapwood.relational.relational_matcher import CHUNK, RelationalMatcher
from sapwood.relational.storage.table_schema import MESSAGE_CACHE, TABLES
from sapwood.relational.subscription_catalog import MetadataSource

if TYPE_CHECKING:
    from sapwood.store import SubscriptionStore

_log = logging.getLogger(__name__)

OnProgress = Callable[[int], None]

_NOT_CLEARED = {"meta", "counter", "path_class", *MESSAGE_CACHE}


class UnsupportedLanguage(SapwoodError, ValueError):
    """Reported for a subscription that is not an XPath filter: tables cannot hold it."""

    def __init__(self, language: str) -> None:
        self.language = language
        super().__init__(f"tables hold XPath filters only, and the query is in {language}")

    def __reduce__(self) -> tuple[type[UnsupportedLanguage], tuple[str]]:
        return type(self), (self.language,)


@dataclass(frozen=True, slots=True)
class SyncState:
    """The store and version that a set of tables is synchronized with."""

    store: str | None
    """the path or URL of the store; None if the subscriptions come from none"""
    version: int | None
    """of the store; None during a synchronization, and without a store"""
    unfinished: bool
    """whether a synchronization was interrupted, so that the tables are incomplete"""


def read_sync_state(matcher: RelationalMatcher) -> SyncState:
    """Return the store and version that the tables are synchronized with."""
    meta = matcher.database.meta
    version = meta("version")
    return SyncState(
        meta("store"), int(version) if version is not None else None, meta("unfinished") is not None
    )


def synchronize(
    matcher: RelationalMatcher,
    store: SubscriptionStore,
    version: int | None = None,
    on_error: OnError | None = None,
    on_progress: OnProgress | None = None,
    chunk: int = CHUNK,
    metadata: MetadataSource = dict,
) -> int:
    """Synchronize the tables with a version of the store, by default the newest, and return the version.

    Tables at an earlier version of the same store get the changes since then. Others, or those whose version
    was pruned, are cleared and loaded. An interrupted synchronization is resumed first.

    XPath filters among the active subscriptions are stored; for the others, `on_error` is called with an
    UnsupportedLanguage. It is also called for a query that is refused; without it, the error is raised, and
    earlier chunks remain. `on_progress` is called after each chunk with the number of subscriptions so far;
    the entries that `metadata` returns are written with each chunk.

    StoreError if there is no such version; TablesError if the tables hold subscriptions of no store.
    """
    target = store.version if version is None else version
    return _Synchronizer(matcher, store, on_error, on_progress, chunk, metadata).run(target)


def clear_tables(matcher: RelationalMatcher, metadata: Mapping[str, str | None] | None = None) -> None:
    """Delete all subscriptions, namespaces and metadata but the plan, and write `metadata`."""
    catalog, database = matcher.catalog, matcher.database
    with database.lock:
        try:
            with database.write_transaction() as connection:
                for name in TABLES.keys() - _NOT_CLEARED:
                    connection.run(f"DELETE FROM {name}")
                database.clear_message_cache()
                connection.run("DELETE FROM meta WHERE name NOT IN ('format', 'plan')")
                database.set_meta(metadata or {})
        finally:
            catalog.reload()


@dataclass(frozen=True, slots=True)
class _VersionRange:
    """The versions from which (None: from nothing) and to which to synchronize, and the progress."""

    since: int | None
    until: int
    after: int = 0
    """the position in the store up to which subscriptions are up to date"""
    done: int = 0

    def __str__(self) -> str:
        return json.dumps(asdict(self))


class _StoreRow(NamedTuple):
    """A subscription of the store; `position` becomes its number."""

    position: int
    id: str
    query: str


class _Synchronizer:
    """Synchronizes the tables of a matcher with a version of a store."""

    def __init__(
        self,
        matcher: RelationalMatcher,
        store: SubscriptionStore,
        on_error: OnError | None,
        on_progress: OnProgress | None,
        chunk: int,
        metadata: MetadataSource,
    ) -> None:
        self._matcher = matcher
        self._database = matcher.database
        self._catalog = matcher.catalog
        self._store = store
        self._location = _store_location(store)
        self._namespaces = store.namespaces
        self._on_error = on_error
        self._on_progress = on_progress
        self._chunk = chunk
        self._metadata = metadata

    def run(self, version: int) -> int:
        """Synchronize with this version."""
        self._store.mark(version)  # raises before any change if there is no such version
        self._check_ownership()
        unfinished = self._unfinished(version)
        if unfinished is not None:
            _log.info("resuming the synchronization with %s at version %d", self._location, unfinished.until)
            self._synchronize(unfinished)
        since = self._current_version(version)
        if since is None:
            _log.info("loading version %d of %s from scratch", version, self._location)
            start = _VersionRange(None, version)
            clear_tables(self._matcher, self._sync_entries(start, self._store.mark(version), finished=False))
            self._synchronize(start)
        elif since < version:
            _log.info("synchronizing with %s from version %d to %d", self._location, since, version)
            self._synchronize(_VersionRange(since, version))
        else:
            _log.debug("tables are at version %d of %s already", version, self._location)
        return version

    # -- state -----------------------------------------------------------------------------------------

    def _check_ownership(self) -> None:
        if self._database.meta("store") is None and (count := len(self._matcher)):
            raise TablesError(
                f"{self._database.path} holds {count:,} subscriptions that come from no store, which a "
                "synchronization would delete; give another file for the store's"
            )

    def _unfinished(self, version: int) -> _VersionRange | None:
        """Return an interrupted range of versions that can be resumed, up to this version."""
        entry = self._database.meta("unfinished")
        if entry is None:
            return None
        versions = _VersionRange(**json.loads(entry))
        readable = versions.since is None or versions.since >= self._store.oldest
        return versions if readable and self._is_same_store(versions.until, version) else None

    def _current_version(self, version: int) -> int | None:
        """Return the version of the tables, if there is a way from there to this one."""
        entry = self._database.meta("version")
        return int(entry) if entry is not None and self._is_same_store(int(entry), version) else None

    def _is_same_store(self, earlier: int, version: int) -> bool:
        """Return whether the tables are of this store, which still has the earlier version.

        A store may have been deleted and another created in its place; hence the mark.
        """
        return (
            self._database.meta("store") == self._location
            and self._store.oldest <= earlier <= version
            and self._database.meta("mark") == self._store.mark(earlier)
            and all(
                self._matcher.namespaces.get(prefix, uri) == uri for prefix, uri in self._namespaces.items()
            )
        )

    def _sync_entries(self, versions: _VersionRange, mark: str, finished: bool) -> dict[str, str | None]:
        return {
            "store": self._location,
            "version": str(versions.until) if finished else None,
            "mark": mark,
            "unfinished": None if finished else str(versions),
        }

    # -- changes ---------------------------------------------------------------------------------------

    def _synchronize(self, versions: _VersionRange) -> None:
        self._catalog.declare(self._namespaces)
        mark = self._store.mark(versions.until)
        removed, rows = self._read_changes(versions)
        for chunk, last in _iter_chunks(rows, self._chunk):
            if chunk:
                versions = replace(versions, after=chunk[-1].position, done=versions.done + len(chunk))
            self._apply_chunk(removed, chunk, self._sync_entries(versions, mark, last))
            removed = []
            if self._on_progress is not None:
                self._on_progress(versions.done)
        _log.debug("synchronized %d subscriptions at version %d", versions.done, versions.until)

    def _read_changes(self, versions: _VersionRange) -> tuple[list[str], Iterable[_StoreRow]]:
        """Return the removed ids, and the added or replaced subscriptions in the order of positions."""
        if versions.since is None:
            return [], map(_StoreRow._make, self._store.placed(versions.until, versions.after))
        changes = self._store.changes(versions.since, versions.until)
        rows = self._store.placed(versions.until, versions.after, versions.since)
        begun = [_StoreRow._make(row) for row in rows]
        # Some of these only have another subscriber. Others were removed and added again with the same query,
        # which is no change to the store, but they have another position.
        put = {id for id, _ in changes.put}
        numbers = self._catalog.numbers([row.id for row in begun if row.id not in put])
        return changes.removed, [
            row for row in begun if row.id in put or numbers.get(row.id, row.position) != row.position
        ]

    def _apply_chunk(
        self, removed: list[str], rows: list[_StoreRow], entries: Mapping[str, str | None]
    ) -> None:
        filters = [row for row in rows if self._is_filter(row)]
        # A subscription that is refused, or is no filter any more, is deleted without a replacement.
        deleted = [*removed, *(row.id for row in rows)]
        self._catalog.apply_changes(
            deleted,
            [(row.id, row.query) for row in filters],
            self._on_error,
            metadata=lambda: {**self._metadata(), **entries},
            numbers={row.id: row.position for row in filters},
        )

    def _is_filter(self, row: _StoreRow) -> bool:
        language = detect_language(row.query)
        if language != XPATH and self._on_error is not None:
            self._on_error(row.id, UnsupportedLanguage(language))
        return language == XPATH


def _store_location(store: SubscriptionStore) -> str:
    """Return the store's URL or absolute path, the same from whichever folder it is opened."""
    return store.name if "://" in store.name else str(Path(store.name).resolve())


def _iter_chunks(rows: Iterable[_StoreRow], size: int) -> Iterator[tuple[list[_StoreRow], bool]]:
    """Yield the rows in chunks, at least one, and whether a chunk is the last."""
    remaining = iter(rows)
    chunk = list(islice(remaining, size))
    while following := list(islice(remaining, size)):
        yield chunk, False
        chunk = following
    yield chunk, True
