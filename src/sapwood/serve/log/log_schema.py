"""The tables of the message log.

A published message is a row of `messages`. Who gets it is a list of entries: one for each subscription that
it matches, numbered per inbox. Entries are written twice, since a message may have thousands of them, and an
inbox is read by number:

    tail      one row for each transaction, with the entries of all its messages
    segments  one row for each inbox, with its entries of the last thousands of messages

A transaction only appends to the tail, so it touches few pages however many inboxes there are. When the tail
has grown, its entries are sorted by inbox into segments, and then deleted from the tail. An inbox is read
from its segments, and after their last number from the tail.

    inbox desk:   1 ──────── 5210   5211 ──────── 9004   9005 … 9017
                  a segment         a segment            entries in the tail
                        └ acknowledged up to 4711: the backlog is what follows
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

LAYOUT = 1
"""The number of this schema, raised when the tables change; other versions are refused."""

metadata = MetaData()

messages = Table(
    "sapwood_messages",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("tenant", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("time", Double, nullable=False),  # of the event, in seconds since the epoch
    Column("has_time", Boolean, nullable=False),  # whether the publisher gave it
    Column("received", Double, nullable=False),
    Column("version", BigInteger, nullable=False),  # of the store that it was matched with
    Column("deliveries", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

message_ids = Table(
    "sapwood_message_ids",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("deliveries", Integer, nullable=False),
    Column("digest", LargeBinary, nullable=False),  # of the body, to tell a retry from another message
    Column("received", Double, nullable=False),
    sqlite_with_rowid=False,
)
"""What makes a retry of a publisher no second message; kept longer than the messages."""
Index("sapwood_message_ids_received", message_ids.c.received)

outputs = Table(
    "sapwood_outputs",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("message", Text, nullable=False),  # the id of the message, or of one that a query published
    Column("body", LargeBinary),  # null: that of the message
    sqlite_with_rowid=False,
)
"""What is delivered instead of the message: the results of transformations and joins, equal ones once."""

tail = Table(
    "sapwood_tail",
    metadata,
    Column("batch", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("entries", LargeBinary, nullable=False),  # of all messages of the transaction
)

segments = Table(
    "sapwood_segments",
    metadata,
    Column("inbox", Integer, primary_key=True, autoincrement=False),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("entries", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
Index("sapwood_segments_last_seq", segments.c.last_seq)

inboxes = Table(
    "sapwood_inboxes",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("tenant", Text, nullable=False),
    Column("subscriber", Text, nullable=False),
    Column("settings", Text, nullable=False),  # JSON
    Column("last", BigInteger, nullable=False),  # that is in a segment, or later
    Column("acknowledged", BigInteger, nullable=False),
    Column("dropped", BigInteger, nullable=False),  # the last entry that is not kept, though unacknowledged
    Column("suspended", Boolean, nullable=False),
    UniqueConstraint("tenant", "subscriber", name="sapwood_inboxes_subscriber"),
)

gaps = Table(
    "sapwood_gaps",
    metadata,
    Column("inbox", Integer, primary_key=True, autoincrement=False),
    Column("after", BigInteger, primary_key=True, autoincrement=False),  # the last entry before the gap
    Column("reason", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("since", Double, nullable=False),
    Column("until", Double, nullable=False),
)
"""The record of what subscribers have missed."""

dead_letters = Table(
    "sapwood_dead_letters",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("inbox", Integer, nullable=False),
    Column("delivery", BigInteger, nullable=False),  # the number of its last entry
    Column("record", Text, nullable=False),  # the delivery, JSON
    Column("attempts", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", Double, nullable=False),
    UniqueConstraint("inbox", "delivery", name="sapwood_dead_letters_delivery"),
)
"""Deliveries that a webhook's target has refused for good; with the body, since messages are not kept."""

rejects = Table(
    "sapwood_rejects",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("tenant", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("received", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("line", Integer),
    Column("column", Integer),
    Column("body", LargeBinary, nullable=False),
)
"""Messages that were refused, the last ones of each tenant."""
Index("sapwood_rejects_tenant", rejects.c.tenant, rejects.c.number)

keys = Table(
    "sapwood_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scopes", Text, nullable=False),  # separated by spaces
    Column("hash", LargeBinary, nullable=False),
    Column("created", Double, nullable=False),
)

state = Table(
    "sapwood_log_state",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("layout", Integer, nullable=False),
    Column("identity", Text, nullable=False),  # which a snapshot of engines has, too
    Column("batch", BigInteger, nullable=False),  # the number of the last transaction
    Column("seq", BigInteger, nullable=False),  # of the last message; messages may be gone
    Column("oldest", BigInteger, nullable=False),  # the oldest message that is kept
    Column("inboxes", Integer, nullable=False),  # the last number of an inbox; none is given twice
    Column("writer", Text, nullable=False),  # of the engine that may write; a former one finds another
    CheckConstraint("one = 1", name="sapwood_log_state_one"),
)
"""One row."""
