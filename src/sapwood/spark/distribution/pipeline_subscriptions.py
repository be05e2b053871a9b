"""The subscriptions of a pipeline: those of a store, at any of its versions, or those of a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Protocol

from sapwood.broker import Broker
from sapwood.engine import Limits
from sapwood.errors import QueryError, StoreError
from sapwood.input_files import LineError, read_queries
from sapwood.lang.language_detection import is_join
from sapwood.lang.languages import XPATH, XSCL, check_query, detect_language
from sapwood.spark.distribution.index_snapshot import (
    IndexSnapshot,
    SnapshotDelta,
    SnapshotTransport,
    SubscriptionSource,
)
from sapwood.spark.distribution.stream_cycles import StreamCycles, SubscriptionStart
from sapwood.spark.pipeline.config import ConfigError
from sapwood.store import SubscriptionStore

_log = logging.getLogger(__name__)
_NOT_JOINING = "it joins messages, and this pipeline does not: give it a table [joins] and a new checkpoint"
_MOST_TOLD = 20
"""Of queries in a file that are wrong."""
_BEGINNING = 0
"""the version of a store that nothing was put into yet"""


class SubscriptionProvider(Protocol):
    """What a pipeline wants to know of its subscriptions."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Those that cannot be served, and why."""

    def newest(self) -> int:
        """The version that a new batch is to be served with."""

    def snapshot(self, context: SnapshotTransport, version: int) -> IndexSnapshot:
        """The subscriptions of a version, which never goes back while a pipeline runs."""

    @property
    def namespaces(self) -> Mapping[str, str]:
        """The prefixes that queries may use."""

    def subscribers(self, since: int, until: int) -> Iterable[tuple[str, str]]:
        """The subscribers of subscriptions that are not what they were at version `since`, or -1 for all."""

    def __len__(self) -> int:
        """How many there are in the last snapshot."""

    def close(self) -> None: ...


Serves = Callable[[str], bool]
"""whether a query is served here, and not elsewhere"""


def _any(query: str) -> bool:
    return True


def is_not_filter(query: str) -> bool:
    """Whether a query makes something of messages, where filters are served elsewhere."""
    return detect_language(query) != XPATH


