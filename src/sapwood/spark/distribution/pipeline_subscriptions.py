"""The subscriptions of a pipeline: those of a store, at any of its versions, or those of a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Protocol

from sapwood import __version__
from sapwood.broker import Broker
from sapwood.config_file import ConfigError
from sapwood.engine import Limits
from sapwood.errors import ArgumentError, QueryError
from sapwood.input_files import LineError, NamedQuery, read_queries
from sapwood.join.state.portable_state import EquatedVariables
from sapwood.lang.languages import XPATH, XSCL, compile_text, detect_language
from sapwood.spark.distribution.index_cache import IndexCache
from sapwood.spark.distribution.index_snapshot import (
    BrokerSnapshots,
    IndexSnapshot,
    SnapshotDelta,
    SnapshotTransport,
)
from sapwood.spark.distribution.stream_cycles import StreamCycles, SubscriptionStart
from sapwood.store import SubscriptionStore

_log = logging.getLogger(__name__)
_NOT_JOINING = "it joins messages, and this pipeline does not: give it a table [joins] and a new checkpoint"
_MOST_ERRORS = 20
"""wrong queries of a file that an error lists"""
_EMPTY_VERSION = 0
"""the version of a store that nothing was put into yet"""


class SubscriptionProvider(Protocol):
    """The subscriptions that a pipeline serves, version by version."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """The subscriptions that cannot be evaluated, each with the reason."""

    def newest(self) -> int:
        """The version for a new batch."""

    def snapshot(self, transport: SnapshotTransport, version: int) -> IndexSnapshot:
        """Return the subscriptions of a version, which is never older than in the call before."""

    @property
    def namespaces(self) -> Mapping[str, str]:
        """The prefixes that queries may use."""

    @property
    def subscribers(self) -> Mapping[str, str]:
        """The names of subscribers by subscription, in the last snapshot."""

    def equated_variables(self) -> Mapping[bytes, EquatedVariables]:
        """The variables that the joins in the last snapshot equate."""

    def __len__(self) -> int:
        """The number of subscriptions in the last snapshot."""

    def close(self) -> None: ...


QueryPredicate = Callable[[str], bool]
"""whether a query is served here, and not by the relational engine"""


def _is_any(query: str) -> bool:
    return True


def is_not_filter(query: str) -> bool:
    """Whether a query is a transformation or a join, for pipelines that serve filters elsewhere."""
    return detect_language(query) != XPATH


class StoreSubscriptions:
    """The active subscriptions of a store. Those that cannot be evaluated are left out and logged."""

    def __init__(
        self,
        location: str,
        limits: Limits,
        joining: bool = False,
        serves: QueryPredicate = _is_any,
        cache_folder: str | None = None,
        tenant: str = "",
    ) -> None:
        """`joining`: the pipeline can join messages. `cache_folder`: where the packed index is saved."""
        self._store = SubscriptionStore(location, create=False, tenant=tenant)
        self._limits = limits
        self._joining = joining
        self._serves = serves
        self._declared: dict[str, str] = {}
        self._source: BrokerSnapshots | None = None
        self._cycles = StreamCycles()
        self.left_out: dict[str, str] = {}
        settings = f"{__version__} {self._store.name} {tenant!r} {limits} {joining} {serves.__name__}"
        self._cache = IndexCache(cache_folder, settings) if cache_folder is not None else None

    def newest(self) -> int:
        return self._store.version

    @property
    def namespaces(self) -> Mapping[str, str]:
        return self._store.namespaces

    @property
    def subscribers(self) -> Mapping[str, str]:
        return self._source.subscribers if self._source is not None else {}

    def snapshot(self, transport: SnapshotTransport, version: int) -> IndexSnapshot:
        if self._source is None:
            self._source = self._load(version) or self._compile(version)
            self._source.on_pack = self._save
        if self._source.version < version:
            self._source.advance(self._delta(self._source, version), self._refuse)
        return self._source.issue(transport)

    def _compile(self, version: int) -> BrokerSnapshots:
        self._declared = self._store.namespaces
        broker = Broker(self._declared, self._limits)
        if self._joining:
            started, _ = self._started(_EMPTY_VERSION, version, ())
            put, since = _split(started)
            SnapshotDelta(version, put=put, since=since).apply(broker, self._refuse)
        else:
            broker.subscribe_many(self._servable(self._store.at(version)), self._refuse)
        _log.info("version %d of the store compiled: %d subscriptions", version, len(broker))
        names = {id: name for id, name in self._store.subscribers(-1, version) if name}
        return BrokerSnapshots(broker, version, subscribers=names)

    def _load(self, version: int) -> BrokerSnapshots | None:
        """Return the index that an earlier run has saved, if the store leads from its version to this one."""
        cached = self._cache.load() if self._cache is not None else None
        if cached is None:
            return None
        in_history = self._store.oldest <= cached.version <= version
        if not in_history or self._store.mark(cached.version) != cached.mark:
            _log.info("the saved index has version %d, which is not of use", cached.version)
            cached.broker.close()
            return None
        self._declared, self.left_out, self._cycles = (
            cached.notes[name] for name in ("declared", "left_out", "cycles")
        )
        _log.info("version %d of the index loaded: %d subscriptions", cached.version, len(cached.broker))
        return BrokerSnapshots(cached.broker, cached.version, subscribers=cached.subscribers)

    def _save(self, packed: bytes) -> None:
        """Save the packed index for the next run."""
        assert self._source is not None
        if self._cache is not None:
            version = self._source.version
            notes = {"declared": self._declared, "left_out": self.left_out, "cycles": self._cycles}
            self._cache.save(version, self._store.mark(version), packed, notes)

    def _delta(self, source: BrokerSnapshots, until: int) -> SnapshotDelta:
        since = source.version
        changes = self._store.changes(since, until)
        namespaces = self._store.namespaces
        new = {prefix: uri for prefix, uri in namespaces.items() if prefix not in self._declared}
        self._declared = namespaces
        for id in changes.removed:
            self.left_out.pop(id, None)
        out: list[str] = []
        if self._joining:
            started, out = self._started(since, until, changes.removed)
            put, firsts = _split(started)
        else:
            put, firsts = tuple(self._servable(changes.put)), ()
        # a subscription that is now refused or relational may have been in the broker before
        refused = {id for id, _ in changes.put if id in source.broker} - {id for id, _ in put}
        removed = (*changes.removed, *sorted(refused), *out)
        subscribers = tuple(self._store.subscribers(since, until))
        return SnapshotDelta(until, removed, put, new, firsts, subscribers)

    def _started(
        self, since: int, until: int, removed: Iterable[str]
    ) -> tuple[list[SubscriptionStart], list[str]]:
        """The subscriptions to put in, and the ids of others to remove."""
        started = [SubscriptionStart(*each) for each in self._store.begun(since, until)]
        accepted, out = self._cycles.update(removed, started, self._declared)
        refused = self._cycles.refused
        for id in (*out, *(each.id for each in started if each.id in refused)):
            self._leave_out(id, refused[id], refused[id])
        new = (each for each in started if each.id not in refused and self._serves(each.query))
        served = [*accepted, *new]
        for each in served:
            self.left_out.pop(each.id, None)
        return served, out

    def _servable(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yield those that a pipeline without joins serves, and leave out the others."""
        for id, query in pairs:
            if detect_language(query) == XSCL:
                self._leave_out(id, _NOT_JOINING, _NOT_JOINING)
                continue
            self.left_out.pop(id, None)
            if self._serves(query):
                yield id, query

    def _refuse(self, id: Hashable, error: ValueError) -> None:
        self._leave_out(str(id), error.reason if isinstance(error, QueryError) else str(error), str(error))

    def _leave_out(self, id: str, reason: str, text: str) -> None:
        if self.left_out.get(id) != reason:
            self.left_out[id] = reason
            _log.error("subscription %s is left out: %s", id, text)

    def equated_variables(self) -> Mapping[bytes, EquatedVariables]:
        return self._source.equated_variables() if self._source is not None else {}

    def __len__(self) -> int:
        return len(self._source.broker) if self._source is not None else 0

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None
        self._store.close()


