"""Subscriptions of a pipeline whose filters are kept in the tables of the relational engine.

All others a broker has. Both are brought to the version that a batch was planned with before it is served; so
after a crash, the tables are never ahead of the batch that is served next.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Hashable, Iterable, Mapping
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from typing import Protocol

from sapwood.errors import QueryError, TablesError
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
from sapwood.spark.relational.relational_match import Backend, RelationalMatching
from sapwood.store import SubscriptionStore

_log = logging.getLogger(__name__)
_NOTE = "left_out"


class _Filters(Protocol):
    left_out: dict[str, str]

    def bring(self, version: int) -> None:
        """Brings the tables to a version."""

    def close(self) -> None: ...


class TabledPopulation:
    """Filters in tables, and others as they are without."""

    def __init__(self, others: SubscriptionProvider, filters: _Filters, matcher: RelationalMatcher) -> None:
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

    def subscribers(self, since: int, until: int) -> Iterable[tuple[str, str]]:
        return self._others.subscribers(since, until)

    def snapshot(self, context: SnapshotTransport, version: int) -> IndexSnapshot:
        """The others; the filters are in the tables then."""
        self._filters.bring(version)
        return self._others.snapshot(context, version)

    def __len__(self) -> int:
        return len(self._others) + len(self._matcher)

    def matching(self, on: Backend, folder: str) -> RelationalMatching:
        """What matches messages with all of them; `folder` is one that all workers reach."""
        self._matching = RelationalMatching(self._matcher, on, folder)
        return self._matching

    def close(self) -> None:
        self._others.close()
        self._filters.close()
        if self._matching is not None:
            self._matching.close()
        self._matcher.close()
        # Py4J keeps the pipeline until the process ends, and DuckDB would complain of what is left then.
        del self._filters, self._matching, self._matcher


def in_tables(others: SubscriptionProvider, settings: PipelineConfig) -> TabledPopulation:
    """The subscriptions of a pipeline, with its filters in tables."""
    how = settings.relational or RelationalConfig()
    settings.tables.parent.mkdir(parents=True, exist_ok=True)
    matcher = RelationalMatcher(
        settings.tables, limits=settings.matcher_limits(), plan=how.plan, memory=how.memory
    )
    try:
        given = settings.subscriptions
        filters: _Filters
        if given.store is not None:
            filters = _StoredFilters(given.store, matcher)
        else:
            assert given.file is not None
            filters = _FixedFilters(given.file, given.namespaces, matcher)
    except BaseException:
        matcher.close()
        raise
    return TabledPopulation(others, filters, matcher)


class _StoredFilters:
    """The active filters of a store. Those that cannot be served are left out, and the log says so."""

    def __init__(self, location: str, matcher: RelationalMatcher) -> None:
        self._store = SubscriptionStore(location, create=False)
        self._matcher = matcher
        self.left_out: dict[str, str] = self._noted()

    def bring(self, version: int) -> None:
        told: dict[str, str] = {}

        def refuse(id: Hashable, error: ValueError) -> None:
            if not isinstance(error, UnsupportedLanguage):
                told[str(id)] = error.reason if isinstance(error, QueryError) else str(error)
                _log.error("subscription %s is left out: %s", id, error)

        before = self._noted()
        synchronize(
            self._matcher, self._store, version, refuse, also=lambda: {_NOTE: json.dumps(before | told)}
        )
        left_out = {id: why for id, why in before.items() if self._still(id)} | told
        if left_out != self._noted():
            tables = self._matcher.tables
            with tables.changing():
                tables.set_meta({_NOTE: json.dumps(left_out)})
        self.left_out = left_out

    def _noted(self) -> dict[str, str]:
        """What has been left out so far: only what changes is looked at again, also by the next run."""
        found: dict[str, str] = json.loads(self._matcher.tables.meta(_NOTE) or "{}")
        return found

    def _still(self, id: str) -> bool:
        """Whether a filter that was left out is still there, and not served by now."""
        found = self._store.get(id)
        return (
            found is not None and found.active and not is_not_filter(found.query) and id not in self._matcher
        )

    def close(self) -> None:
        self._store.close()


class _FixedFilters:
    """The filters in a file of queries, which all must be right."""

    def __init__(self, path: str, namespaces: Mapping[str, str], matcher: RelationalMatcher) -> None:
        self._matcher = matcher
        self.left_out: dict[str, str] = {}
        self._fill(path, namespaces)

    def bring(self, version: int) -> None:
        """They are all there."""

    def _fill(self, path: str, namespaces: Mapping[str, str]) -> None:
        """Fills the tables, unless they have been filled from just this."""
        tables = self._matcher.tables
        notes = {"store": str(Path(path).resolve()), "mark": _mark(path, namespaces)}
        if all(tables.meta(name) == value for name, value in notes.items()) and tables.meta("version"):
            return
        if tables.meta("store") is None and len(self._matcher):
            raise TablesError(
                f"{tables.path} holds subscriptions that come from elsewhere, and would lose them; give "
                "another file in relational.tables"
            )
        clear_tables(self._matcher, notes)
        self._matcher.declare(namespaces)
        filters = (pair for pair in iter_file_queries(path, namespaces) if not is_not_filter(pair[1]))
        while some := list(islice(filters, CHUNK)):
            self._matcher.population.change(put=some, replace=False)
        with tables.changing():
            tables.set_meta({"version": "0"})

    def close(self) -> None: ...


def _mark(path: str, namespaces: Mapping[str, str]) -> str:
    """What tells one file of queries from another."""
    with Path(path).open("rb") as file:
        content = file_digest(file, "blake2b").hexdigest()
    return f"{content} {json.dumps(sorted(namespaces.items()))}"
