"""The tables of a store.

A subscription's life is a row for each state it was in, valid from version `since` up to, but not including,
version `until`; the row that is valid now has no `until`:

    place  id      query   active  since  until
        1  stocks  //a     yes         1      4     added by version 1,
        1  stocks  //b     yes         4      6     replaced by version 4,
        1  stocks  //b     no          6            deactivated by version 6
        2  news    //c     yes         2      5     added by version 2, removed by version 5

So any version can be read as it was, and what changed between two versions is found by two index ranges. No
row is ever changed but to end it. `place` names a life: an id that is removed and added again gets a new one.

Tenants share the tables and the versions, and nothing else: an id is unique for its tenant, and a prefix is
declared for one. The tenant of a store that has only one is "".
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

LAYOUT = 2
"""The number of this schema, raised when the tables change. Schema 1 had neither tenants nor streams."""

metadata = MetaData()

history = Table(
    "sapwood_subscriptions",
    metadata,
    Column("place", BigInteger, primary_key=True, autoincrement=False),
    Column("since", BigInteger, primary_key=True, autoincrement=False),
    Column("until", BigInteger),
    Column("tenant", Text, nullable=False, server_default=""),
    Column("id", Text, nullable=False),
    Column("query", Text, nullable=False),
    Column("language", Text, nullable=False),
    Column("subscriber", Text, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("streams", Text, nullable=False, server_default=""),  # their names as a JSON array; "" for all
    CheckConstraint("until > since", name="sapwood_subscriptions_last"),
    sqlite_with_rowid=False,  # the rows lie in the order in which they are read
)
current = history.c.until.is_(None)
current_ids = Index(
    "sapwood_subscriptions_current",
    history.c.tenant,
    history.c.id,
    unique=True,
    sqlite_where=current,
    postgresql_where=current,
)
Index("sapwood_subscriptions_since", history.c.since)
Index("sapwood_subscriptions_until", history.c.until, sqlite_where=~current, postgresql_where=~current)

namespaces = Table(
    "sapwood_namespaces",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("prefix", Text, primary_key=True),
    Column("uri", Text, nullable=False),
)

state = Table(
    "sapwood_state",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("layout", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("oldest", BigInteger, nullable=False),
    Column("places", BigInteger, nullable=False),
    CheckConstraint("one = 1", name="sapwood_state_one"),
)
"""One row. Every writer locks it first, which serializes writers."""
