"""Reading the log: the entries of an inbox, and the messages and outputs that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from threading import Lock
from typing import NamedTuple, TypeVar

import numpy as np
from sqlalchemy import Connection, RowMapping, select, tuple_

from sapwood.serve.log import log_schema
from sapwood.serve.log.entries import Entries, InboxEntry, decode_batch, entries_of, read_segment
from sapwood.serve.log.log_batch import Gap, InboxRow
from sapwood.store.database import Database

_AT_ONCE = 500
T = TypeVar("T")


class MessageRow(NamedTuple):
    """A message as it is delivered."""

    seq: int
    tenant: str
    stream: str
    id: str
    time: float
    has_time: bool
    received: float
    version: int
    deliveries: int
    body: bytes


class OutputRow(NamedTuple):
    """What is delivered instead of a message."""

    message: str
    body: bytes


_MESSAGE_COLUMNS = tuple(log_schema.messages.c[name] for name in MessageRow._fields)


class LogReader:
    """Reads what the writer, another process, has committed; may be used by several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tail: dict[int, Entries] = {}
        self._lock = Lock()

    def read_entries(self, inbox: int, after: int, limit: int) -> list[InboxEntry]:
        """Return up to `limit` entries of an inbox with numbers above `after`, in order."""
        found: list[InboxEntry] = []
        with self._database.reading() as connection:
            for first, stored in _iter_segments(connection, inbox, after):
                found += read_segment(first, stored, after)
                if len(found) >= limit:
                    return found[:limit]
            batches = self._read_tail(connection)
        for entries in batches:  # which may be in segments already
            found += entries_of(entries, inbox, found[-1].number if found else after)
            if len(found) >= limit:
                break
        return found[:limit]

    def _read_tail(self, connection: Connection) -> list[Entries]:
        """Return the tail by batch; what was read before is not read again."""
        columns = log_schema.tail.c
        present = list(connection.scalars(select(columns.batch).order_by(columns.batch)))
        with self._lock:
            missing = [batch for batch in present if batch not in self._tail]
            query = select(columns.batch, columns.entries)
            for some in _chunks(missing):
                for batch, entries in connection.execute(query.where(columns.batch.in_(some))):
                    self._tail[batch] = decode_batch(entries)
            found = [self._tail[batch] for batch in present]
            oldest = present[0] if present else np.inf
            for batch in [batch for batch in self._tail if batch < oldest]:
                del self._tail[batch]
        return found

    def read_messages(self, seqs: Iterable[int]) -> dict[int, MessageRow]:
        """Return messages by their sequence numbers; those that are not kept any longer are missing."""
        query = select(*_MESSAGE_COLUMNS)
        with self._database.reading() as connection:
            return {
                row[0]: MessageRow(*row)
                for some in _chunks(seqs)
                for row in connection.execute(query.where(log_schema.messages.c.seq.in_(some)))
            }

    def read_outputs(self, keys: Iterable[tuple[int, int]]) -> dict[tuple[int, int], OutputRow]:
        """Return outputs by the sequence number of the message and their own number."""
        columns = log_schema.outputs.c
        query = select(columns.seq, columns.number, columns.message, columns.body)
        with self._database.reading() as connection:
            return {
                (row[0], row[1]): OutputRow(row[2], row[3])
                for some in _chunks(keys)
                for row in connection.execute(query.where(tuple_(columns.seq, columns.number).in_(some)))
            }

    def read_rows(self, query: object) -> Sequence[RowMapping]:
        """Return the rows of a query by column names."""
        with self._database.reading() as connection:
            return connection.execute(query).mappings().all()  # type: ignore[call-overload,no-any-return]


def read_inboxes(connection: Connection) -> list[InboxRow]:
    """Return all inboxes."""
    columns = [log_schema.inboxes.c[name] for name in InboxRow._fields]
    return [InboxRow(*row) for row in connection.execute(select(*columns))]


def read_suspension_gaps(connection: Connection) -> list[Gap]:
    """Return what suspended subscribers have missed."""
    columns = [log_schema.gaps.c[field.name] for field in fields(Gap)]
    suspended = log_schema.gaps.c.reason == "suspended"
    return [Gap(*row) for row in connection.execute(select(*columns).where(suspended))]


def _iter_segments(connection: Connection, inbox: int, after: int) -> Iterator[tuple[int, bytes]]:
    columns = log_schema.segments.c
    query = select(columns.first, columns.entries).where(columns.inbox == inbox, columns.last > after)
    with connection.execute(
        query.order_by(columns.first), execution_options={"stream_results": True}
    ) as rows:
        yield from map(tuple, rows)


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(values)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