def _split(started: Iterable[SubscriptionStart]) -> tuple[tuple[tuple[str, str], ...], tuple[int, ...]]:
    """The ids and queries to put in, and the versions from which on they see messages."""
    each = tuple(started)
    return tuple((id, query) for id, query, _ in each), tuple(since for _, _, since in each)


class FileSubscriptions:
    """The queries of a file, all of which must be right; their version is always 0."""

    def __init__(
        self,
        path: str,
        namespaces: Mapping[str, str],
        limits: Limits,
        serves: QueryPredicate = _is_any,
        broker: Broker | None = None,
    ) -> None:
        """`broker`: one that has them already, as `compile_file` makes it."""
        compiled = broker or compile_file(path, namespaces, limits, serves)
        names = {str(query.id): query.subscriber for query in read_queries(path) if query.subscriber}
        self._source = BrokerSnapshots(compiled, subscribers=names)
        self.namespaces = namespaces
        self.left_out: dict[str, str] = {}

    def newest(self) -> int:
        return 0

    @property
    def subscribers(self) -> Mapping[str, str]:
        return self._source.subscribers

    def snapshot(self, transport: SnapshotTransport, version: int) -> IndexSnapshot:
        return self._source.issue(transport)

    @property
    def joining(self) -> bool:
        """Whether there are queries that join messages."""
        return self._source.broker.joins > 0

    def equated_variables(self) -> Mapping[bytes, EquatedVariables]:
        return self._source.equated_variables()

    def __len__(self) -> int:
        return len(self._source.broker)

    def close(self) -> None:
        self._source.close()


