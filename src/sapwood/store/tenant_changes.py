"""The changes of all tenants between two versions of a store, for engines that serve them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, and_, or_, select, union

from sapwood.lang.languages import XSCL
from sapwood.store import store_schema
from sapwood.store.history import COLUMNS, STREAMED, to_subscription
from sapwood.store.subscription import Subscription

_rows = store_schema.history.c


class TenantChange(NamedTuple):
    """A subscription of a tenant that begins with a new state, or ends."""

    tenant: str
    place: int
    subscription: Subscription | None
    """None if it was removed, or is not active any more"""


def iter_tenant_changes(connection: Connection, since: int, until: int) -> Iterator[TenantChange]:
    """Yield what leads from the active subscriptions of version `since` to those of version `until`, removals
    first and then in the order added; with a `since` of -1, all active ones."""
    begun = and_(_rows.since > since, _rows.since <= until, or_(store_schema.current, _rows.until > until))
    ended = and_(_rows.until > since, _rows.until <= until, _rows.since <= since, _rows.active)
    if since >= 0:
        alive = select(_rows.place).where(begun, _rows.active)
        gone = select(_rows.tenant, _rows.place).where(ended, _rows.place.not_in(alive))
        for tenant, place in connection.execute(gone).all():
            yield TenantChange(tenant, place, None)
    new = select(_rows.tenant, *COLUMNS).where(begun, _rows.active).order_by(_rows.place)
    with connection.execute(new, execution_options=STREAMED) as rows:
        for tenant, *row in rows:
            subscription = to_subscription(row)
            yield TenantChange(tenant, subscription.place, subscription)


def find_join_versions(connection: Connection, since: int, until: int) -> list[int]:
    """Return the versions after `since` and before `until` in which joins begin or end, in order."""
    versions = [
        select(column).where(_rows.language == XSCL, column > since, column < until)
        for column in (_rows.since, _rows.until)
    ]
    return sorted(connection.scalars(union(*versions)))


def read_all_namespaces(connection: Connection) -> dict[str, dict[str, str]]:
    """Return the declared prefixes of each tenant that has any."""
    columns = store_schema.namespaces.c
    found: dict[str, dict[str, str]] = {}
    for tenant, prefix, uri in connection.execute(select(columns.tenant, columns.prefix, columns.uri)):
        found.setdefault(tenant, {})[prefix] = uri
    return found
