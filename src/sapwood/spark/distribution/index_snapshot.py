"""Snapshots of the compiled subscriptions, and the deltas that bring a worker from one version to the next.

`BrokerSnapshots` lives on the driver: the compiled broker and its version. It issues an `IndexSnapshot`
for each batch, small enough to travel with every task:

    packed    the packed broker of some version with the names of subscribers, broadcast: one file, fetched
              once by every executor; for a stateful plan, which is made before the snapshot, a file in the
              checkpoint
    deltas    the changes since then, version by version

A Python worker unpacks the broker once, and from then on only applies the deltas that it has not applied yet.
When the deltas have grown to a tenth of the subscriptions, the broker is packed again and the old bytes are
destroyed; the newer deltas stay in the snapshot until the next time, so that workers that are up to date
never unpack again.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from sapwood.broker import Broker
from sapwood.broker.distributed_broker import DistributedBroker
from sapwood.engine.bulk_load import OnError
from sapwood.join.state.portable_state import EquatedVariables

_log = logging.getLogger(__name__)
_MIN_CHANGES_TO_PACK = 2_000
"""Up to this many changes, workers apply deltas."""


class BroadcastBytes(Protocol):
    """Bytes that workers can read."""

    @property
    def value(self) -> bytes: ...

    def destroy(self) -> None: ...


class SnapshotTransport(Protocol):
    """Takes bytes to the workers, as a SparkContext does."""

    def broadcast(self, value: bytes) -> BroadcastBytes: ...


@dataclass(frozen=True, slots=True)
class SnapshotDelta:
    """The changes of one version: subscriptions removed, and subscriptions put in with a new query."""

    version: int
    removed: tuple[str, ...] = ()
    put: tuple[tuple[str, str], ...] = ()
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """prefixes declared by then"""
    since: tuple[int, ...] = ()
    """with joins: for each subscription put in, the version from which on it sees messages"""
    subscribers: tuple[tuple[str, str], ...] = ()
    """subscriptions that have changed, and the names of their subscribers; "" for none"""

    def __len__(self) -> int:
        return len(self.removed) + max(len(self.put), len(self.subscribers))

    def apply(self, broker: Broker, on_error: OnError = lambda id, error: None) -> None:
        """Bring a broker from the version before to this one. `on_error` is called for each query that the
        broker refuses; the others are put in."""
        broker.declare(self.namespaces)
        for id in self.removed:
            if id in broker:
                broker.unsubscribe(id)
        for id in [id for id, _ in self.put if id in broker]:
            broker.unsubscribe(id)
        if not self.since:
            broker.subscribe_many(self.put, on_error)
            return
        distributed = DistributedBroker(broker)
        for since in sorted(set(self.since)):
            begun = [pair for pair, first in zip(self.put, self.since, strict=True) if first == since]
            distributed.subscribe_from(since, begun, on_error)


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """The subscriptions of one version, for the workers."""

    source: str
    """the name of the `BrokerSnapshots`"""
    version: int
    packed: BroadcastBytes
    packed_version: int
    deltas: tuple[SnapshotDelta, ...]
    first_version: int
    """the version to which the first of the deltas applies"""
    numeric: bool = False
    """whether subscription ids are whole numbers, also in deliveries; else they are strings"""
    transforming: bool = False
    """whether there are transformations, so that deliveries have bodies"""
    has_feedback: bool = False
    """whether there are chains or queries that publish, so that a batch may put rows into the next one"""
    empty: bool = False
    """whether there are no subscriptions"""


@dataclass(slots=True)
class BrokerSnapshots:
    """The compiled broker on the driver, which issues snapshots of its versions."""

    broker: Broker
    version: int = 0
    numeric: bool = False
    subscribers: dict[str, str] = field(default_factory=dict)
    """the names of subscribers by subscription; without those of subscriptions that have none"""
    on_pack: Callable[[bytes], None] = lambda data: None
    """called with the bytes of each packed index"""
    name: str = field(default_factory=lambda: uuid4().hex)
    _deltas: list[SnapshotDelta] = field(default_factory=list)
    _first_version: int = field(init=False)
    _packed: BroadcastBytes | None = None
    _packed_version: int = 0
    _equated: tuple[int, Mapping[bytes, EquatedVariables]] | None = None

    def __post_init__(self) -> None:
        self._first_version = self.version

    def advance(self, delta: SnapshotDelta, on_error: OnError = lambda id, error: None) -> None:
        """Go on to a newer version, see `SnapshotDelta.apply`."""
        if delta.version <= self.version:
            raise ValueError(f"version {delta.version} does not follow version {self.version}")
        delta.apply(self.broker, on_error)
        update_subscribers(self.subscribers, delta)
        _log.debug(
            "delta from version %d to %d: %d subscriptions put, %d removed",
            self.version,
            delta.version,
            len(delta.put),
            len(delta.removed),
        )
        self.version = delta.version
        self._deltas.append(delta)

    def issue(self, transport: SnapshotTransport) -> IndexSnapshot:
        """Return the snapshot of the present version; packs the broker if it never was, or far behind."""
        limit = max(_MIN_CHANGES_TO_PACK, len(self.broker) // 10)
        if self._packed is None or self._count_changes() > limit:
            self._pack(transport)
        assert self._packed is not None
        return IndexSnapshot(
            self.name,
            self.version,
            self._packed,
            self._packed_version,
            tuple(self._deltas),
            self._first_version,
            self.numeric,
            self.broker.transformations > 0,
            DistributedBroker(self.broker).has_feedback,
            len(self.broker) == 0,
        )

    def equated_variables(self) -> Mapping[bytes, EquatedVariables]:
        """Return the variables that joins equate, and for how long they need their values."""
        if self._equated is None or self._equated[0] != self.version:
            self._equated = self.version, DistributedBroker(self.broker).equated_variables()
        return self._equated[1]

    def _count_changes(self) -> int:
        # a delta without changes still takes room in every snapshot
        return sum(1 + len(delta) for delta in self._deltas_since(self._packed_version))

    def _deltas_since(self, version: int) -> Iterable[SnapshotDelta]:
        return (delta for delta in self._deltas if delta.version > version)

    def _pack(self, transport: SnapshotTransport) -> None:
        previous, previous_version = self._packed, self._packed_version
        data = pack_index(self.broker, self.subscribers)
        self.on_pack(data)
        self._packed = transport.broadcast(data)
        self._packed_version = self.version
        if previous is None:
            self._deltas, self._first_version = [], self.version
        else:
            self._deltas = list(self._deltas_since(previous_version))
            self._first_version = previous_version
            previous.destroy()
        _log.info(
            "snapshot of version %d written: %d subscriptions, %d bytes",
            self.version,
            len(self.broker),
            len(data),
        )

    def close(self) -> None:
        """Destroy the packed broker on the executors, and close the one on the driver."""
        if self._packed is not None:
            self._packed.destroy()
            self._packed = None
        self.broker.close()


def pack_index(broker: Broker, subscribers: Mapping[str, str]) -> bytes:
    """Return the bytes of a broker and of the names of subscribers."""
    return pickle.dumps((broker.pack(), dict(subscribers)), pickle.HIGHEST_PROTOCOL)


def unpack_index(data: bytes) -> tuple[Broker, dict[str, str]]:
    """Return the broker and the names of subscribers from their bytes."""
    packed, subscribers = pickle.loads(data)
    return Broker.unpack(packed), subscribers


def update_subscribers(subscribers: dict[str, str], delta: SnapshotDelta) -> None:
    """Bring the names of subscribers from the version before a delta to its own."""
    for id in delta.removed:
        subscribers.pop(id, None)
    for id, name in delta.subscribers:
        if name:
            subscribers[id] = name
        else:
            subscribers.pop(id, None)
