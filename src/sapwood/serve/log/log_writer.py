"""Writing the log: batches of changes, and the segments that the tail becomes."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Any

import numpy as np
from sqlalchemy import Connection, Table, bindparam, delete, select, update

from sapwood.errors import SapwoodError
from sapwood.serve.log import log_schema
from sapwood.serve.log.entries import NO_ENTRIES, Entries, Segment, decode_batch, encode_batch, to_segments
from sapwood.serve.log.inbox_table import InboxTable
from sapwood.serve.log.log_batch import EvaluatedMessage, LogBatch
from sapwood.serve.log.log_database import insert_all, insert_missing, upsert
from sapwood.serve.log.retention import delete_messages
from sapwood.store.database import Database

_log = logging.getLogger(__name__)
TAIL_BATCHES = 1_024
"""transactions after which the tail becomes segments"""
TAIL_ENTRIES = 200_000
"""entries after which it does"""
_LONGEST_TAIL = 10 * TAIL_ENTRIES
"""entries at which commits wait until segments are prepared"""
_PART_BYTES, _ROW_BYTES = 300_000, 500
"""of a transaction that writes segments, at least, and what a row costs beside its entries: milliseconds"""
_ENTRY_BYTES = 16
"""of segments for an entry that the tail gets: about twice what it takes there"""
KEPT_REJECTS = 1_000
"""refused messages that are kept for each tenant"""


class LogTaken(SapwoodError):
    """Raised if another engine has begun to write the log."""


class LogWriter:
    """The only writer of a log's messages, entries and inboxes."""

    def __init__(self, database: Database) -> None:
        """Take over the log: what a former writer has not committed is refused from now on.

        PostgreSQL may still commit the last transaction of a process that is gone; this waits for it.
        """
        self._database = database
        self._name = uuid.uuid4().hex
        with database.writing() as connection:
            connection.execute(update(log_schema.state).values(writer=self._name))
            stored = list(connection.execute(select(log_schema.tail).order_by(log_schema.tail.c.batch)))
        self._tail: dict[int, Entries] = {batch: decode_batch(entries) for batch, entries in stored}
        self._tail_entries = sum(map(len, self._tail.values()))
        self._compaction: _Compaction | None = None

    @property
    def tail(self) -> list[Entries]:
        """The entries that are not in segments yet, by batch."""
        return list(self._tail.values())

    @property
    def tail_entries(self) -> int:
        """The number of entries in the tail."""
        return self._tail_entries

    def commit(self, batch: LogBatch) -> None:
        """Store a batch; one that is there, because the answer to its commit was lost, stays."""
        state = log_schema.state
        with self._database.writing() as connection:
            if self._lock_state(connection) == batch.number:
                _log.info("batch %d was committed before", batch.number)
            else:
                self._store(connection, batch)
                connection.execute(
                    update(state).values(batch=batch.number, seq=batch.seq, inboxes=batch.last_inbox)
                )
        if len(batch.entries):
            self._tail[batch.number] = batch.entries
            self._tail_entries += len(batch.entries)

    def _lock_state(self, connection: Connection) -> int:
        """Return the number of the last batch; raises LogTaken if this is not the writer any more."""
        state = log_schema.state
        mine = select(state.c.batch).where(state.c.writer == self._name).with_for_update()
        found: int | None = connection.scalar(mine)
        if found is None:
            raise LogTaken("another server has begun to write the log, so this one must not")
        return found

    def _store(self, connection: Connection, batch: LogBatch) -> None:
        insert_all(connection, log_schema.messages, batch.messages)
        insert_all(connection, log_schema.message_ids, batch.ids)
        _store_evaluated(connection, batch.evaluated)
        insert_all(connection, log_schema.outputs, batch.outputs)
        if len(batch.entries):
            row = {"batch": batch.number, "entries": encode_batch(batch.entries)}
            insert_all(connection, log_schema.tail, [row])
        upsert(connection, log_schema.inboxes, [row._asdict() for row in batch.inboxes.values()])
        upsert(connection, log_schema.gaps, [_gap_row(gap) for gap in batch.gaps])
        insert_missing(connection, log_schema.dead_letters, batch.dead_letters)
        if batch.deleted_dead_letters:
            numbers = log_schema.dead_letters.c.number
            connection.execute(delete(log_schema.dead_letters).where(numbers.in_(batch.deleted_dead_letters)))
        for number in batch.deleted_inboxes:
            _delete_inbox(connection, number)
        if batch.mesh is not None:
            batch.mesh.write(connection)
        if batch.expired:
            delete_messages(connection, batch.expired, batch.ids_before)
        if batch.rejects:
            insert_all(connection, log_schema.rejects, batch.rejects)
            _limit_rejects(connection, {str(row["tenant"]) for row in batch.rejects})

    # -- segments --------------------------------------------------------------------------------------

    def find_unread(self, inboxes: InboxTable) -> Entries:
        """Return the entries of the tail that are neither acknowledged nor dropped."""
        tail = self.tail
        if not tail:
            return NO_ENTRIES
        entries = np.concatenate(tail)
        known = np.zeros(max(len(inboxes.last), int(entries["inbox"].max()) + 1), np.bool_)
        known[list(inboxes.names)] = True
        entries = entries[known[entries["inbox"]]]
        floors = np.maximum(inboxes.acknowledged, inboxes.dropped)
        unread: Entries = entries[entries["number"] > floors[entries["inbox"]]]
        return unread

    def find_delivered(self, place: int) -> set[int]:
        """Return the messages that a subscription has got, of those whose entries are in the tail."""
        return {seq for entries in self.tail for seq in entries["seq"][entries["place"] == place].tolist()}

    def compact(self, entries: int = 0) -> None:
        """Do a part of turning the tail into segments, if it is long: nobody should wait for all of it.

        The part is in proportion to the entries that the tail has just got: it must not grow for ever.
        """
        if self._compaction is None:
            if len(self._tail) >= TAIL_BATCHES or self._tail_entries >= TAIL_ENTRIES:
                self._compaction = _Compaction(self._tail)
            return
        compaction = self._compaction
        if not compaction.is_ready(wait=self._tail_entries > _LONGEST_TAIL):
            return
        part = compaction.choose(max(_PART_BYTES, entries * _ENTRY_BYTES))
        with self._database.writing() as connection:
            self._lock_state(connection)
            compaction.store(connection, part)
        compaction.advance(part)
        if compaction.is_done:
            for batch in [batch for batch in self._tail if batch <= compaction.last_batch]:
                self._tail_entries -= len(self._tail.pop(batch))
            self._compaction = None


