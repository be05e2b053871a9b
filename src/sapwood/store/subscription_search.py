"""Searches for current subscriptions, page by page."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection, and_, or_, select

from sapwood.store import store_schema
from sapwood.store.history import COLUMNS, to_subscription
from sapwood.store.subscription import Subscription

_rows = store_schema.history.c


@dataclass(frozen=True, slots=True)
class SubscriptionFilter:
    """What subscriptions are searched for; None allows any."""

    subscriber: str | None = None
    language: str | None = None
    active: bool | None = None
    stream: str | None = None
    """one that they are restricted to"""
    text: str | None = None
    """part of the id or of the query, in any case"""


def search(
    connection: Connection, tenant: str, wanted: SubscriptionFilter, after: int, limit: int
) -> list[Subscription]:
    """Return current subscriptions after a place, in the order added."""
    found = and_(_rows.tenant == tenant, store_schema.current, _rows.place > after)
    for column in ("subscriber", "language", "active"):
        value = getattr(wanted, column)
        if value is not None:
            found = and_(found, _rows[column] == value)
    if wanted.stream is not None:
        found = and_(found, _rows.streams.contains(json.dumps(wanted.stream), autoescape=True))
    if wanted.text:
        parts = (column.icontains(wanted.text, autoescape=True) for column in (_rows.id, _rows.query))
        found = and_(found, or_(*parts))
    query = select(*COLUMNS).where(found).order_by(_rows.place).limit(limit)
    return [to_subscription(row) for row in connection.execute(query)]
