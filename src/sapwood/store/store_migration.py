"""The migration of a store to the present schema."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, insert, select, text, update

from sapwood.store import store_schema

OLD_LAYOUT = 1
_log = logging.getLogger(__name__)


def migrate(connection: Connection) -> None:
    """Add tenants and streams to the tables of schema 1; all that is there belongs to the tenant ""."""
    state = store_schema.state
    if connection.scalar(select(state.c.layout).with_for_update()) != OLD_LAYOUT:
        return  # another process was faster
    _log.info("migrating the store from schema %d to %d", OLD_LAYOUT, store_schema.LAYOUT)
    for column in ("tenant", "streams"):
        connection.execute(
            text(f"ALTER TABLE {store_schema.history.name} ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
        )
    store_schema.current_ids.drop(connection)
    store_schema.current_ids.create(connection)
    namespaces = store_schema.namespaces
    declared = connection.execute(select(namespaces.c.prefix, namespaces.c.uri)).all()
    namespaces.drop(connection)
    namespaces.create(connection)
    if declared:
        rows = [{"tenant": "", "prefix": prefix, "uri": uri} for prefix, uri in declared]
        connection.execute(insert(namespaces), rows)
    connection.execute(update(state).values(layout=store_schema.LAYOUT))
