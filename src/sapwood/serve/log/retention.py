"""Which messages of the log are not kept any longer."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, and_, delete, func, select, update

from sapwood.serve.log import log_schema
from sapwood.serve.log.entries import Entries, read_segment_seqs

_STEP = 2_000
"""messages that one transaction deletes, so that none is long"""


_segments, _inboxes = log_schema.segments.c, log_schema.inboxes.c
_unread = and_(
    _segments.inbox == _inboxes.number,
    _segments.last > _inboxes.acknowledged,
    _segments.last > _inboxes.dropped,
)


@dataclass(frozen=True, slots=True)
class Retention:
    """How many seconds messages are kept: those that somebody waits for, those that nobody does, and ids."""

    unacknowledged: float = 7 * 86_400.0
    acknowledged: float = 3_600.0
    ids: float = 30 * 86_400.0


def find_age_bound(connection: Connection, before: float) -> int | None:
    """Return the first message that was received at a time or later; None if all were before."""
    messages = log_schema.messages.c
    query = select(messages.seq).where(messages.received >= before).order_by(messages.seq).limit(1)
    found: int | None = connection.scalar(query)
    return found


def find_needed(connection: Connection) -> int | None:
    """Return a message before which nobody waits for any in a segment; None if nobody waits for one there."""
    found: int | None = connection.scalar(select(func.min(_segments.first_seq)).where(_unread))
    return found


def list_behind(connection: Connection, seq: int) -> list[int]:
    """Return the inboxes in whose segments somebody may wait for messages before `seq`."""
    query = select(_segments.inbox).where(_unread, _segments.first_seq < seq).distinct()
    return list(connection.scalars(query))


def find_last_before(connection: Connection, inbox: int, floor: int, seq: int) -> int:
    """Return the last entry of an inbox, after `floor`, whose message is before `seq`; `floor` if none is."""
    columns = log_schema.segments.c
    query = select(columns.first, columns.entries).where(columns.inbox == inbox, columns.last > floor)
    for first, stored in connection.execute(query.order_by(columns.first)):
        seqs = read_segment_seqs(stored)
        older = int(np.searchsorted(seqs, seq))
        if older:
            floor = max(floor, first + older - 1)
        if older < len(seqs):
            break
    return floor


def find_aged(unread: Entries, seq: int) -> list[tuple[int, int]]:
    """Return, by inbox, the last of some entries of the tail whose messages are before `seq`."""
    last: dict[int, int] = {}
    aged = unread[unread["seq"] < seq]
    for inbox, number in zip(aged["inbox"].tolist(), aged["number"].tolist(), strict=True):
        last[inbox] = max(number, last.get(inbox, 0))
    return list(last.items())


def next_step(connection: Connection, bound: int) -> int:
    """Return the last message that the next transaction deletes, of those before `bound`; 0 if none."""
    messages = log_schema.messages.c
    oldest = connection.scalar(select(messages.seq).order_by(messages.seq).limit(1))
    if oldest is None or oldest >= bound:
        return 0
    return int(min(bound - 1, oldest + _STEP - 1))


def delete_messages(connection: Connection, upto: int, ids_before: float) -> None:
    """Delete messages up to a number, their outputs, segments of which nothing else is left, and old ids."""
    for table in (log_schema.messages, log_schema.outputs):
        connection.execute(delete(table).where(table.c.seq <= upto))
    connection.execute(delete(log_schema.segments).where(log_schema.segments.c.last_seq <= upto))
    connection.execute(delete(log_schema.message_ids).where(log_schema.message_ids.c.received < ids_before))
    connection.execute(update(log_schema.state).values(oldest=upto + 1))


def bounds(connection: Connection, retention: Retention, last: int) -> tuple[int, int]:
    """Return the first message that is kept in any case, and the first that is kept if it is not needed."""
    now = time.time()
    aged = find_age_bound(connection, now - retention.unacknowledged)
    done = find_age_bound(connection, now - retention.acknowledged)
    return aged or last + 1, done or last + 1