class _Compaction:
    """The batches of a tail on their way into segments, which a thread prepares while commits go on.

    Segments are written in several transactions, and their batches are deleted from the tail with the last:
    in between, and after a crash, entries may be in both.
    """

    def __init__(self, tail: Mapping[int, Entries]) -> None:
        self.last_batch = max(tail)
        self._batches = list(tail.values())
        self._segments: list[Segment] = []
        self._position = 0
        self._thread = Thread(target=self._prepare, name="compaction", daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        self._segments = list(to_segments(self._batches))

    def is_ready(self, wait: bool) -> bool:
        """Return whether the segments are prepared; if wanted, wait for it."""
        if wait:
            self._thread.join()
        return not self._thread.is_alive()

    @property
    def is_done(self) -> bool:
        """Whether all segments are stored."""
        return self._position == len(self._segments)

    def choose(self, most: int) -> Sequence[Segment]:
        """Return the next segments, of about so many bytes."""
        size, end = 0, self._position
        while end < len(self._segments) and size < most:
            size += len(self._segments[end].entries) + _ROW_BYTES
            end += 1
        return self._segments[self._position : end]

    def store(self, connection: Connection, part: Sequence[Segment]) -> None:
        """Write segments, and delete what they are made of with the last ones."""
        upsert(connection, log_schema.segments, [segment._asdict() for segment in part])
        inboxes = log_schema.inboxes
        mine = inboxes.c.number == bindparam("inbox")
        ends: list[dict[str, Any]] = [{"inbox": each.inbox, "end": each.last} for each in part]
        connection.execute(update(inboxes).where(mine).values(last=bindparam("end")), ends)
        if self._position + len(part) == len(self._segments):
            connection.execute(delete(log_schema.tail).where(log_schema.tail.c.batch <= self.last_batch))

    def advance(self, part: Sequence[Segment]) -> None:
        """Go on after segments that are stored."""
        self._position += len(part)


def _store_evaluated(connection: Connection, evaluated: Sequence[EvaluatedMessage]) -> None:
    """Store what is known of messages since they were evaluated, after they were stored."""
    messages, ids = log_schema.messages, log_schema.message_ids
    counted = [each._asdict() for each in evaluated if each.deliveries]
    if counted:
        named = ids.c.tenant == bindparam("tenant_"), ids.c.stream == bindparam("stream_")
        rows = [{f"{name}_": value for name, value in row.items()} for row in counted]
        count: dict[str, Any] = {"deliveries": bindparam("deliveries_")}
        connection.execute(update(messages).where(messages.c.seq == bindparam("seq_")).values(count), rows)
        connection.execute(update(ids).where(*named, ids.c.id == bindparam("id_")).values(count), rows)
    timed = [{"seq_": each.seq, "time_": each.time} for each in evaluated if each.time is not None]
    if timed:
        mine = messages.c.seq == bindparam("seq_")
        connection.execute(update(messages).where(mine).values(time=bindparam("time_"), has_time=True), timed)


def _gap_row(gap: Any) -> dict[str, object]:
    return {name: getattr(gap, name) for name in ("inbox", "after", "reason", "count", "since", "until")}


def _delete_inbox(connection: Connection, number: int) -> None:
    tables: tuple[tuple[Table, str], ...] = (
        (log_schema.inboxes, "number"),
        (log_schema.segments, "inbox"),
        (log_schema.gaps, "inbox"),
        (log_schema.dead_letters, "inbox"),
    )
    for table, column in tables:
        connection.execute(delete(table).where(table.c[column] == number))


def _limit_rejects(connection: Connection, tenants: set[str]) -> None:
    rejects = log_schema.rejects
    for tenant in tenants:
        newest = select(rejects.c.number).where(rejects.c.tenant == tenant).order_by(rejects.c.number.desc())
        oldest = connection.scalar(newest.offset(KEPT_REJECTS).limit(1))
        if oldest is not None:
            connection.execute(delete(rejects).where(rejects.c.tenant == tenant, rejects.c.number <= oldest))
