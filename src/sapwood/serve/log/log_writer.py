"""Writing the log: batches of changes, and the segments that the tail becomes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from sqlalchemy import Connection, Table, bindparam, delete, select, update

from sapwood.serve.log import log_schema
from sapwood.serve.log.entries import ENTRY, Entries, to_segments
from sapwood.serve.log.log_batch import LogBatch
from sapwood.serve.log.log_database import insert_all, insert_missing, upsert
from sapwood.serve.log.retention import delete_messages
from sapwood.store.database import Database

_log = logging.getLogger(__name__)
TAIL_BATCHES = 1_024
"""transactions after which the tail becomes segments"""
TAIL_ENTRIES = 200_000
"""entries after which it does"""
KEPT_REJECTS = 1_000
"""refused messages that are kept for each tenant"""


class LogWriter:
    """The only writer of a log's messages, entries and inboxes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.reading() as connection:
            stored = list(connection.execute(select(log_schema.tail).order_by(log_schema.tail.c.batch)))
        self._tail: list[Entries] = [np.frombuffer(entries, ENTRY) for _, entries in stored]

    @property
    def tail(self) -> list[Entries]:
        """The entries that are not in segments yet, by batch."""
        return self._tail

    def commit(self, batch: LogBatch) -> None:
        """Store a batch; one that is there, because the answer to its commit was lost, stays."""
        state = log_schema.state
        with self._database.writing() as connection:
            if connection.scalar(select(state.c.batch)) == batch.number:
                _log.info("batch %d was committed before", batch.number)
            else:
                self._store(connection, batch)
                connection.execute(update(state).values(batch=batch.number, seq=batch.seq))
        if len(batch.entries):
            self._tail.append(batch.entries)

    def _store(self, connection: Connection, batch: LogBatch) -> None:
        insert_all(connection, log_schema.messages, batch.messages)
        insert_all(connection, log_schema.message_ids, batch.ids)
        insert_all(connection, log_schema.outputs, batch.outputs)
        if len(batch.entries):
            row = {"batch": batch.number, "entries": batch.entries.tobytes()}
            insert_all(connection, log_schema.tail, [row])
        upsert(connection, log_schema.inboxes, [row._asdict() for row in batch.inboxes.values()])
        upsert(connection, log_schema.gaps, [_gap_row(gap) for gap in batch.gaps])
        insert_missing(connection, log_schema.dead_letters, batch.dead_letters)
        if batch.deleted_dead_letters:
            numbers = log_schema.dead_letters.c.number
            connection.execute(delete(log_schema.dead_letters).where(numbers.in_(batch.deleted_dead_letters)))
        for number in batch.deleted_inboxes:
            _delete_inbox(connection, number)
        if batch.expired:
            delete_messages(connection, batch.expired, batch.ids_before)
        if batch.rejects:
            insert_all(connection, log_schema.rejects, batch.rejects)
            _limit_rejects(connection, {str(row["tenant"]) for row in batch.rejects})

    # -- segments --------------------------------------------------------------------------------------

    @property
    def is_tail_long(self) -> bool:
        """Whether the tail should become segments."""
        return len(self._tail) >= TAIL_BATCHES or sum(map(len, self._tail)) >= TAIL_ENTRIES

    def compact(self) -> None:
        """Turn the tail into segments."""
        segments = list(to_segments(self._tail))
        if not segments:
            return
        rows = [segment._asdict() for segment in segments]
        ends: list[dict[str, Any]] = [{"inbox": each.inbox, "end": each.last} for each in segments]
        inboxes = log_schema.inboxes
        advance = update(inboxes).where(inboxes.c.number == bindparam("inbox")).values(last=bindparam("end"))
        with self._database.writing() as connection:
            insert_all(connection, log_schema.segments, rows)
            connection.execute(advance, ends)
            connection.execute(delete(log_schema.tail))
        _log.debug("turned %d batches of the tail into %d segments", len(self._tail), len(segments))
        self._tail.clear()


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
