"""A subscription that comes from another broker: what its former host has not handled is delivered here.

The new host has all messages since it stored its copy of the subscription: from then on, it told all brokers
of its routes. Those behind the positions of the former host are evaluated, in the order of the log, and
delivered in one transaction. One from which parts were cut that the subscription reads was sent before all
brokers had its routes here, so the former host has handled it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select

from sapwood.errors import MessageError
from sapwood.serve.log import log_schema
from sapwood.serve.mesh.mesh_frames import AdoptSubscription
from sapwood.serve.mesh.node import mesh_schema
from sapwood.serve.mesh.node.mesh_store import read_publication, select_messages
from sapwood.serve.mesh.node.partial_message import find_query_reads, withhold_partial
from sapwood.serve.tenants.tenant_engine import TenantEngine
from sapwood.store.database import Database

if TYPE_CHECKING:
    from sapwood.serve.engine.batch_builder import BatchBuilder

_log = logging.getLogger(__name__)
_AT_ONCE = 200


def deliver_missed(
    log: Database,
    builder: BatchBuilder,
    engine: TenantEngine,
    command: AdoptSubscription,
    since: int,
    delivered: Collection[int],
) -> int:
    """Deliver the messages of the log that the former host of a subscription has not handled, since a version
    of the store; return how many deliveries there are.

    The engine has only that subscription, and is closed. `delivered` has the messages that an attempt before
    this one has delivered.
    """
    missed = _list_missed(log, command.tenant, since, command.positions)
    seqs = (seq for seq in missed if seq not in delivered)
    count = 0
    try:
        while some := list(islice(seqs, _AT_ONCE)):
            count += _deliver(log, builder, engine, some)
    finally:
        engine.close()
    return count


def _list_missed(log: Database, tenant: str, since: int, positions: Mapping[str, int]) -> list[int]:
    """Return the messages that came with a version of the store or later, behind the positions."""
    columns, rows = mesh_schema.messages.c, log_schema.messages.c
    query = select(columns.seq, columns.source, columns.number)
    query = query.join_from(mesh_schema.messages, log_schema.messages, columns.seq == rows.seq)
    query = query.where(rows.tenant == tenant, rows.version >= since, columns.is_local)
    with log.reading() as connection:
        found = connection.execute(query.order_by(columns.seq))
        return [seq for seq, source, number in found if number > positions.get(source, 0)]


def _deliver(log: Database, builder: BatchBuilder, engine: TenantEngine, seqs: Sequence[int]) -> int:
    with log.reading() as connection:
        rows = connection.execute(select_messages(seqs)).all()
        first = _find_outputs(connection, seqs)
    messages = [read_publication(row) for row in rows]
    count = 0
    for row, message, evaluation in zip(rows, messages, engine.evaluate(messages), strict=True):
        if isinstance(evaluation, MessageError):  # which was refused, too, when it came
            _log.debug("message %s is refused again: %s", row.id, evaluation)
        else:
            withhold_partial(message, evaluation, partial(find_query_reads, engine, message.tenant))
            builder.deliver_stored(row.seq, evaluation, first.get(row.seq, 0))
            count += len(evaluation.places)
    return count


def _find_outputs(connection: Connection, seqs: Iterable[int]) -> dict[int, int]:
    """Return, by message, the number of its next output."""
    columns = log_schema.outputs.c
    query = select(columns.seq, func.max(columns.number)).where(columns.seq.in_(list(seqs)))
    return {seq: last + 1 for seq, last in connection.execute(query.group_by(columns.seq))}
