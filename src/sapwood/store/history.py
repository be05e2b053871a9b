"""The history of a store: reads of versions, the difference between two, and changes.

Engines that know nothing of streams read the subscriptions to all streams only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select, update
from sqlalchemy import func as sql

from sapwood.errors import StoreError
from sapwood.store import store_schema
from sapwood.store.database import Database
from sapwood.store.subscription import Changes, Subscription

_log = logging.getLogger(__name__)

_AT_ONCE = 900
"""ids named in one statement; some builds of SQLite take no more than 999"""
STREAMED = {"yield_per": 2_000}
"""rows held at a time while they are read"""
_DIGESTED = 200
"""subscriptions at each end of a version that its digest covers"""

_rows = store_schema.history.c
# in the order of Subscription's fields
COLUMNS = (
    _rows.id,
    _rows.query,
    _rows.subscriber,
    _rows.language,
    _rows.active,
    _rows.place,
    _rows.since,
    _rows.streams,
)
_NAMES = [column.name for column in COLUMNS]
_ALL_STREAMS = ""
_evaluated = and_(_rows.active, _rows.streams == _ALL_STREAMS)
"""what engines that know nothing of streams evaluate"""


class StoreState(NamedTuple):
    """The state of a store: its version, the oldest readable version, and the last place assigned."""

    version: int
    oldest: int
    places: int


def read_state(connection: Connection, lock: bool = False) -> StoreState:
    """Read the store's state; a lock on it keeps other writers out until the transaction ends."""
    columns = store_schema.state.c
    query = select(columns.version, columns.oldest, columns.places)
    row = connection.execute(query.with_for_update() if lock else query).one()
    return StoreState(*row)


# -- reading -----------------------------------------------------------------------------------------------


def require_versions(connection: Connection, *versions: int) -> None:
    """Raise StoreError unless all these versions can be read."""
    known = read_state(connection)
    for version in versions:
        if version > known.version:
            raise _future_version_error(version, known)
        if version < 0:
            raise StoreError(f"there is no version {version}; versions count from 0")
        if version < known.oldest:
            raise StoreError(f"version {version} was pruned; the oldest that is kept is {known.oldest}")


def _future_version_error(version: int, known: StoreState) -> StoreError:
    return StoreError(f"there is no version {version} yet; the store is at version {known.version}")


def iter_current(
    connection: Connection,
    tenant: str,
    subscriber: str | None,
    active: bool | None,
    language: str | None = None,
) -> Iterator[Subscription]:
    """Yield the current subscriptions in the order added."""
    query = select(*COLUMNS).where(_of(tenant), store_schema.current).order_by(_rows.place)
    if language is not None:
        query = query.where(_rows.language == language)
    if subscriber is not None:
        query = query.where(_rows.subscriber == subscriber)
    if active is not None:
        query = query.where(_rows.active == active)
    with connection.execute(query, execution_options=STREAMED) as rows:  # which may be left half read
        for row in rows:
            yield to_subscription(row)


def to_subscription(row: Sequence[Any]) -> Subscription:
    """Return the subscription in a row of the table."""
    id, query, subscriber, language, active, place, since, streams = row
    named = tuple(json.loads(streams)) if streams != _ALL_STREAMS else ()
    return Subscription(id, query, subscriber, language, active, place, since, named)


def _to_row(tenant: str, subscription: Subscription) -> dict[str, object]:
    row = {name: getattr(subscription, name) for name in _NAMES}
    row["streams"] = json.dumps(subscription.streams) if subscription.streams else _ALL_STREAMS
    return row | {"tenant": tenant}


def _of(tenant: str) -> ColumnElement[bool]:
    return _rows.tenant == tenant


def iter_active(connection: Connection, tenant: str, version: int) -> Iterator[tuple[str, str]]:
    """Yield the ids and queries that were active at a version, in the order added."""
    wanted = and_(_of(tenant), _valid(version), _evaluated)
    query = select(_rows.id, _rows.query).where(wanted).order_by(_rows.place)
    with connection.execute(query, execution_options=STREAMED) as rows:
        for row in rows:
            yield row[0], row[1]


