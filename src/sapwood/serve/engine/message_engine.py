"""The engine: it evaluates commands in batches, each of which is one transaction of the log."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import select

from sapwood.errors import SapwoodError, StoreError
from sapwood.serve.engine.batch_builder import BatchBuilder
from sapwood.serve.engine.commit_thread import CommitThread
from sapwood.serve.engine.engine_settings import EngineSettings
from sapwood.serve.engine.frames import (
    Acknowledge,
    AddDeadLetter,
    Answer,
    ChangeStore,
    Command,
    Committed,
    ConfigureInbox,
    DeleteDeadLetters,
    DeleteInbox,
    EngineStatus,
    Event,
    Inspect,
    Publish,
    Started,
)
from sapwood.serve.engine.inspection import Inspection, read_memory
from sapwood.serve.engine.message_ids import MessageIds
from sapwood.serve.engine.subscription_changes import SubscriptionChanges
from sapwood.serve.log import log_schema, retention
from sapwood.serve.log.checkpoints import CheckpointThread
from sapwood.serve.log.inbox_table import NOBODY, FullPolicy, InboxTable
from sapwood.serve.log.log_database import open_log
from sapwood.serve.log.log_reader import read_inboxes, read_suspension_gaps
from sapwood.serve.log.log_writer import LogWriter
from sapwood.serve.mesh.mesh_frames import AdoptSubscription, MeshInput, MeshRequest, MeshStored
from sapwood.serve.mesh.node.local_work import SLICE
from sapwood.serve.mesh.node.subscription_adoption import deliver_missed
from sapwood.serve.tenants.tenant_engines import TenantEngines
from sapwood.store import SubscriptionStore
from sapwood.store.database import Database

if TYPE_CHECKING:
    from sapwood.serve.mesh.node.mesh_runtime import MeshRuntime

_log = logging.getLogger(__name__)
_POLL = 0.05
"""seconds between looks for changes of the store that another process made"""
_STATUS = 1.0
_RETENTION = 20.0
_SNAPSHOT = 10.0
"""seconds between snapshots at least"""
_SNAPSHOT_WAIT = 60.0
"""seconds that a snapshot waits for a moment when no message is deferred"""
_SNAPSHOT_SHARE = 0.05
"""of the time that snapshots may take"""
_STOP = 10.0
"""seconds to wait at the end for a log that cannot be written"""
KEPT_FAILURES = 1_000


class NotInMesh(SapwoodError):
    """Raised where a server is asked for what only a broker of a mesh can do."""


class InboxInUse(SapwoodError):
    """Raised for an inbox that cannot be deleted."""


class MessageEngine:
    """Evaluates messages and changes subscriptions, one batch of commands after the other.

        commands ─► BatchBuilder ─► LogBatch ─► CommitThread ─► the server: answers, deliveries
                     evaluates       rows         commits

    A change of a subscription waits until all before it is committed, and applies to all messages after it.
    """

    def __init__(
        self,
        settings: EngineSettings,
        send: Callable[[Event], None],
        post: Callable[[Command], None] = lambda command: None,
    ) -> None:
        """`send` tells the server of an event; `post` lets another thread give the engine a command."""
        self._settings = settings
        self._post = post
        self._send = send
        self._log = open_log(settings.log, checkpoints=False)
        self._checkpoints = CheckpointThread(self._log.file)
        SubscriptionStore(settings.store).close()  # which creates its tables
        self._store = Database(settings.store, create=False)
        self._writer = LogWriter(self._log)
        self._commits = CommitThread(self._writer, self._announce)
        self._inboxes = InboxTable(settings.inbox_limit, FullPolicy(settings.inbox_policy))
        self._engines = TenantEngines(settings, self._store, self._find_inbox)
        self._ids = MessageIds(self._log)
        self._changes = SubscriptionChanges(settings)
        self._mesh: MeshRuntime | None = None
        self._failures: deque[dict[str, Any]] = deque(maxlen=KEPT_FAILURES)
        self._inspection = Inspection(self._engines, self._failures)
        self._snapshot = Path(settings.snapshot)
        self._changed = False
        """whether a snapshot would differ from the last one"""
        self._created: set[int] = set()
        """inboxes that the log does not have yet"""
        now = time.monotonic()
        self._polled = self._reported = self._retained = self._saved = now
        self._save_seconds = 0.0
        self._busy = 0.0
        self._batch = self._seq = self._saved_seq = 0
        self._routed = self._stored = 0
        """the last `Store` of the node that was handed to the commit thread, and that is durable"""

    # -- start and end ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Restore the state of the log, and tell the server."""
        started = time.perf_counter()
        with self._log.reading() as connection:
            state = log_schema.state.c
            query = select(state.identity, state.batch, state.seq, state.inboxes)
            row = connection.execute(query).one()
            self._identity, self._batch, self._seq, self._inboxes.last_number = row
            self._inboxes.load(read_inboxes(connection))
            gaps = read_suspension_gaps(connection)
        for entries in self._writer.tail:
            known = entries[np.isin(entries["inbox"], list(self._inboxes.names))]  # others were deleted
            np.maximum.at(self._inboxes.last, known["inbox"], known["number"])
        self._inboxes.load_gaps(gaps)
        loaded = self._engines.load(self._snapshot, self._identity, self._seq)
        self._saved_seq = self._engines.seq
        if self._settings.mesh is not None:
            from sapwood.serve.mesh.node.mesh_runtime import MeshRuntime  # which takes libraries of the mesh

            self._mesh = MeshRuntime(
                self._settings.mesh, self._settings.log, self._engines, self._ids, self._send
            )
            replayed = self._recover(self._mesh)
        else:
            replayed = self._engines.recover(self._log)
        self._changed = not loaded or bool(replayed)
        self._commits.start()
        self._checkpoints.start()
        self._store_inboxes()
        seconds = time.perf_counter() - started
        _log.info(
            "the engine is ready after %.2f s: message %d, version %d, %d messages replayed for joins",
            seconds,
            self._seq,
            self._engines.version,
            replayed,
        )
        if self._mesh is not None:
            self._mesh.start()
            self._finish(self._begin())
            self._drain_local_work()
        rows = [self._inboxes.row(number) for number in self._inboxes.names]
        self._send(Started(self._seq, self._engines.version, rows, seconds))
        self._report()

    def _recover(self, mesh: MeshRuntime) -> int:
        """Bring joins to the state of the log, and evaluate what was deferred."""
        deferred = mesh.store.list_deferred()
        replayed = self._engines.recover(
            self._log,
            mesh.store.list_passed,
            mesh.store.list_partial,
            lambda: mesh.local_work.recover(deferred),
        )
        return replayed + len(deferred)

    def prepare_stop(self) -> None:
        """Bound the time that the end may take; another thread may call this while commands are handled."""
        self._commits.give_up_after(_STOP)

    def stop(self, save: bool) -> None:
        """Finish what was begun, and write a snapshot if wanted."""
        if save:  # or what is deferred is evaluated after the next start
            self._drain_local_work(time.monotonic() + _STOP)
        if not self._commits.stop(_STOP):
            _log.error("the engine ends although not all of its work is in the log")
        elif save and self._changed and not self._deferred:
            self._save()
        self._checkpoints.stop()
        if self._mesh is not None:
            self._mesh.close()
        self._engines.close()
        self._changes.close()
        self._store.close()
        self._log.close()

    # -- commands --------------------------------------------------------------------------------------

    def handle(self, commands: Sequence[Command]) -> None:
        """Handle commands in order, as few transactions as possible."""
        started = time.perf_counter()
        self._poll()
        builder = self._begin()
        for command in commands:
            if isinstance(command, Inspect):  # which waits for no commit
                self._send(Answer(command.request, self._inspect(command)))
            elif isinstance(command, MeshRequest):
                if command.operation == "positions" and self._deferred:
                    self._finish(builder)
                    self._drain_local_work()
                    builder = self._begin()
                self._request_mesh(command)
            elif isinstance(command, ChangeStore | DeleteInbox | AdoptSubscription):
                self._finish(builder)
                self._drain_local_work()
                self._commits.drain()
                self._send(Answer(command.request, self._run(command)))
                builder = self._begin()
            else:
                self._add(builder, command)
        self._finish(builder)
        self._guard_local_work()
        self._busy += time.perf_counter() - started

    def _begin(self) -> BatchBuilder:
        return BatchBuilder(self._engines, self._inboxes, self._ids, self._seq, self._mesh)

    def _add(self, builder: BatchBuilder, command: Command) -> None:
        if isinstance(command, Publish):
            builder.publish(command)
        elif isinstance(command, Acknowledge):
            builder.acknowledge(command)
        elif isinstance(command, AddDeadLetter):
            builder.add_dead_letter(command)
        elif isinstance(command, DeleteDeadLetters):
            builder.delete_dead_letters(command)
        elif isinstance(command, ConfigureInbox):
            builder.configure(command)
        elif isinstance(command, MeshInput) and self._mesh is not None:
            self._mesh.handle(command)
        elif isinstance(command, MeshStored) and self._mesh is not None:
            self._stored = command.number
            self._mesh.stored(command.number)

    def _finish(self, builder: BatchBuilder) -> None:
        """Hand a batch to the thread that commits it, if there is anything in it."""
        for number in self._created:
            builder.touch(number)
        self._created.clear()
        builder.finish_mesh()
        if builder.is_empty:
            return
        self._batch += 1
        batch, committed = builder.build(self._batch)
        self._seq = self._engines.seq = batch.seq
        self._failures.extend(builder.failures)
        if batch.messages and self._engines.have_joins:
            self._changed = True
        self._routed = committed.mesh_store or self._routed
        self._commits.put(batch, committed)

    def _inspect(self, command: Inspect) -> Any:
        """Return the answer to a question, or the error for the one who asked."""
        try:
            return self._inspection.run(command.tenant, command.what, command.arguments)
        except (SapwoodError, KeyError) as error:
            return error

    def _run(self, command: ChangeStore | DeleteInbox | AdoptSubscription) -> Any:
        """Do what is no part of a batch; returns the result, or the error for the one who asked."""
        try:
            if isinstance(command, DeleteInbox):
                return self._delete_inbox(command)
            if isinstance(command, AdoptSubscription):
                return self._adopt(command)
            result = self._changes.run(command.tenant, command.operation, command.arguments)
            self._follow_store()
            self._commits.drain()
            return result
        except (SapwoodError, KeyError) as error:
            return error

    def _delete_inbox(self, command: DeleteInbox) -> bool:
        number = self._inboxes.find(command.tenant, command.subscriber)
        if number is None:
            return False
        if self._engines.of(command.tenant).uses(number):
            raise InboxInUse(f"the subscriber {command.subscriber!r} has subscriptions: remove them first")
        self._batch += 1
        builder = self._begin()
        builder.delete_inbox(number)
        self._commits.put(*builder.build(self._batch))
        self._commits.drain()
        return True

    # -- the mesh --------------------------------------------------------------------------------------

    def _announce(self, event: Event) -> None:
        """Tell the server, and the node, that something is durable; called by the thread that commits."""
        self._send(event)
        if isinstance(event, Committed) and event.mesh_store:
            self._post(MeshStored(event.mesh_store))

    def _request_mesh(self, command: MeshRequest) -> None:
        """Do what the server wants of the node."""
        if self._mesh is None:
            self._send(Answer(command.request, NotInMesh("this server is no broker of a mesh")))
            return
        try:
            result = self._mesh.operations.run(command)
        except (SapwoodError, KeyError) as error:
            result = error
        self._send(Answer(command.request, result))

    def _adopt(self, command: AdoptSubscription) -> tuple[Any, int]:
        """Let a subscription go on here: first what its former host has not handled, then what comes."""
        tenant, id = command.tenant, command.id
        found = self._changes.find(tenant, id)
        if found is None:
            raise KeyError(id)
        inbox = self._find_inbox(tenant, command.subscriber) if command.subscriber else NOBODY
        builder, delivered = self._begin(), self._writer.find_delivered(found.place)
        engine = self._engines.make(tenant)
        engine.put(found.place, found.query, inbox, found.streams)
        count = deliver_missed(self._log, builder, engine, command, found.since, delivered)
        self._finish(builder)
        self._commits.drain()
        changed = self._changes.run(tenant, "patch", {"id": id, "fields": {"subscriber": command.subscriber}})
        self._follow_store()
        self._commits.drain()
        return changed, count

    # -- local work ------------------------------------------------------------------------------------

    @property
    def _deferred(self) -> int:
        """How many messages local subscriptions have still to see."""
        return len(self._mesh.local_work) if self._mesh is not None else 0

    @property
    def has_local_work(self) -> bool:
        """Whether messages are deferred, and none waits for its commit to be forwarded."""
        return bool(self._deferred) and self._stored >= self._routed

    def _work_locally(self, seconds: float | None = SLICE) -> None:
        """Evaluate deferred messages, in a transaction of their own."""
        assert self._mesh is not None
        builder = self._begin()
        self._mesh.local_work.run(seconds)
        self._changed = self._changed or self._engines.have_joins
        self._finish(builder)

    def _drain_local_work(self, deadline: float | None = None) -> None:
        """Evaluate all deferred messages, until a time if there is one."""
        while self._deferred and (deadline is None or time.monotonic() < deadline):
            self._work_locally(None if deadline is None else SLICE)

    def _guard_local_work(self) -> None:
        """Let local work go on although there is always something to route."""
        if self._mesh is None:
            return
        if self._mesh.barriers:
            self._drain_local_work()
        elif self._mesh.local_work.is_overdue:
            self._work_locally()
        while self._mesh.local_work.is_full:
            self._work_locally()

    # -- the store -------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Apply what other processes have changed in the store."""
        now = time.monotonic()
        if now - self._polled >= _POLL:
            self._polled = now
            try:
                self._follow_store()
            except StoreError as error:
                _log.error("the store cannot be read, so changes have to wait: %s", error)

    def _follow_store(self) -> None:
        newest: int | None = None
        if self._deferred:  # and to be evaluated with the version that they were stored with
            newest = self._engines.read_newest()
            if newest > self._engines.version:
                self._drain_local_work()
        if self._engines.follow_store(newest):
            self._changed = True
            if self._mesh is not None:
                self._mesh.follow_store()
            self._store_inboxes()

    def _find_inbox(self, tenant: str, subscriber: str) -> int:
        """Return the number of a subscriber's inbox, which is created if it is absent."""
        found = self._inboxes.find(tenant, subscriber)
        if found is None:
            found = self._inboxes.create(tenant, subscriber)
            self._created.add(found)
        return found

    def _store_inboxes(self) -> None:
        if self._created or self._mesh is not None:
            self._finish(self._begin())

    # -- work of its own -------------------------------------------------------------------------------

    def idle(self) -> None:
        """Do what is due: follow the store, delete old messages, write a snapshot, report."""
        self._poll()
        if self._mesh is not None and self._mesh.tick():
            self._finish(self._begin())
        if self.has_local_work:
            self._work_locally()
        now = time.monotonic()
        if now - self._reported >= _STATUS:
            self._report()
        if now - self._retained >= _RETENTION:
            self._retained = now
            try:
                self._retain()
            except StoreError as error:
                _log.error("messages that are not kept any longer cannot be deleted: %s", error)
        if self._changed and now - self._saved >= max(_SNAPSHOT, self._save_seconds / _SNAPSHOT_SHARE):
            if self._deferred and now - self._saved < _SNAPSHOT_WAIT:
                return
            self._drain_local_work()
            self._commits.drain()
            self._save()

    def _save(self) -> None:
        started = time.monotonic()
        try:
            self._engines.save(self._snapshot, self._identity)
            self._changed = False
            self._saved_seq = self._engines.seq
        except OSError as error:
            _log.error("the snapshot cannot be written: %s", error)
        self._saved = time.monotonic()
        self._save_seconds = self._saved - started

    def _retain(self) -> None:
        """Delete some messages that are not kept any longer, and record what subscribers miss by it."""
        if self._commits.problem is not None:
            return
        self._commits.drain()  # since the log, and its tail, have to have all that is not read
        kept = self._settings.retention
        builder = self._begin()
        unread = self._writer.find_unread(self._inboxes)
        with self._log.reading() as connection:
            aged, done = retention.bounds(connection, kept, self._seq)
            for number in retention.list_behind(connection, aged):
                floor = self._inboxes.floor(number)
                builder.expire(number, retention.find_last_before(connection, number, floor, aged))
            first = retention.find_needed(connection)
            needed = done if first is None else min(done, max(first, aged))
            if len(unread):
                for number, upto in retention.find_aged(unread, aged):
                    builder.expire(number, upto)
                needed = min(needed, max(int(unread["seq"].min()), aged))
            bound = max(aged, needed)
            if self._engines.have_joins:  # which see what came after the snapshot again, after a crash
                bound = min(bound, self._saved_seq + 1)
            if self._mesh is not None:  # whose neighbours may need what is not settled
                unsettled = self._mesh.find_needed()
                bound = min(bound, max(unsettled, aged)) if unsettled is not None else bound
            step = retention.next_step(connection, bound)
        if not step and builder.is_empty:
            return
        self._batch += 1
        builder.finish_mesh()
        batch, committed = builder.build(self._batch)
        if self._mesh is not None:
            batch.mesh = self._mesh.expire(batch.mesh, step)
        batch.expired, batch.ids_before = step, time.time() - kept.ids
        self._commits.put(batch, committed)
        if step and step < bound - 1:
            self._retained = 0.0  # there is more

    def _report(self) -> None:
        self._reported = time.monotonic()
        status = EngineStatus(
            version=self._engines.version,
            seq=self._seq,
            memory=read_memory(),
            subscriptions=self._inspection.count_subscriptions(),
            join_messages=self._inspection.count_join_messages(),
            tail_entries=self._writer.tail_entries,
            problem=self._commits.problem,
            counters={"busy": self._busy},
        )
        self._send(status)
