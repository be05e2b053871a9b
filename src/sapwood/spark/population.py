"""The subscriptions of a pipeline: those of a store, at any of its versions, or those of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from pyspark import SparkContext

from sapwood.broker import Broker
from sapwood.engine import Limits
from sapwood.files import read_queries
from sapwood.spark.edition import Change, Edition, Population, left_out
from sapwood.store import SubscriptionStore
from sapwood.store.languages import check_query, language_of


class Subscribed(Protocol):
    """What a pipeline wants to know of its subscriptions."""

    def newest(self) -> int:
        """The version that a new batch is to be served with."""

    def edition(self, context: SparkContext, version: int) -> Edition:
        """The subscriptions of a version, which never goes back while a pipeline runs."""

    def __len__(self) -> int:
        """How many there are in the last edition."""

    def close(self) -> None: ...


class StoredPopulation:
    """The active subscriptions of a store."""

    def __init__(self, location: str, limits: Limits) -> None:
        self._store = SubscriptionStore(location, create=False)
        self._limits = limits
        self._declared: dict[str, str] = {}
        self._population: Population | None = None

    def newest(self) -> int:
        return self._store.version

    def edition(self, context: SparkContext, version: int) -> Edition:
        if self._population is None:
            self._population = self._compiled(version)
        elif self._population.version < version:
            self._population.advance(self._change(self._population.version, version))
        return self._population.issue(context)

    def _compiled(self, version: int) -> Population:
        self._declared = self._store.namespaces
        broker = Broker(self._declared, self._limits)
        broker.subscribe_many(self._store.at(version), on_error=left_out)
        return Population(broker, version)

    def _change(self, since: int, until: int) -> Change:
        changes = self._store.changes(since, until)
        namespaces = self._store.namespaces
        new = {prefix: uri for prefix, uri in namespaces.items() if prefix not in self._declared}
        self._declared = namespaces
        return Change(until, tuple(changes.removed), tuple(changes.put), new)

    def __len__(self) -> int:
        return len(self._population.broker) if self._population is not None else 0

    def close(self) -> None:
        if self._population is not None:
            self._population.close()
            self._population = None
        self._store.close()


class FixedPopulation:
    """The queries of a file, all of which must be right; version 0 for ever."""

    def __init__(self, path: str, namespaces: Mapping[str, str], limits: Limits) -> None:
        broker = Broker(namespaces, limits)
        broker.subscribe_many(_queries(path, namespaces))
        self._population = Population(broker)

    def newest(self) -> int:
        return 0

    def edition(self, context: SparkContext, version: int) -> Edition:
        return self._population.issue(context)

    def __len__(self) -> int:
        return len(self._population.broker)

    def close(self) -> None:
        self._population.close()


def _queries(path: str, namespaces: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The ids and queries of a file, each in the language that it claims to be in, if it does."""
    for query in read_queries(path):
        if query.language not in (None, language_of(query.text)):
            check_query(query.text, query.language, namespaces)  # says why it is not
        yield str(query.id), query.text
