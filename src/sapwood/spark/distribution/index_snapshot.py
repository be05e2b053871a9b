"""Which subscriptions serve a batch, and how they get to the workers.

A `SubscriptionSource` lives on the driver: the compiled broker and the version it stands at. What it
issues is an `IndexSnapshot`, small enough to travel with every task:

    base      the packed broker of some version, broadcast: one file, fetched once by every executor; if a
              stream's own plan needs it, which is made before the snapshot is, a file in the checkpoint
    changes   what has changed since, version by version

A Python worker unpacks the base once, and from then on only applies the changes it has not seen. When the
changes have grown to a good part of the population, a new base is packed and the old one destroyed; the newer
changes stay in the snapshot for a while, so that workers that are up to date never unpack again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from sapwood.broker import Broker
from sapwood.engine.bulk_load import OnError

_FEW = 2_000
"""So many changes are always left to the workers to apply."""


class BroadcastBytes(Protocol):
    """Bytes that workers can get at."""

    @property
    def value(self) -> bytes: ...

    def destroy(self) -> None: ...


class SnapshotTransport(Protocol):
    """Takes bytes to the workers, as a SparkContext does."""

    def broadcast(self, value: bytes) -> BroadcastBytes: ...


@dataclass(frozen=True, slots=True)
class SnapshotDelta:
    """What a version changed: subscriptions removed, and those put in with a new query."""

    version: int
    removed: tuple[str, ...] = ()
    put: tuple[tuple[str, str], ...] = ()
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """prefixes declared by then"""
    since: tuple[int, ...] = ()
    """where joins are served: the version from which on each of those put in sees messages"""

    def __len__(self) -> int:
        return len(self.removed) + len(self.put)

    def apply(self, broker: Broker, on_error: OnError = lambda id, error: None) -> None:
        """Brings a broker from the version before to this one. Of a query that the store holds and a broker
        refuses, `on_error` is told; the others are served."""
        broker.declare(self.namespaces)
        for id in self.removed:
            if id in broker:
                broker.unsubscribe(id)
        for id in [id for id, _ in self.put if id in broker]:
            broker.unsubscribe(id)
        if not self.since:
            broker.subscribe_many(self.put, on_error)
            return
        joins = broker.network_of_joins
        for since in sorted(set(self.since)):
            joins.begin(since)
            begun = [pair for pair, first in zip(self.put, self.since, strict=True) if first == since]
            broker.subscribe_many(begun, on_error)


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """The subscriptions of one version, for the workers."""

    population: str
    version: int
    base: BroadcastBytes
    base_version: int
    changes: tuple[SnapshotDelta, ...]
    oldest: int
    """the version from which the changes lead on"""
    numeric: bool = False
    """whether subscriptions are called by whole numbers, and so delivered; else by strings"""
    transforming: bool = False
    """whether some of them are transformations, so that what they make is delivered, too"""
    going_on: bool = False
    """whether some of them are chains or publish, so that there is more to do in the next batch"""
    empty: bool = False
    """whether there are none"""


@dataclass(slots=True)
class SubscriptionSource:
    """The driver's copy of the subscriptions."""

    broker: Broker
    version: int = 0
    numeric: bool = False
    name: str = field(default_factory=lambda: uuid4().hex)
    _changes: list[SnapshotDelta] = field(default_factory=list)
    _oldest: int = field(init=False)
    _base: BroadcastBytes | None = None
    _base_version: int = 0

    def __post_init__(self) -> None:
        self._oldest = self.version

    def advance(self, change: SnapshotDelta, on_error: OnError = lambda id, error: None) -> None:
        """Goes on to a newer version, see `SnapshotDelta.apply`."""
        if change.version <= self.version:
            raise ValueError(f"version {change.version} does not follow version {self.version}")
        change.apply(self.broker, on_error)
        self.version = change.version
        self._changes.append(change)

    def issue(self, context: SnapshotTransport) -> IndexSnapshot:
        """The present snapshot; packs a new base if there is none, or the last one is far behind."""
        if self._base is None or self._behind() > max(_FEW, len(self.broker) // 10):
            self._pack(context)
        assert self._base is not None
        return IndexSnapshot(
            self.name,
            self.version,
            self._base,
            self._base_version,
            tuple(self._changes),
            self._oldest,
            self.numeric,
            self.broker.transformations > 0,
            self.broker.network_of_joins.going_on,
            len(self.broker) == 0,
        )

    def _behind(self) -> int:
        # a version that changed nothing here still takes room in every snapshot
        return sum(1 + len(change) for change in self._since(self._base_version))

    def _since(self, version: int) -> Iterable[SnapshotDelta]:
        return (change for change in self._changes if change.version > version)

    def _pack(self, context: SnapshotTransport) -> None:
        previous, previous_version = self._base, self._base_version
        self._base = context.broadcast(self.broker.pack())
        self._base_version = self.version
        if previous is None:
            self._changes, self._oldest = [], self.version
        else:
            self._changes = list(self._since(previous_version))
            self._oldest = previous_version
            previous.destroy()

    def close(self) -> None:
        """Frees what the executors keep of it."""
        if self._base is not None:
            self._base.destroy()
            self._base = None
        self.broker.close()