def iter_active_with_places(
    connection: Connection, tenant: str, version: int, after: int = 0, since: int | None = None
) -> Iterator[tuple[int, str, str]]:
    """Yield the places, ids and queries that were active at a version, in the order added.

    Only those after the place `after`; with `since`, only those that have changed since that version.
    """
    wanted = and_(_of(tenant), _valid(version), _evaluated, _rows.place > after)
    if since is not None:
        wanted = and_(wanted, _rows.since > since)
    query = select(_rows.place, _rows.id, _rows.query).where(wanted).order_by(_rows.place)
    with connection.execute(query, execution_options=STREAMED) as rows:
        for row in rows:
            yield row[0], row[1], row[2]


def iter_subscribers(
    connection: Connection, tenant: str, since: int, until: int
) -> Iterator[tuple[str, str]]:
    """Yield the ids and subscribers active at `until` that have changed since the version `since`."""
    wanted = and_(_of(tenant), _valid(until), _evaluated, _rows.since > since)
    query = select(_rows.id, _rows.subscriber).where(wanted)
    with connection.execute(query, execution_options=STREAMED) as rows:
        for row in rows:
            yield row[0], row[1]


def digest(connection: Connection, tenant: str, version: int) -> str:
    """Return a digest of the first and last subscriptions of a version."""
    wanted = and_(_of(tenant), _valid(version), _evaluated)
    query = select(_rows.place, _rows.id, _rows.query).where(wanted).limit(_DIGESTED)
    ends = [connection.execute(query.order_by(order)).all() for order in (_rows.place, _rows.place.desc())]
    text = repr([tuple(row) for end in ends for row in end])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _valid(version: int) -> ColumnElement[bool]:
    return and_(_rows.since <= version, or_(store_schema.current, _rows.until > version))


def net_changes(connection: Connection, tenant: str, since: int, until: int) -> Changes:
    """Return the net effect of the versions after `since` up to `until`.

    Only rows that ended in between can have been valid before and not after, and only rows that began in
    between the other way round: a state that came and went in between is in neither.
    """
    ended = and_(_rows.until > since, _rows.until <= until, _rows.since <= since)
    begun = and_(_rows.since > since, _rows.since <= until, or_(store_schema.current, _rows.until > until))
    before = _queries(connection, and_(_of(tenant), ended))
    after = _queries(connection, and_(_of(tenant), begun))
    removed = [id for id in before if id not in after]
    put = [(id, query) for id, query in after.items() if before.get(id) != query]
    return Changes(removed, put)


def iter_begun(connection: Connection, tenant: str, since: int, until: int) -> Iterator[tuple[str, str, int]]:
    """Yield the subscriptions active at `until` that were not active with the same query since `since`.

    Each with its id, its query, and the version in which it became active with that query.
    """
    valid = and_(_rows.since > since, _rows.since <= until, or_(store_schema.current, _rows.until > until))
    columns = (_rows.id, _rows.query, _rows.since, _rows.place)
    wanted = and_(_of(tenant), valid, _evaluated)
    new = connection.execute(select(*columns).where(wanted).order_by(_rows.place)).all()
    # a row may only be the last of several that differ in the subscriber
    ended = and_(_of(tenant), _evaluated, _rows.until.is_not(None), _rows.until > since, _rows.until <= until)
    columns = (_rows.place, _rows.query, _rows.until, _rows.since)
    before = {tuple(row[:3]): row[3] for row in connection.execute(select(*columns).where(ended))}
    for id, query, first, place in new:
        while first > since and (place, query, first) in before:
            first = before[place, query, first]
        if first > since:
            yield id, query, first


def _queries(connection: Connection, valid: ColumnElement[bool]) -> dict[str, str]:
    query = select(_rows.id, _rows.query).where(valid, _evaluated).order_by(_rows.place)
    return {row[0]: row[1] for row in connection.execute(query)}