def compile_file(
    path: str, namespaces: Mapping[str, str], limits: Limits, serves: QueryPredicate = _is_any
) -> Broker:
    """Compile the queries of a file; ConfigError names the file and the lines of the wrong ones."""
    lines: dict[str, int] = {}
    wrong: dict[int, str] = {}

    def refuse(id: Hashable, error: ValueError) -> None:
        wrong[lines[str(id)]] = _in_one_line(error)

    def unreadable(error: LineError) -> None:
        wrong[error.line] = error.reason

    def readable() -> Iterator[tuple[str, str]]:
        for query in read_queries(path, unreadable):
            id = str(query.id)
            if id in lines:
                wrong[query.line] = f"the id {id!r} is that of line {lines[id]}, too"
                continue
            lines[id] = query.line
            try:
                _check_language(query, namespaces)
            except (ArgumentError, QueryError) as error:
                wrong[query.line] = _in_one_line(error)
                continue
            if serves(query.text):
                yield id, query.text

    broker = Broker(namespaces, limits)
    broker.subscribe_many(readable(), refuse)
    if wrong:
        broker.close()
        listed = [f"{path}:{line}: {wrong[line]}" for line in sorted(wrong)[:_MOST_ERRORS]]
        more = [f"and {len(wrong) - _MOST_ERRORS:,} more"] if len(wrong) > _MOST_ERRORS else []
        count = "a query" if len(wrong) == 1 else f"{len(wrong):,} queries"
        text = "\n  ".join([f"subscriptions.file: {count} cannot be evaluated:", *listed, *more])
        raise ConfigError(text)
    return broker


def _in_one_line(error: Exception) -> str:
    if not isinstance(error, QueryError):
        return " ".join(str(error).split())
    hint = f"; {error.hint}" if error.hint else ""
    return f"column {error.position + 1} of the query: {error.reason}{hint}"


def iter_file_queries(path: str, namespaces: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Iterate over the ids and queries of a file, each in the language that the file gives it."""
    for query in read_queries(path):
        _check_language(query, namespaces)
        yield str(query.id), query.text


def _check_language(query: NamedQuery, namespaces: Mapping[str, str]) -> None:
    """Raise QueryError or ArgumentError for a query that is not in the language that the file gives it."""
    if query.language not in (None, detect_language(query.text)):
        compile_text(query.text, namespaces, query.language)  # says why it is not


def store_has_joins(location: str, tenant: str = "") -> bool:
    """Whether there are active queries in a store that join messages."""
    with SubscriptionStore(location, create=False, tenant=tenant) as store:
        return any(True for _ in store.subscriptions(active=True, language=XSCL))
