"""What a broker of a mesh keeps in the database of its log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, func, select, update

from sapwood.errors import SapwoodError
from sapwood.mesh.core.actions import Store, StoredMessage, TableChange
from sapwood.mesh.core.frames import Epoch, MessageKey
from sapwood.mesh.core.node_state import NodeState, StoredTable
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.projection.pruning_plan import decode_plan
from sapwood.mesh.routing.route import Route, decode_route, encode_route
from sapwood.mesh.wire.message_content import MessageContent, Projection
from sapwood.mesh.wire.topology_codec import decode_topology, encode_topology
from sapwood.serve.log import log_schema
from sapwood.serve.log.log_batch import Row
from sapwood.serve.log.log_database import LOCK_TIMEOUT, insert_all, insert_missing, upsert
from sapwood.serve.mesh.node import mesh_schema
from sapwood.serve.tenants.evaluation import Deferred, Evaluation, Publication
from sapwood.store.database import Database, Schema

_KEY_BYTES = 16
_AT_ONCE = 500


class MeshIdentityError(SapwoodError):
    """Raised for a log that belongs to another broker."""


@dataclass(slots=True)
class MeshChanges:
    """The changes of a transaction of the log that concern the mesh."""

    store: int = 0
    """the number of the last `Store` that is part of it"""
    messages: list[Row] = field(default_factory=list)
    evaluated: list[tuple[int, bool]] = field(default_factory=list)
    """deferred messages that local subscriptions have seen now, and whether they could be read"""
    moved: list[StoredMessage] = field(default_factory=list)
    """messages that were stored before, and are for others than before"""
    replaced: list[tuple[MessageKey, MessageContent]] = field(default_factory=list)
    """messages that were stored before, of which more has come"""
    plans: dict[bytes, bytes] = field(default_factory=dict)
    """by identity, the plans that messages were cut by"""
    cursors: dict[str, tuple[Epoch, int]] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    tables: list[TableChange] = field(default_factory=list)
    reset: int | None = None
    topology: Topology | None = None
    last: int = 0
    """the number of the last message that was published here"""
    expired: int = 0
    """messages up to this one are deleted from the log"""

    def add(self, store: Store) -> None:
        """Add all but the message of a `Store`."""
        self.store = store.number
        self.cursors |= store.cursors
        self.floors |= store.floors
        self.tables += store.tables
        if store.reset is not None:
            self.reset = store.reset

    def place(
        self, seq: int, message: StoredMessage, evaluation: Evaluation, publication: Publication
    ) -> None:
        """Add the row of a message that has its sequence number in the log."""
        self._keep_plan(publication.projection)
        self.messages.append(
            {
                "seq": seq,
                "source": message.key.source,
                "number": message.key.number,
                "came_by": message.came_by,
                "links": encode_links(message.links),
                "reset": message.reset,
                "is_local": evaluation.is_local,
                "is_deferred": evaluation.is_deferred,
                "published_id": publication.published_id,
                **_projection_row(publication.projection),
            }
        )

    def replace(self, key: MessageKey, content: MessageContent) -> None:
        """Store another content of a message that was stored before."""
        self._keep_plan(content.projection)
        self.replaced.append((key, content))

    def _keep_plan(self, projection: Projection | None) -> None:
        if projection is not None:
            self.plans[projection.plan.identity] = projection.plan.encoded

    def __bool__(self) -> bool:
        return bool(self.store or self.evaluated or self.topology is not None)

    def write(self, connection: Connection) -> None:
        """Write them, as part of a transaction of the log."""
        plans: list[Row] = [{"identity": name, "encoded": encoded} for name, encoded in self.plans.items()]
        insert_missing(connection, mesh_schema.plans, plans)
        insert_all(connection, mesh_schema.messages, self.messages)
        if self.evaluated:
            changes = update(mesh_schema.messages).where(mesh_schema.messages.c.seq == bindparam("s"))
            connection.execute(
                changes.values(is_deferred=False, is_local=bindparam("l")),
                [{"s": seq, "l": is_local} for seq, is_local in self.evaluated],
            )
        if self.moved:
            columns = mesh_schema.messages.c
            mine = (columns.source == bindparam("s")) & (columns.number == bindparam("n"))
            changed: dict[str, Any] = {
                "came_by": bindparam("c"),
                "links": bindparam("l"),
                "reset": bindparam("r"),
            }
            rows: list[dict[str, Any]] = [
                {
                    "s": message.key.source,
                    "n": message.key.number,
                    "c": message.came_by,
                    "l": encode_links(message.links),
                    "r": message.reset,
                }
                for message in self.moved
            ]
            connection.execute(update(mesh_schema.messages).where(mine).values(changed), rows)
        for key, content in self.replaced:
            _replace_content(connection, key, content)
        upsert(
            connection,
            mesh_schema.links,
            [
                {"link": link, **epoch._asdict(), "handled": handled}
                for link, (epoch, handled) in self.cursors.items()
            ],
        )
        floors: list[Row] = [{"source": source, "floor": floor} for source, floor in self.floors.items()]
        upsert(connection, mesh_schema.sources, floors)
        for change in self.tables:
            _write_table(connection, change)
        values: dict[str, Any] = {"last": self.last} if self.last else {}
        if self.reset is not None:
            values["reset"] = self.reset
        if self.topology is not None:
            values["topology"] = encode_topology(self.topology).decode()
        if values:
            connection.execute(update(mesh_schema.state).values(values))
        if self.expired:
            columns = mesh_schema.messages.c
            connection.execute(delete(mesh_schema.messages).where(columns.seq <= self.expired))
            used = select(columns.plan).where(columns.plan.is_not(None))
            unused = mesh_schema.plans.c.identity.not_in(used)
            connection.execute(delete(mesh_schema.plans).where(unused))


def open_mesh_store(location: str) -> Database:
    """Open the tables of the mesh in the database of a log, or create them."""
    schema = Schema(
        "mesh state",
        mesh_schema.metadata,
        mesh_schema.state,
        mesh_schema.LAYOUT,
        {
            "broker": "",
            "mesh": "",
            "incarnation": 0,
            "reset": 0,
            "last": 0,
            "topology": encode_topology(Topology()).decode(),
        },
        "'sapwood serve' with a [mesh] table makes one",
        "serve it with that version until all is delivered, and begin with a new file here",
    )
    return Database(location, True, schema, LOCK_TIMEOUT, checkpoints=False)


def _projection_row(projection: Projection | None) -> Row:
    """Return the columns of a message that tell what was cut from it."""
    if projection is None:
        return {"plan": None, "original": None}
    return {"plan": projection.plan.identity, "original": projection.original}


def _read_projection(row: Any) -> Projection | None:
    """Return what was cut from the message of a row, which has the plan, and the digest of the message."""
    if row.encoded is None:
        return None
    return Projection(decode_plan(bytes(row.encoded)), bytes(row.original))


def _replace_content(connection: Connection, key: MessageKey, content: MessageContent) -> None:
    messages, log = mesh_schema.messages, log_schema.messages
    mine = (messages.c.source == key.source) & (messages.c.number == key.number)
    seq = select(messages.c.seq).where(mine).scalar_subquery()
    connection.execute(update(log).where(log.c.seq == seq).values(body=content.body))
    connection.execute(update(messages).where(mine).values(_projection_row(content.projection)))


def _write_table(connection: Connection, change: TableChange) -> None:
    routes = mesh_schema.routes
    if change.is_dropped:
        connection.execute(delete(routes).where(routes.c.link == change.link))
        connection.execute(delete(mesh_schema.tables).where(mesh_schema.tables.c.link == change.link))
        return
    for some in _chunks([key.to_bytes(_KEY_BYTES, "big") for key in change.removed]):
        connection.execute(delete(routes).where(routes.c.link == change.link, routes.c.key.in_(some)))
    upsert(
        connection,
        routes,
        [
            {"link": change.link, "key": route.key.to_bytes(_KEY_BYTES, "big"), "route": encode_route(route)}
            for route in change.added
            if isinstance(route, Route)
        ],
    )
    row: Row = {
        "link": change.link,
        "version": change.version,
        "is_complete": change.is_complete,
        "is_open": change.is_open,
    }
    upsert(connection, mesh_schema.tables, [row])


def _chunks(items: list[bytes]) -> Iterable[list[bytes]]:
    return (items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE))


def encode_links(links: frozenset[str] | None) -> str | None:
    """Return neighbours as a text."""
    return None if links is None else " ".join(sorted(links))


def decode_links(text: str | None) -> frozenset[str] | None:
    """Return the neighbours in a text."""
    return None if text is None else frozenset(text.split())


_MESSAGES = (
    select(
        log_schema.messages.c.seq,
        log_schema.messages.c.version,
        log_schema.messages.c.tenant,
        log_schema.messages.c.stream,
        log_schema.messages.c.id,
        log_schema.messages.c.body,
        log_schema.messages.c.time,
        log_schema.messages.c.has_time,
        mesh_schema.messages.c.published_id,
        mesh_schema.messages.c.original,
        mesh_schema.plans.c.encoded,
    )
    .join_from(
        mesh_schema.messages, log_schema.messages, mesh_schema.messages.c.seq == log_schema.messages.c.seq
    )
    .outerjoin(mesh_schema.plans, mesh_schema.plans.c.identity == mesh_schema.messages.c.plan)
)
"""messages of the log, with the plans that they were cut by; see `read_publication`"""


def select_messages(seqs: Iterable[int]) -> Select[Any]:
    """Return the query for some messages of the log, in order; see `read_publication`."""
    seq = mesh_schema.messages.c.seq
    return _MESSAGES.where(seq.in_(list(seqs))).order_by(seq)


def read_publication(row: Any) -> Publication:
    """Return the message of a row."""
    return Publication(
        row.tenant,
        row.stream,
        row.id,
        bytes(row.body),
        row.time if row.has_time else None,
        projection=_read_projection(row),
        published_id=row.published_id,
    )


class MeshStore:
    """Reads what a broker of a mesh has stored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, mesh: str, broker: str) -> tuple[int, Topology]:
        """Begin another run of a broker; returns its number, and the last topology that was seen.

        Raises MeshIdentityError if the log is that of another broker.
        """
        state = mesh_schema.state
        with self._database.writing() as connection:
            row = connection.execute(select(state)).one()
            if row.broker and (row.broker, row.mesh) != (broker, mesh):
                raise MeshIdentityError(
                    f"the log {self._database.name!r} is that of the broker {row.broker!r} in the mesh "
                    f"{row.mesh!r}: set broker.name and mesh.name to these, or begin with a new log"
                )
            # By the clock, because a log that was restored from a backup has forgotten runs since.
            incarnation = max(row.incarnation + 1, int(time.time()))
            connection.execute(update(state).values(incarnation=incarnation, broker=broker, mesh=mesh))
        return incarnation, decode_topology(row.topology)

    def read_state(self, broker: str) -> NodeState:
        """Return the state of the node."""
        columns = mesh_schema.messages.c
        with self._database.reading() as connection:
            state = NodeState(broker, connection.scalar(select(mesh_schema.state.c.reset)) or 0)
            for row in connection.execute(select(mesh_schema.links)):
                state.cursors[row.link] = Epoch(row.edge, row.incarnation, row.attempt), row.handled
            state.floors = {row.source: row.floor for row in connection.execute(select(mesh_schema.sources))}
            for row in connection.execute(select(mesh_schema.tables)):
                state.tables[row.link] = StoredTable(row.version, row.is_complete, row.is_open)
            for row in connection.execute(select(mesh_schema.routes)):
                route = decode_route(row.route)
                state.tables.setdefault(row.link, StoredTable()).routes[route.key] = route
            names = connection.scalars(select(columns.source).distinct()).all()
            for source in names:
                query = select(mesh_schema.messages).where(
                    columns.source == source, columns.number > state.floors.get(source, 0)
                )
                for row in connection.execute(query.order_by(columns.number)):
                    key = MessageKey(row.source, row.number)
                    links = decode_links(row.links)
                    is_partial = row.plan is not None
                    state.messages[key] = StoredMessage(key, row.came_by, links, row.reset, is_partial)
            last = connection.scalar(select(mesh_schema.state.c.last)) or 0
            if not any(key.source == broker for key in state.messages):  # none is given a number twice
                state.floors[broker] = max(last, state.floors.get(broker, 0))
        return state

    def read_contents(self, keys: Iterable[MessageKey]) -> Mapping[MessageKey, MessageContent]:
        """Return messages by their identity; what the log does not keep any more is missing."""
        columns = mesh_schema.messages.c
        found: dict[MessageKey, MessageContent] = {}
        with self._database.reading() as connection:
            for key in keys:
                row = connection.execute(
                    _MESSAGES.where(columns.source == key.source, columns.number == key.number)
                ).one_or_none()
                if row is not None:
                    found[key] = MessageContent(
                        row.tenant,
                        row.stream,
                        row.published_id or row.id,
                        row.time if row.has_time else None,
                        bytes(row.body),
                        projection=_read_projection(row),
                    )
        return found

    def find_needed(self, floors: Mapping[str, int]) -> int | None:
        """Return the first message of the log that is not settled everywhere; None if all are."""
        columns = mesh_schema.messages.c
        with self._database.reading() as connection:
            found = [
                connection.scalar(
                    select(func.min(columns.seq)).where(columns.source == source, columns.number > floor)
                )
                for source, floor in floors.items()
            ]
        return min((seq for seq in found if seq is not None), default=None)

    def list_passed(self, after: int) -> set[int]:
        """Return the messages after a sequence number that local subscriptions did not see, or not yet."""
        columns = mesh_schema.messages.c
        with self._database.reading() as connection:
            unseen = columns.is_local.is_(False) | columns.is_deferred
            return set(connection.scalars(select(columns.seq).where(columns.seq > after, unseen)))

    def list_partial(self, after: int) -> set[int]:
        """Return the messages after a sequence number of which parts were cut on the way here."""
        columns = mesh_schema.messages.c
        with self._database.reading() as connection:
            query = select(columns.seq).where(columns.seq > after, columns.plan.is_not(None))
            return set(connection.scalars(query))

    def list_deferred(self) -> list[Deferred]:
        """Return the messages that local subscriptions have still to see, in order."""
        columns = mesh_schema.messages.c
        with self._database.reading() as connection:
            rows = connection.execute(_MESSAGES.where(columns.is_deferred).order_by(columns.seq)).all()
        return [Deferred(row.seq, row.version, read_publication(row)) for row in rows]

    def trace(self, tenant: str, id: str) -> list[dict[str, Any]]:
        """Return where the messages with an id came from, and whom they are for."""
        columns, log = mesh_schema.messages.c, log_schema.messages.c
        query = select(mesh_schema.messages, log.stream, log.received, log.version, log.deliveries)
        query = query.join_from(mesh_schema.messages, log_schema.messages, columns.seq == log.seq)
        with self._database.reading() as connection:
            rows = connection.execute(query.where(log.tenant == tenant, log.id == id)).mappings().all()
        return [dict(row) for row in rows]

    def close(self) -> None:
        """Close the connections."""
        self._database.close()
