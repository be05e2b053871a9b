"""Reading and writing the history: versions as they were, the difference between two, and a change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select, update
from sqlalchemy import func as sql

from sapwood.errors import StoreError
from sapwood.store import store_schema
from sapwood.store.database import Database
from sapwood.store.subscription import Changes, Subscription

_AT_ONCE = 900
"""ids named in one statement; some builds of SQLite take no more than 999"""
_STREAMED = {"yield_per": 2_000}
"""rows held at a time while they are read"""
_MARKED = 200
"""subscriptions at each end of a version that its mark is made of"""

_rows = store_schema.history.c
# in the order of Subscription's fields
_COLUMNS = (
    _rows.id,
    _rows.query,
    _rows.subscriber,
    _rows.language,
    _rows.active,
    _rows.place,
    _rows.since,
)
_NAMES = [column.name for column in _COLUMNS]


@dataclass(frozen=True, slots=True)
class StoreState:
    """How far a store has come: its version, the oldest it remembers, and the places it has given out."""

    version: int
    oldest: int
    places: int


def read_state(connection: Connection, lock: bool = False) -> StoreState:
    """The store's state; once it is locked, nobody else changes anything until the transaction ends."""
    columns = store_schema.state.c
    query = select(columns.version, columns.oldest, columns.places)
    row = connection.execute(query.with_for_update() if lock else query).one()
    return StoreState(*row)


# -- reading -----------------------------------------------------------------------------------------------


def require_versions(connection: Connection, *versions: int) -> None:
    """Raises StoreError unless all these versions can be read."""
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
    connection: Connection, subscriber: str | None, active: bool | None, language: str | None = None
) -> Iterator[Subscription]:
    """The current subscriptions, in the order added."""
    query = select(*_COLUMNS).where(store_schema.current).order_by(_rows.place)
    if language is not None:
        query = query.where(_rows.language == language)
    if subscriber is not None:
        query = query.where(_rows.subscriber == subscriber)
    if active is not None:
        query = query.where(_rows.active == active)
    with connection.execute(query, execution_options=_STREAMED) as rows:  # which may be left half read
        for row in rows:
            yield Subscription(*row)


def iter_active(connection: Connection, version: int) -> Iterator[tuple[str, str]]:
    """Ids and queries that were active at a version, in the order added."""
    query = select(_rows.id, _rows.query).where(_valid(version), _rows.active).order_by(_rows.place)
    with connection.execute(query, execution_options=_STREAMED) as rows:
        for row in rows:
            yield row[0], row[1]


def iter_active_with_places(
    connection: Connection, version: int, after: int = 0, since: int | None = None
) -> Iterator[tuple[int, str, str]]:
    """Places, ids and queries that were active at a version, in the order added: those behind a place, and
    of them, if `since` is given, only those that were not just so at that version."""
    wanted = and_(_valid(version), _rows.active, _rows.place > after)
    if since is not None:
        wanted = and_(wanted, _rows.since > since)
    query = select(_rows.place, _rows.id, _rows.query).where(wanted).order_by(_rows.place)
    with connection.execute(query, execution_options=_STREAMED) as rows:
        for row in rows:
            yield row[0], row[1], row[2]


def iter_subscribers(connection: Connection, since: int, until: int) -> Iterator[tuple[str, str]]:
    """Ids and subscribers that were active at `until`, and are so since a version after `since`."""
    wanted = and_(_valid(until), _rows.active, _rows.since > since)
    query = select(_rows.id, _rows.subscriber).where(wanted)
    with connection.execute(query, execution_options=_STREAMED) as rows:
        for row in rows:
            yield row[0], row[1]


def digest(connection: Connection, version: int) -> str:
    """A digest of the first and last subscriptions of a version."""
    query = select(_rows.place, _rows.id, _rows.query).where(_valid(version), _rows.active).limit(_MARKED)
    ends = [connection.execute(query.order_by(order)).all() for order in (_rows.place, _rows.place.desc())]
    text = repr([tuple(row) for end in ends for row in end])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _valid(version: int) -> ColumnElement[bool]:
    return and_(_rows.since <= version, or_(store_schema.current, _rows.until > version))


def net_changes(connection: Connection, since: int, until: int) -> Changes:
    """The net effect of the versions after `since` up to `until`.

    Only rows that ended in between can have been valid before and not after, and only rows that began in
    between the other way round: a state that came and went in between is in neither.
    """
    ended = and_(_rows.until > since, _rows.until <= until, _rows.since <= since)
    begun = and_(_rows.since > since, _rows.since <= until, or_(store_schema.current, _rows.until > until))
    before = _queries(connection, ended)
    after = _queries(connection, begun)
    removed = [id for id in before if id not in after]
    put = [(id, query) for id, query in after.items() if before.get(id) != query]
    return Changes(removed, put)