def count_current(connection: Connection, tenant: str) -> int:
    """Return the number of current subscriptions."""
    return _count(connection, and_(_of(tenant), store_schema.current))


def count_restricted(connection: Connection, tenant: str, version: int) -> int:
    """Return the number of subscriptions active at a version that are restricted to streams."""
    restricted = _rows.streams != _ALL_STREAMS
    return _count(connection, and_(_of(tenant), _valid(version), _rows.active, restricted))


def _count(connection: Connection, wanted: ColumnElement[bool]) -> int:
    return connection.scalar(select(sql.count()).select_from(store_schema.history).where(wanted)) or 0


def read_namespaces(connection: Connection, tenant: str) -> dict[str, str]:
    """Read the declared namespaces by prefix."""
    columns = store_schema.namespaces.c
    query = select(columns.prefix, columns.uri).where(columns.tenant == tenant).order_by(columns.prefix)
    return {row[0]: row[1] for row in connection.execute(query)}


def find_current(connection: Connection, tenant: str, ids: Iterable[str]) -> dict[str, Subscription]:
    """Find the current subscriptions with these ids, by id."""
    query = select(*COLUMNS).where(_of(tenant), store_schema.current)
    found = (
        to_subscription(row)
        for some in _batches(ids)
        for row in connection.execute(query.where(_rows.id.in_(some)))
    )
    return {subscription.id: subscription for subscription in found}


# -- writing -----------------------------------------------------------------------------------------------


class StoreChange:
    """A transaction that makes one version, or none if it changes nothing."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self.connection = connection
        self.tenant = tenant
        self.before = read_state(connection, lock=True)
        self._changed = False
        self._places = self.before.places

    @property
    def version(self) -> int:
        """The version after the change so far."""
        return self.before.version + self._changed

    @property
    def next_version(self) -> int:
        """The version that the change makes, if it makes one."""
        return self.before.version + 1

    def new_place(self) -> int:
        """Assign a place after all others."""
        self._places += 1
        return self._places

    def end(self, ended: Iterable[Subscription]) -> None:
        """End subscriptions with this change."""
        for some in _batches(subscription.id for subscription in ended):
            rows = update(store_schema.history).where(
                _of(self.tenant), _rows.id.in_(some), store_schema.current
            )
            self.connection.execute(rows.values(until=self.next_version))
            self._changed = True

    def put(self, begun: Sequence[Subscription]) -> None:
        """Insert subscriptions that begin with this change; those that they replace have been ended."""
        if begun:
            self.connection.execute(
                insert(store_schema.history), [_to_row(self.tenant, new) for new in begun]
            )
            self._changed = True

    def declare(self, namespaces: dict[str, str]) -> None:
        """Insert new prefixes."""
        if namespaces:
            rows = [
                {"tenant": self.tenant, "prefix": prefix, "uri": uri} for prefix, uri in namespaces.items()
            ]
            self.connection.execute(insert(store_schema.namespaces), rows)
            self._changed = True

    def finish(self) -> None:
        """Store the new version number."""
        if self._changed:
            new = {"version": self.next_version, "places": self._places}
            self.connection.execute(update(store_schema.state).values(new))


@contextmanager
def begin_change(database: Database, tenant: str) -> Iterator[StoreChange]:
    """Begin a change that is committed at the end of the block; other writers wait until then."""
    with database.writing() as connection:
        change = StoreChange(connection, tenant)
        yield change
        change.finish()


def prune(connection: Connection, version: int) -> int:
    """Delete the rows that only versions before this one need; returns their number."""
    known = read_state(connection, lock=True)
    if version <= known.oldest:
        return 0
    if version > known.version:
        raise _future_version_error(version, known)
    dropped = connection.execute(delete(store_schema.history).where(_rows.until <= version)).rowcount
    connection.execute(update(store_schema.state).values(oldest=version))
    _log.info("pruned %d rows of versions before %d", dropped, version)
    return dropped


def _batches(ids: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(ids)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