class StoreSubscriptions:
    """The active subscriptions of a store. Those that cannot be served are left out, and the log says so."""

    def __init__(self, location: str, limits: Limits, joining: bool = False, serves: Serves = _any) -> None:
        """`joining`: the pipeline can join messages."""
        self._store = SubscriptionStore(location, create=False)
        self._limits = limits
        self._joining = joining
        self._serves = serves
        self._declared: dict[str, str] = {}
        self._population: SubscriptionSource | None = None
        self._circles = StreamCycles()
        self.left_out: dict[str, str] = {}

    def newest(self) -> int:
        return self._store.version

    @property
    def namespaces(self) -> Mapping[str, str]:
        return self._store.namespaces

    def subscribers(self, since: int, until: int) -> Iterable[tuple[str, str]]:
        return self._store.subscribers(since, until)

    def snapshot(self, context: SnapshotTransport, version: int) -> IndexSnapshot:
        if self._population is None:
            self._population = self._compiled(version)
        elif self._population.version < version:
            self._population.advance(self._change(self._population, version), self._refuse)
        return self._population.issue(context)

    def _compiled(self, version: int) -> SubscriptionSource:
        self._declared = self._store.namespaces
        broker = Broker(self._declared, self._limits)
        if self._joining:
            begun, _ = self._begun(_BEGINNING, version, ())
            put, since = _put(begun)
            SnapshotDelta(version, put=put, since=since).apply(broker, self._refuse)
            return SubscriptionSource(broker, version)
        broker.subscribe_many(self._servable(self._store.at(version)), self._refuse)
        return SubscriptionSource(broker, version)

    def _change(self, population: SubscriptionSource, until: int) -> SnapshotDelta:
        since = population.version
        changes = self._store.changes(since, until)
        namespaces = self._store.namespaces
        new = {prefix: uri for prefix, uri in namespaces.items() if prefix not in self._declared}
        self._declared = namespaces
        for id in changes.removed:
            self.left_out.pop(id, None)
        out: list[str] = []
        if self._joining:
            begun, out = self._begun(since, until, changes.removed)
            put, firsts = _put(begun)
        else:
            put, firsts = tuple(self._servable(changes.put)), ()
        # what is refused, or served elsewhere, may have been something else before
        refused = {id for id, _ in changes.put if id in population.broker} - {id for id, _ in put}
        return SnapshotDelta(until, (*changes.removed, *sorted(refused), *out), put, new, firsts)

    def _begun(
        self, since: int, until: int, removed: Iterable[str]
    ) -> tuple[list[SubscriptionStart], list[str]]:
        """What is to be put in, and what else is to be taken out."""
        begun = [SubscriptionStart(*each) for each in self._store.begun(since, until)]
        free, out = self._circles.change(removed, begun, self._declared)
        closing = self._circles.closing
        for id in (*out, *(each.id for each in begun if each.id in closing)):
            self._leave_out(id, closing[id], closing[id])
        served = [*free, *(each for each in begun if each.id not in closing and self._serves(each.query))]
        for each in served:
            self.left_out.pop(each.id, None)
        return served, out

    def _servable(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Those that a pipeline without joins serves; the others are put on record."""
        for id, query in pairs:
            if is_join(query):
                self._leave_out(id, _NOT_JOINING, _NOT_JOINING)
                continue
            self.left_out.pop(id, None)
            if self._serves(query):
                yield id, query

    def _refuse(self, id: Hashable, error: ValueError) -> None:
        self._leave_out(str(id), error.reason if isinstance(error, QueryError) else str(error), str(error))

    def _leave_out(self, id: str, reason: str, told: str) -> None:
        if self.left_out.get(id) != reason:
            self.left_out[id] = reason
            _log.error("subscription %s is left out: %s", id, told)

    def __len__(self) -> int:
        return len(self._population.broker) if self._population is not None else 0

    def close(self) -> None:
        if self._population is not None:
            self._population.close()
            self._population = None
        self._store.close()


def _put(begun: Iterable[SubscriptionStart]) -> tuple[tuple[tuple[str, str], ...], tuple[int, ...]]:
    """What is to be put in, and from which version on each sees messages."""
    each = tuple(begun)
    return tuple((id, query) for id, query, _ in each), tuple(since for _, _, since in each)


class FileSubscriptions:
    """The queries of a file, all of which must be right; version 0 for ever."""

    def __init__(
        self,
        path: str,
        namespaces: Mapping[str, str],
        limits: Limits,
        serves: Serves = _any,
        broker: Broker | None = None,
    ) -> None:
        """`broker`: one that has them already, as `compile_file` makes it."""
        self._population = SubscriptionSource(broker or compile_file(path, namespaces, limits, serves))
        self._path = path
        self.namespaces = namespaces
        self.left_out: dict[str, str] = {}

    def newest(self) -> int:
        return 0

    def subscribers(self, since: int, until: int) -> Iterable[tuple[str, str]]:
        named = ((str(query.id), query.subscriber or "") for query in read_queries(self._path))
        return named if since < 0 else ()

    def snapshot(self, context: SnapshotTransport, version: int) -> IndexSnapshot:
        return self._population.issue(context)

    @property
    def joining(self) -> bool:
        """Whether there are queries that join messages."""
        return self._population.broker.joins > 0

    def __len__(self) -> int:
        return len(self._population.broker)

    def close(self) -> None:
        self._population.close()


def compile_file(path: str, namespaces: Mapping[str, str], limits: Limits, serves: Serves = _any) -> Broker:
    """A broker with the queries of a file; SettingsError names the file and line of all that are wrong."""
    lines: dict[str, int] = {}
    wrong: dict[int, str] = {}

    def refuse(id: Hashable, error: ValueError) -> None:
        wrong[lines[str(id)]] = _in_a_line(error)

    def unreadable(error: LineError) -> None:
        wrong[error.line] = error.reason

    def right() -> Iterator[tuple[str, str]]:
        for query in read_queries(path, unreadable):
            id = str(query.id)
            if id in lines:
                wrong[query.line] = f"the id {id!r} is that of line {lines[id]}, too"
                continue
            lines[id] = query.line
            try:
                if query.language not in (None, detect_language(query.text)):
                    check_query(query.text, query.language, namespaces)  # says why it is not
            except (QueryError, StoreError) as error:
                wrong[query.line] = _in_a_line(error)
                continue
            if serves(query.text):
                yield id, query.text

    broker = Broker(namespaces, limits)
    broker.subscribe_many(right(), refuse)
    if wrong:
        broker.close()
        told = [f"{path}:{line}: {wrong[line]}" for line in sorted(wrong)[:_MOST_TOLD]]
        more = [f"and {len(wrong) - _MOST_TOLD:,} more"] if len(wrong) > _MOST_TOLD else []
        count = "a query" if len(wrong) == 1 else f"{len(wrong):,} queries"
        text = "\n  ".join([f"subscriptions.file: {count} cannot be served:", *told, *more])
        raise ConfigError(text)
    return broker


def _in_a_line(error: Exception) -> str:
    if not isinstance(error, QueryError):
        return " ".join(str(error).split())
    hint = f"; {error.hint}" if error.hint else ""
    return f"column {error.position + 1} of the query: {error.reason}{hint}"


def iter_file_queries(path: str, namespaces: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The ids and queries of a file, each in the language that it claims to be in, if it does."""
    for query in read_queries(path):
        if query.language not in (None, detect_language(query.text)):
            check_query(query.text, query.language, namespaces)  # says why it is not
        yield str(query.id), query.text


def store_has_joins(location: str) -> bool:
    """Whether there are active queries in a store that join messages."""
    with SubscriptionStore(location, create=False) as store:
        return any(True for _ in store.subscriptions(active=True, language=XSCL))
