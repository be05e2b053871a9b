"""The public face of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import TracebackType

from sqlalchemy import Connection

from sapwood.errors import StoreError
from sapwood.lang.languages import compile_text
from sapwood.lang.namespaces import Namespaces, declare, to_prefixes
from sapwood.store import history
from sapwood.store.bulk_import import (
    BulkImport,
    OnChecked,
    OnError,
    OnProgress,
    OnReplaced,
    check_row,
    existing_id_error,
    new_subscription,
    updated_subscription,
)
from sapwood.store.database import Database
from sapwood.store.history import StoreChange, begin_change
from sapwood.store.subscription import Changes, ImportReport, NewSubscription, Subscription
from sapwood.store.text_checks import check_namespaces, check_text, could_be_id


class SubscriptionStore:
    """Subscriptions in a database, and every version of them that has not been pruned.

    A location is the path of an SQLite file, or a URL: `sqlite:///…` or `postgresql://…`. Several threads and
    processes may use one store; each change is a transaction of its own, and writers wait for one another.
    Whatever cannot be done raises StoreError, which says why in one line.
    """

    def __init__(self, location: str, create: bool = True) -> None:
        """Opens a store, which is made if it is absent, or refused if it must not be."""
        self._database = Database(location, create)

    def close(self) -> None:
        """Lets the database go; a store that is used again connects again."""
        self._database.close()

    def __enter__(self) -> SubscriptionStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SubscriptionStore({self._database.name!r})"

    @property
    def name(self) -> str:
        """Where the store is, for people: without a password."""
        return self._database.name

    # -- what there is ---------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """0 in a new store; each transaction that changes anything makes the next one."""
        with self._database.reading() as connection:
            return history.read_state(connection).version

    @property
    def oldest(self) -> int:
        """The oldest version that can still be read."""
        with self._database.reading() as connection:
            return history.read_state(connection).oldest

    @property
    def namespaces(self) -> dict[str, str]:
        """The prefixes that queries may use, and what they stand for."""
        with self._database.reading() as connection:
            return history.read_namespaces(connection)

    def __len__(self) -> int:
        """How many subscriptions there are now, active or not."""
        with self._database.reading() as connection:
            return history.count_current(connection)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.get(id) is not None

    def __bool__(self) -> bool:
        """A store is a store, however empty."""
        return True

    def get(self, id: str) -> Subscription | None:
        """The subscription as it is now, or None."""
        with self._database.reading() as connection:
            return _find_current(connection, [id]).get(id)

    def subscriptions(
        self, subscriber: str | None = None, active: bool | None = None, language: str | None = None
    ) -> Iterator[Subscription]:
        """The subscriptions of the moment when the first is read, in the order added, a few at a time.

        All of them, or only a subscriber's, or only those that are active (True) or not (False), or only
        those in a language.
        """
        if subscriber is not None:
            check_text(subscriber, "a subscriber")
        with self._database.reading() as connection:
            yield from history.iter_current(connection, subscriber, active, language)

    # -- changes ---------------------------------------------------------------------------------------

    def declare(self, namespaces: Namespaces) -> int:
        """Adds prefixes that queries may use; the version that has them.

        A prefix keeps its namespace for ever, since queries that use it are in the history. `"any"`, which
        lets names without a prefix match in any namespace, has to be declared before the first subscription.
        """
        further = to_prefixes(namespaces)
        check_namespaces(further)
        with begin_change(self._database) as change:
            known = history.read_namespaces(change.connection)
            before = dict(known)
            try:
                declare(known, further, history.count_current(change.connection))
            except ValueError as error:
                raise StoreError(str(error)) from None
            change.declare({prefix: uri for prefix, uri in known.items() if prefix not in before})
        return change.version

    def add(
        self, id: str, query: str, subscriber: str = "", language: str | None = None, active: bool = True
    ) -> int:
        """Adds a subscription; the version that has it.

        A language of None is the one that the query looks like. QueryError says where and why a query is none
        in its language, StoreError that the id is taken.
        """
        row = self._checked(NewSubscription(id, query, subscriber, language, active))

        def add(change: StoreChange, old: Subscription | None) -> Subscription:
            if old is not None:
                raise existing_id_error(id)
            return new_subscription(row, change)

        return self._change(id, add)

    def replace(
        self,
        id: str,
        query: str,
        subscriber: str | None = None,
        language: str | None = None,
        active: bool | None = None,
    ) -> int:
        """Changes the query of a subscription, which keeps its place in the order.

        A subscriber or activity of None stays as it is. What changes nothing makes no version.
        """
        row = self._checked(NewSubscription(id, query, subscriber, language, active))
        return self._change(
            id, lambda change, old: updated_subscription(_require_found(id, old), row, change)
        )

    def activate(self, id: str) -> int:
        """The subscription takes part in matching from the version that is returned."""
        return self._switch(id, True)

    def deactivate(self, id: str) -> int:
        """The subscription takes no part in matching from the version that is returned, but is kept."""
        return self._switch(id, False)

    def remove(self, *ids: str) -> int:
        """Ends subscriptions, all of them or, if one is not there, none; the version that lacks them."""
        with begin_change(self._database) as change:
            found = _find_current(change.connection, ids)
            change.end([_require_found(id, found.get(id)) for id in dict.fromkeys(ids)])
        return change.version

    def import_many(
        self,
        rows: Iterable[NewSubscription],
        replace: bool = False,
        on_error: OnError | None = None,
        on_progress: OnProgress | None = None,
        chunk: int = 20_000,
        on_replaced: OnReplaced | None = None,
        on_checked: OnChecked | None = None,
    ) -> ImportReport:
        """Adds many subscriptions in order, in chunks, each one transaction that makes one version at most.

        An id that is taken, also by an earlier row, is refused, or with `replace` replaced. What is refused
        is told to `on_error` once its chunk is in, and the rest go in; without it, the error is raised, and
        nothing of its chunk goes in. After each chunk `on_progress` is told how many rows have been dealt
        with, and `on_replaced` each subscription as it was and as it is. `on_checked` is told each query that
        is good, compiled, once for equal ones. However an import ends, the chunks before stay.
        """
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, not {chunk!r}")
        return BulkImport(self._database, replace, on_error, on_replaced, on_checked).run(
            rows, chunk, on_progress
        )

    # -- versions --------------------------------------------------------------------------------------

    def at(self, version: int) -> Iterator[tuple[str, str]]:
        """Ids and queries of the subscriptions that were active at a version, in the order added."""
        with self._database.reading() as connection:
            history.require_versions(connection, version)  # at once, not when the first is read
        return self._at(version)

    def changes(self, since: int, until: int) -> Changes:
        """What to do to the active subscriptions of version `since` to have those of version `until`.

        A subscription that went and came back as it was is not mentioned.
        """
        if since > until:
            raise StoreError(f"changes lead from a version to a later one, not from {since} to {until}")
        with self._database.reading() as connection:
            history.require_versions(connection, since, until)
            return history.net_changes(connection, since, until)

    def begun(self, since: int, until: int) -> list[tuple[str, str, int]]:
        """Of the active subscriptions of version `until`, those that were not there, or not just so, all the
        time since version `since`: id, query, and the version from which on they are. In the order added.

        One that went and came back as it was is among them. What a change of the subscriber alone has pruned
        away, is not known to have been there.
        """
        with self._database.reading() as connection:
            history.require_versions(connection, until)
            return list(history.iter_begun(connection, since, until))

    def subscribers(self, since: int, until: int) -> Iterator[tuple[str, str]]:
        """Ids and subscribers of the active subscriptions of version `until` that were not just so at version
        `since`; of all of them, if that is -1."""
        with self._database.reading() as connection:
            history.require_versions(connection, until)
            yield from history.iter_subscribers(connection, since, until)

    def placed(
        self, version: int, after: int = 0, since: int | None = None
    ) -> Iterator[tuple[int, str, str]]:
        """As `at`, with their places, and only those behind the place `after`, so that whoever was
        interrupted can go on; with `since`, only those that were not just so, in the same place, at that
        earlier version."""
        with self._database.reading() as connection:
            history.require_versions(connection, version)
        return self._placed(version, after, since)

    def mark(self, version: int) -> str:
        """What tells a version from the same version of another store, most likely: a digest of its first
        and last subscriptions, which stays the same as long as the version can be read."""
        with self._database.reading() as connection:
            history.require_versions(connection, version)
            return history.digest(connection, version)

    def prune(self, version: int) -> int:
        """Forgets what only versions before this one need; how many former states were dropped."""
        with self._database.writing() as connection:
            return history.prune(connection, version)

    # ----------------------------------------------------------------------------------------------------

    def _at(self, version: int) -> Iterator[tuple[str, str]]:
        with self._database.reading() as connection:
            history.require_versions(connection, version)  # it may have been pruned meanwhile
            yield from history.iter_active(connection, version)

    def _placed(self, version: int, after: int, since: int | None) -> Iterator[tuple[int, str, str]]:
        with self._database.reading() as connection:
            history.require_versions(connection, version)
            yield from history.iter_active_with_places(connection, version, after, since)

    def _checked(self, row: NewSubscription) -> NewSubscription:
        check_row(row)
        compile_text(row.query, self.namespaces, row.language)
        return row

    def _switch(self, id: str, active: bool) -> int:
        def switch(change: StoreChange, old: Subscription | None) -> Subscription:
            return replace(_require_found(id, old), active=active, since=change.next_version)

        return self._change(id, switch)

    def _change(self, id: str, become: Callable[[StoreChange, Subscription | None], Subscription]) -> int:
        """One subscription becomes another; the version that has it so."""
        with begin_change(self._database) as change:
            old = _find_current(change.connection, [id]).get(id)
            new = become(change, old)
            if old is None:
                change.put([new])
            elif not new.same(old):
                change.end([old])
                change.put([new])
        return change.version


def _find_current(connection: Connection, ids: Iterable[str]) -> dict[str, Subscription]:
    return history.find_current(connection, filter(could_be_id, ids))


def _require_found(id: str, found: Subscription | None) -> Subscription:
    if found is None:
        raise StoreError(f"there is no subscription {id!r}")
    return found
