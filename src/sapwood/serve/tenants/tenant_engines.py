"""The engines of all tenants, at one version of the store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, func, select

from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.engine.limits import Limits
from sapwood.engine.serialization import PackError
from sapwood.lang.languages import XSCL
from sapwood.serve.engine.engine_settings import EngineSettings
from sapwood.serve.log import log_schema
from sapwood.serve.log.inbox_table import NOBODY
from sapwood.serve.tenants.evaluation import Publication
from sapwood.serve.tenants.snapshot_file import Snapshot, read_snapshot, write_snapshot
from sapwood.serve.tenants.tenant_engine import TenantEngine
from sapwood.store import history, store_schema
from sapwood.store.database import Database
from sapwood.store.tenant_changes import (
    TenantChange,
    find_join_versions,
    iter_tenant_changes,
    read_all_namespaces,
)

_log = logging.getLogger(__name__)
FindInbox = Callable[[str, str], int]


class ChangeObserver(Protocol):
    """Gets the changes of subscriptions."""

    def apply(self, change: TenantChange, namespaces: Mapping[str, str]) -> None:
        """A subscription begins with a new state, or ends."""


class TenantEngines:
    """By tenant, the engine of its subscriptions.

    `version` is that of the store which all of them have, and `seq` the last message that their joins saw.
    """

    def __init__(self, settings: EngineSettings, store: Database, find_inbox: FindInbox) -> None:
        self._settings = settings
        self._store = store
        self._find_inbox = find_inbox
        self._engines: dict[str, TenantEngine] = {}
        self.version = -1
        self.seq = 0
        self._observer: ChangeObserver | None = None

    def observe(self, observer: ChangeObserver) -> None:
        """Tell an observer of all active subscriptions, and from now on of all changes before they apply."""
        self._observer = observer
        with self._store.reading() as connection:
            for change in iter_tenant_changes(connection, -1, self.version):
                observer.apply(change, self.of(change.tenant).namespaces)

    def __iter__(self) -> Iterator[tuple[str, TenantEngine]]:
        return iter(self._engines.items())

    def of(self, tenant: str) -> TenantEngine:
        """Return the engine of a tenant, which may have no subscriptions yet."""
        found = self._engines.get(tenant)
        if found is None:
            found = self._engines[tenant] = self._make()
        return found

    def make(self, tenant: str) -> TenantEngine:
        """Return an engine without subscriptions that knows a tenant's prefixes; the caller closes it."""
        engine = self._make()
        engine.declare(self.of(tenant).namespaces)
        return engine

    def _make(self) -> TenantEngine:
        settings = self._settings
        return TenantEngine(
            settings.limits, settings.time_paths, settings.lateness, settings.separate_results
        )

    @property
    def limits(self) -> Limits:
        """The limits of messages."""
        return self._settings.limits

    @property
    def _key(self) -> tuple[object, ...]:
        """The settings that are part of packed engines."""
        return self._settings.limits, self._settings.lateness

    @property
    def have_joins(self) -> bool:
        """Whether messages change the state of any engine."""
        return any(engine.broker.joins for engine in self._engines.values())

    # -- the store -------------------------------------------------------------------------------------

    def read_newest(self) -> int:
        """Return the newest version of the store."""
        with self._store.reading() as connection:
            return history.read_state(connection).version

    def follow_store(self, until: int | None = None) -> bool:
        """Apply what the store has changed, up to a version; return whether anything has.

        A join that ended meanwhile, and began again, has forgotten its messages, whether its changes are
        seen one by one or, after a crash, all at once: each version that changes joins is a step.
        """
        with self._store.reading() as connection:
            newest = history.read_state(connection).version
            if until is not None:
                newest = min(newest, until)
            if newest <= self.version:
                return False
            for tenant, namespaces in read_all_namespaces(connection).items():
                self.of(tenant).declare(namespaces)
            if self.version >= 0:  # before, no join has seen a message
                for version in find_join_versions(connection, self.version, newest):
                    self._apply_changes(connection, version)
            self._apply_changes(connection, newest)
        return True

    def _apply_changes(self, connection: Connection, version: int) -> None:
        with pause_garbage_collection():
            self._apply_each(connection, version)
        self.version = version

    def _apply_each(self, connection: Connection, version: int) -> None:
        for change in iter_tenant_changes(connection, self.version, version):
            new = change.subscription
            if self._observer is not None:
                self._observer.apply(change, self.of(change.tenant).namespaces)
            if new is None:
                self.of(change.tenant).remove(change.place)
            else:
                inbox = self._find_inbox(change.tenant, new.subscriber) if new.subscriber else NOBODY
                self.of(change.tenant).put(new.place, new.query, inbox, new.streams)

    def _may_follow(self, version: int) -> bool:
        """Return whether the store can tell what has changed since a version."""
        with self._store.reading() as connection:
            state = history.read_state(connection)
        return state.oldest <= version <= state.version

    # -- snapshots -------------------------------------------------------------------------------------

    def save(self, path: Path, identity: str) -> None:
        """Write a snapshot of all engines."""
        started = time.perf_counter()
        tenants = {tenant: engine.pack() for tenant, engine in self._engines.items()}
        size = write_snapshot(path, Snapshot(identity, self._key, self.seq, self.version, tenants))
        _log.info(
            "wrote a snapshot of %d bytes after message %d in %.2f s",
            size,
            self.seq,
            time.perf_counter() - started,
        )

    def load(self, path: Path, identity: str, last: int) -> bool:
        """Restore the engines from a snapshot; return False, with none, if there is none that can be used.

        `last` is the last message of the log.
        """
        snapshot = read_snapshot(path, identity)
        if snapshot is None:
            return False
        if snapshot.seq > last:
            _log.warning("the snapshot %s is ahead of the log, which was restored: it is deleted", path)
            path.unlink(missing_ok=True)  # or it would seem to fit when the log has as many messages again
            return False
        if snapshot.settings != self._key:
            _log.warning(
                "limits have changed: the snapshot %s is not used, and joins see what the log keeps", path
            )
            return False
        if not self._may_follow(snapshot.version):
            _log.warning("the snapshot %s does not fit the store, so subscriptions are compiled anew", path)
            return False
        try:
            self._engines = {
                tenant: TenantEngine.unpack(
                    packed, self._settings.time_paths, self._settings.separate_results
                )
                for tenant, packed in snapshot.tenants.items()
            }
        except PackError as error:
            _log.warning("the snapshot %s cannot be used: %s", path, error)
            return False
        self.version, self.seq = snapshot.version, snapshot.seq
        return True

    def recover(
        self,
        log: Database,
        passed: Callable[[int], Container[int]] = lambda seq: (),
        partial: Callable[[int], Container[int]] = lambda seq: (),
        evaluate_deferred: Callable[[], None] = lambda: None,
    ) -> int:
        """Bring the engines to the state of the log and the store: joins see what came after the snapshot.

        Each message is given to joins with the subscriptions that it was evaluated with. Returns how many
        there were. `passed` returns the messages after a sequence number that no subscription has seen, and
        `partial` those of which parts were cut, so that joins have seen only their time;
        `evaluate_deferred` evaluates those that are still to be seen, before the newest version applies.
        """
        replayed = 0
        messages = log_schema.messages.c
        with log.reading() as connection:
            last = connection.execute(select(log_schema.state.c.seq)).scalar_one()
        if self._ever_joined():
            query = select(
                messages.seq,
                messages.tenant,
                messages.stream,
                messages.id,
                messages.time,
                messages.has_time,
                messages.version,
                messages.body,
            )
            query = query.where(messages.seq > self.seq).order_by(messages.seq)
            unseen, cut = passed(self.seq), partial(self.seq)
            with (
                log.reading() as connection,
                connection.execute(query, execution_options={"stream_results": True}) as rows,
            ):
                for seq, tenant, stream, id, moment, has_time, version, body in rows:
                    if version > self.version:
                        self.follow_store(version)
                    if seq in unseen:
                        continue
                    message = Publication(tenant, stream, id, body, moment if has_time else None)
                    if seq in cut:
                        self.of(tenant).observe_time(message.time)
                    else:
                        self.of(tenant).replay(message)
                    self.seq = seq
                    replayed += 1
        evaluate_deferred()
        self.follow_store()
        self.seq = last
        return replayed

    def _ever_joined(self) -> bool:
        """Return whether there are joins, or were since the snapshot."""
        if self.have_joins:
            return True
        with self._store.reading() as connection:
            return _count_joins(connection) > 0

    def close(self) -> None:
        """Release the processes that evaluate queries with lxml."""
        for engine in self._engines.values():
            engine.close()


def _count_joins(connection: Connection) -> int:
    rows = store_schema.history
    query = select(func.count()).select_from(rows).where(rows.c.language == XSCL)
    return connection.scalar(query) or 0
