"""The tables of a broker in a mesh, in the database of its log.

They are what a node stores (see `sapwood.mesh.core.node_state`). A message is a row of the log; here is where
it belongs in the mesh. Rows go with their messages: those up to the floor of their source are not needed by
the node, and tell operators which way a message took.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

LAYOUT = 2
"""The number of this schema, raised when the tables change; other versions are refused."""

metadata = MetaData()

messages = Table(
    "sapwood_mesh_messages",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("came_by", Text),  # the neighbour it came from; null: published here
    Column("links", Text),  # the neighbours it is for, separated by spaces; null: not known yet
    Column("reset", BigInteger, nullable=False),  # the version of the topology since which the links hold
    Column("is_local", Boolean, nullable=False),  # whether local subscriptions were evaluated, or will be
    Column("is_deferred", Boolean, nullable=False),  # whether they are still to be evaluated
    Column("published_id", Text),  # the id that it was published with, if it has another one here
    Column("plan", LargeBinary),  # what was kept of the body on its way here; null: all
    Column("original", LargeBinary),  # the digest of the body as it was published, if parts were cut
)
Index("sapwood_mesh_messages_key", messages.c.source, messages.c.number, unique=True)

plans = Table(
    "sapwood_mesh_plans",
    metadata,
    Column("identity", LargeBinary, primary_key=True),
    Column("encoded", LargeBinary, nullable=False),
)
"""The plans of projection that messages were cut by."""

sources = Table(
    "sapwood_mesh_sources",
    metadata,
    Column("source", Text, primary_key=True),
    Column("floor", BigInteger, nullable=False),
)

links = Table(
    "sapwood_mesh_links",
    metadata,
    Column("link", Text, primary_key=True),
    Column("edge", BigInteger, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("handled", BigInteger, nullable=False),
)
"""The last frame of each neighbour that was handled."""

tables = Table(
    "sapwood_mesh_tables",
    metadata,
    Column("link", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("is_complete", Boolean, nullable=False),
    Column("is_open", Boolean, nullable=False),
)

routes = Table(
    "sapwood_mesh_routes",
    metadata,
    Column("link", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("route", LargeBinary, nullable=False),
)
"""What is wanted on the side of each neighbour."""

state = Table(
    "sapwood_mesh_state",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("layout", Integer, nullable=False),
    Column("broker", Text, nullable=False),  # the name that it has in the mesh
    Column("mesh", Text, nullable=False),
    Column("incarnation", BigInteger, nullable=False),  # the number of the last run, which ascends
    Column("reset", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),  # the number of the last message that was published here
    Column("topology", Text, nullable=False),  # the last one that was seen, JSON
    CheckConstraint("one = 1", name="sapwood_mesh_state_one"),
)
"""One row."""
