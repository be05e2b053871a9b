"""Subscriptions of a pipeline with the relational engine: filters in tables, all others in a broker.

Both are synchronized with the version that a batch was planned with before it is served; so after a crash,
the tables are never ahead of the next batch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Hashable, Mapping
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from typing import Protocol

from sapwood.errors import QueryError, TablesError
from sapwood.join.state.portable_state import EquatedVariables
from sapwood.relational import RelationalMatcher
from sapwood.relational.relational_matcher import CHUNK
from sapwood.relational.storage.store_sync import UnsupportedLanguage, clear_tables, synchronize
from sapwood.spark.distribution.index_snapshot import IndexSnapshot, SnapshotTransport
from sapwood.spark.distribution.pipeline_subscriptions import (
    SubscriptionProvider,
    is_not_filter,
    iter_file_queries,
)
from sapwood.spark.pipeline.config import PipelineConfig, RelationalConfig
from sapwood.spark.relational.table_match import Backend, RelationalMatching
from sapwood.store import SubscriptionStore

_log = logging.getLogger(__name__)
_LEFT_OUT_KEY = "left_out"


class _FilterSource(Protocol):
    """The filters of a pipeline, which it loads into tables."""

    left_out: dict[str, str]

    def synchronize(self, version: int) -> None:
        """Bring the tables to a version."""

    def close(self) -> None: ...


class TableSubscriptions:
    """The subscriptions of a pipeline, its filters in tables and the others in a broker."""

    def __init__(
        self, others: SubscriptionProvider, filters: _FilterSource, matcher: RelationalMatcher
    ) -> None:
        self._others = others
        self._filters = filters
        self._matcher = matcher
        self._matching: RelationalMatching | None = None

    @property
    def left_out(self) -> Mapping[str, str]:
        return {**self._others.left_out, **self._filters.left_out}

    @property
    def namespaces(self) -> Mapping[str, str]:
        return self._others.namespaces

    def newest(self) -> int:
        return self._others.newest()

    @property
    def subscribers(self) -> Mapping[str, str]:
        return self._others.subscribers

    def snapshot(self, context: SnapshotTransport, version: int) -> IndexSnapshot:
        """Return the broker's snapshot of a version, after synchronizing the tables with it."""
        self._filters.synchronize(version)
        return self._others.snapshot(context, version)

    def equated_variables(self) -> Mapping[bytes, EquatedVariables]:
        """The variables that the joins in the broker equate."""
        return self._others.equated_variables()

    def __len__(self) -> int:
        return len(self._others) + len(self._matcher)

    def matching(self, on: Backend, folder: str) -> RelationalMatching:
        """Return the matching function for all of them; `folder` is one that all workers reach."""
        self._matching = RelationalMatching(self._matcher, on, folder)
        return self._matching

    def close(self) -> None:
        self._others.close()
        self._filters.close()
        if self._matching is not None:
            self._matching.close()
        self._matcher.close()
        # Py4J refers to the pipeline until the process exits, too late to finalize DuckDB's objects.
        del self._filters, self._matching, self._matcher


def open_table_subscriptions(others: SubscriptionProvider, settings: PipelineConfig) -> TableSubscriptions:
    """Open the tables of a pipeline, and return its subscriptions."""
    config = settings.relational or RelationalConfig()
    settings.tables.parent.mkdir(parents=True, exist_ok=True)
    matcher = RelationalMatcher(settings.tables, limits=settings.matcher_limits(), **config.matcher_options())
    try:
        given = settings.subscriptions
        filters: _FilterSource
        if given.store is not None:
            filters = _StoreFilters(given.store, given.tenant, matcher)
        else:
            assert given.file is not None
            filters = _FileFilters(given.file, given.namespaces, matcher)
    except BaseException:
        matcher.close()
        raise
    return TableSubscriptions(others, filters, matcher)


class _StoreFilters:
    """The active filters of a store. Those that are refused are logged, and listed in `left_out`."""

    def __init__(self, location: str, tenant: str, matcher: RelationalMatcher) -> None:
        self._store = SubscriptionStore(location, create=False, tenant=tenant)
        self._matcher = matcher
        self.left_out: dict[str, str] = self._read_left_out()

    def synchronize(self, version: int) -> None:
        refused: dict[str, str] = {}

        def on_error(id: Hashable, error: ValueError) -> None:
            if not isinstance(error, UnsupportedLanguage):
                refused[str(id)] = error.reason if isinstance(error, QueryError) else str(error)
                _log.error("subscription %s is left out: %s", id, error)

        before = self._read_left_out()
        synchronize(
            self._matcher,
            self._store,
            version,
            on_error,
            metadata=lambda: {_LEFT_OUT_KEY: json.dumps(before | refused)},
        )
        left_out = {id: why for id, why in before.items() if self._is_still_refused(id)} | refused
        if left_out != self._read_left_out():
            database = self._matcher.database
            with database.write_transaction():
                database.set_meta({_LEFT_OUT_KEY: json.dumps(left_out)})
        self.left_out = left_out

    def _read_left_out(self) -> dict[str, str]:
        """Return the filters that were refused so far: a later run checks only those that have changed."""
        found: dict[str, str] = json.loads(self._matcher.database.meta(_LEFT_OUT_KEY) or "{}")
        return found

    def _is_still_refused(self, id: str) -> bool:
        """Return whether a refused filter is still active, and not in the tables by now."""
        found = self._store.get(id)
        return (
            found is not None and found.active and not is_not_filter(found.query) and id not in self._matcher
        )

    def close(self) -> None:
        self._store.close()


class _FileFilters:
    """The filters in a file of queries, all of which must be valid."""

    def __init__(self, path: str, namespaces: Mapping[str, str], matcher: RelationalMatcher) -> None:
        self._matcher = matcher
        self.left_out: dict[str, str] = {}
        self._load(path, namespaces)

    def synchronize(self, version: int) -> None:
        """Do nothing: a file has one version, which is loaded."""

    def _load(self, path: str, namespaces: Mapping[str, str]) -> None:
        """Load the tables, unless they have been loaded from this file and these namespaces."""
        database = self._matcher.database
        entries = {"store": str(Path(path).resolve()), "mark": _file_fingerprint(path, namespaces)}
        if all(database.meta(name) == value for name, value in entries.items()) and database.meta("version"):
            return
        if database.meta("store") is None and len(self._matcher):
            raise TablesError(
                f"{database.path} holds subscriptions that come from elsewhere, which would be deleted; give "
                "another file in relational.tables"
            )
        _log.info("loading the filters of %s into %s", path, database.path)
        clear_tables(self._matcher, entries)
        self._matcher.declare(namespaces)
        filters = (pair for pair in iter_file_queries(path, namespaces) if not is_not_filter(pair[1]))
        while chunk := list(islice(filters, CHUNK)):
            self._matcher.catalog.apply_changes(put=chunk, replace=False)
        with database.write_transaction():
            database.set_meta({"version": "0"})

    def close(self) -> None: ...


def _file_fingerprint(path: str, namespaces: Mapping[str, str]) -> str:
    """Return a digest of a file of queries and its namespaces."""
    with Path(path).open("rb") as file:
        content = file_digest(file, "blake2b").hexdigest()
    return f"{content} {json.dumps(sorted(namespaces.items()))}"