def iter_begun(connection: Connection, since: int, until: int) -> Iterator[tuple[str, str, int]]:
    """Of the subscriptions that are active at `until`, those that have not been there, active and with
    the same query, ever since `since`: id, query, and the version from which on they have."""
    valid = and_(_rows.since > since, _rows.since <= until, or_(store_schema.current, _rows.until > until))
    columns = (_rows.id, _rows.query, _rows.since, _rows.place)
    new = connection.execute(select(*columns).where(valid, _rows.active).order_by(_rows.place)).all()
    # a row may only be the last of several that differ in the subscriber
    ended = and_(_rows.active, _rows.until.is_not(None), _rows.until > since, _rows.until <= until)
    columns = (_rows.place, _rows.query, _rows.until, _rows.since)
    before = {tuple(row[:3]): row[3] for row in connection.execute(select(*columns).where(ended))}
    for id, query, first, place in new:
        while first > since and (place, query, first) in before:
            first = before[place, query, first]
        if first > since:
            yield id, query, first


def _queries(connection: Connection, valid: ColumnElement[bool]) -> dict[str, str]:
    query = select(_rows.id, _rows.query).where(valid, _rows.active).order_by(_rows.place)
    return {row[0]: row[1] for row in connection.execute(query)}


def count_current(connection: Connection) -> int:
    """How many current subscriptions there are."""
    return (
        connection.scalar(select(sql.count()).select_from(store_schema.history).where(store_schema.current))
        or 0
    )


def read_namespaces(connection: Connection) -> dict[str, str]:
    """The namespaces by prefix."""
    columns = store_schema.namespaces.c
    rows = connection.execute(select(columns.prefix, columns.uri).order_by(columns.prefix))
    return {row[0]: row[1] for row in rows}


def find_current(connection: Connection, ids: Iterable[str]) -> dict[str, Subscription]:
    """Those of the ids that are subscribed, with their subscriptions."""
    found = (
        Subscription(*row)
        for some in _batches(ids)
        for row in connection.execute(select(*_COLUMNS).where(_rows.id.in_(some), store_schema.current))
    )
    return {subscription.id: subscription for subscription in found}


# -- writing -----------------------------------------------------------------------------------------------


class StoreChange:
    """A transaction under way that makes one version, or none if nothing is put or ended in it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.before = read_state(connection, lock=True)
        self._made = False
        self._places = self.before.places

    @property
    def version(self) -> int:
        """The version that is there when the change is committed, as far as it is known."""
        return self.before.version + self._made

    @property
    def next_version(self) -> int:
        """The version that the change makes, if it makes one."""
        return self.before.version + 1

    def new_place(self) -> int:
        """A place behind all others."""
        self._places += 1
        return self._places

    def end(self, ended: Iterable[Subscription]) -> None:
        """These are valid up to now."""
        for some in _batches(subscription.id for subscription in ended):
            rows = update(store_schema.history).where(_rows.id.in_(some), store_schema.current)
            self.connection.execute(rows.values(until=self.next_version))
            self._made = True

    def put(self, begun: Sequence[Subscription]) -> None:
        """These are valid from now on; what they replace has been ended."""
        if begun:
            rows = [{name: getattr(new, name) for name in _NAMES} for new in begun]
            self.connection.execute(insert(store_schema.history), rows)
            self._made = True

    def declare(self, namespaces: dict[str, str]) -> None:
        """These prefixes are new."""
        if namespaces:
            rows = [{"prefix": prefix, "uri": uri} for prefix, uri in namespaces.items()]
            self.connection.execute(insert(store_schema.namespaces), rows)
            self._made = True

    def finish(self) -> None:
        """Writes down the version that was made."""
        if self._made:
            new = {"version": self.next_version, "places": self._places}
            self.connection.execute(update(store_schema.state).values(new))


@contextmanager
def begin_change(database: Database) -> Iterator[StoreChange]:
    """A change that is committed at the end of the block; all others wait until then."""
    with database.writing() as connection:
        change = StoreChange(connection)
        yield change
        change.finish()


def prune(connection: Connection, version: int) -> int:
    """Forgets what only versions before this one need; how many rows that were."""
    known = read_state(connection, lock=True)
    if version <= known.oldest:
        return 0
    if version > known.version:
        raise _future_version_error(version, known)
    dropped = connection.execute(delete(store_schema.history).where(_rows.until <= version)).rowcount
    connection.execute(update(store_schema.state).values(oldest=version))
    return dropped


def _batches(ids: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(ids)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
