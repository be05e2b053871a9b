"""SubscriptionStore, the public interface of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from sqlalchemy import Connection

from sapwood.errors import ArgumentError, ExistingIdError, StoreError
from sapwood.lang.languages import compile_text
from sapwood.lang.namespaces import Namespaces, declare, to_prefixes
from sapwood.store import history, subscription_search
from sapwood.store.bulk_import import (
    BulkImport,
    OnChecked,
    OnError,
    OnProgress,
    OnReplaced,
    check_row,
    new_subscription,
    updated_subscription,
)
from sapwood.store.database import Database
from sapwood.store.history import StoreChange, begin_change
from sapwood.store.subscription import Changes, ImportReport, NewSubscription, Subscription
from sapwood.store.subscription_search import SubscriptionFilter
from sapwood.store.text_checks import check_namespaces, check_tenant, check_text, could_be_id, to_streams


class SubscriptionStore:
    """Subscriptions in a database, and every version of them that has not been pruned.

    A location is the path of an SQLite file, or a URL: `sqlite:///…` or `postgresql://…`. Several threads and
    processes may use one store; each change is a transaction of its own, and writers wait for one another.
    Failures raise StoreError with a reason of one line.
    """

    def __init__(
        self, location: str, create: bool = True, tenant: str = "", *, lock_timeout: float = 60
    ) -> None:
        """Open a store; one that does not exist is created, or refused with `create=False`.

        Tenants of one store see nothing of each other but its version, which they share. `lock_timeout` is
        how many seconds a change waits for other writers of an SQLite file.
        """
        check_tenant(tenant)
        self._database = Database(location, create, lock_timeout=lock_timeout)
        self._tenant = tenant

    def close(self) -> None:
        """Close the connections; a store that is used again reconnects."""
        self._database.close()

    def __enter__(self) -> SubscriptionStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SubscriptionStore({self._database.name!r})"

    @property
    def name(self) -> str:
        """The location of the store, without a password."""
        return self._database.name

    # -- the current state -----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The current version: 0 in a new store, raised by each transaction that changes anything."""
        with self._database.reading() as connection:
            return history.read_state(connection).version

    @property
    def oldest(self) -> int:
        """The oldest version that can still be read."""
        with self._database.reading() as connection:
            return history.read_state(connection).oldest

    @property
    def namespaces(self) -> dict[str, str]:
        """The declared prefixes and their namespaces."""
        with self._database.reading() as connection:
            return history.read_namespaces(connection, self._tenant)

    def __len__(self) -> int:
        """Return the number of current subscriptions, active or not."""
        with self._database.reading() as connection:
            return history.count_current(connection, self._tenant)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.get(id) is not None

    def __bool__(self) -> bool:
        """Return True: an empty store is true, too."""
        return True

    def get(self, id: str) -> Subscription | None:
        """Return the current subscription, or None."""
        with self._database.reading() as connection:
            return self._find(connection, [id]).get(id)

    def subscriptions(
        self, subscriber: str | None = None, active: bool | None = None, language: str | None = None
    ) -> Iterator[Subscription]:
        """Yield the current subscriptions in the order added, from one snapshot.

        All of them, or only a subscriber's, or only those that are active (True) or not (False), or only
        those in a language.
        """
        if subscriber is not None:
            check_text(subscriber, "a subscriber")
        with self._database.reading() as connection:
            yield from history.iter_current(connection, self._tenant, subscriber, active, language)

    def search(self, wanted: SubscriptionFilter, after: int = 0, limit: int = 100) -> list[Subscription]:
        """Return a page of the current subscriptions that meet a filter, in the order added."""
        with self._database.reading() as connection:
            return subscription_search.search(connection, self._tenant, wanted, after, limit)

    # -- changes ---------------------------------------------------------------------------------------

    def declare(self, namespaces: Namespaces) -> int:
        """Declare prefixes that queries may use; returns the version that has them.

        A prefix keeps its namespace for good, since queries that use it are in the history. `"any"`, which
        lets names without a prefix match in any namespace, has to be declared before the first subscription.
        """
        further = to_prefixes(namespaces)
        check_namespaces(further)
        with begin_change(self._database, self._tenant) as change:
            known = history.read_namespaces(change.connection, self._tenant)
            before = dict(known)
            try:
                declare(known, further, history.count_current(change.connection, self._tenant))
            except ValueError as error:
                raise StoreError(str(error)) from None
            change.declare({prefix: uri for prefix, uri in known.items() if prefix not in before})
        return change.version

    def add(
        self,
        id: str,
        query: str,
        subscriber: str = "",
        language: str | None = None,
        active: bool = True,
        streams: Iterable[str] = (),
    ) -> int:
        """Add a subscription; returns the version that has it.

        A language of None is the one that the query looks like. A subscription that is restricted to streams
        is evaluated by the service alone. Raises QueryError, which says where and why the query is invalid,
        and StoreError if the id exists, or a join is restricted: it names its streams itself.
        """
        row = self._check(NewSubscription(id, query, subscriber, language, active, to_streams(streams)))

        def add(change: StoreChange, old: Subscription | None) -> Subscription:
            if old is not None:
                raise ExistingIdError(id)
            return new_subscription(row, change)

        return self._change(id, add)

    def replace(
        self,
        id: str,
        query: str,
        subscriber: str | None = None,
        language: str | None = None,
        active: bool | None = None,
        streams: Iterable[str] | None = None,
    ) -> int:
        """Replace the query of a subscription, which keeps its place in the order.

        A subscriber, activity or streams of None stay as they are; empty streams are all. A call that changes
        nothing makes no version.
        """
        row = self._check(NewSubscription(id, query, subscriber, language, active, to_streams(streams)))
        return self._change(
            id, lambda change, old: updated_subscription(_require_found(id, old), row, change)
        )

    def activate(self, id: str) -> int:
        """Activate a subscription; returns the version from which on it is matched."""
        return self._set_active(id, True)

    def deactivate(self, id: str) -> int:
        """Deactivate a subscription but keep it; returns the version from which on it is not matched."""
        return self._set_active(id, False)

    def remove(self, *ids: str) -> int:
        """Remove subscriptions, all or, if one does not exist, none; returns the version without them."""
        with begin_change(self._database, self._tenant) as change:
            found = self._find(change.connection, ids)
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
        """Import many subscriptions in order, in chunks, each one transaction that makes one version at most.

        An id that exists, also in an earlier row, is refused, or with `replace` replaced. `on_error` gets
        each refused row with its error after its chunk is committed; without it, the error is raised, and
        the chunk is rolled back. After each chunk `on_progress` gets the number of processed rows, and
        `on_replaced` each replaced subscription before and after. `on_checked` gets each valid query with
        its compiled form, once for equal ones. However an import ends, earlier chunks stay.
        """
        if chunk < 1:
            raise ArgumentError(f"chunk must be at least 1, not {chunk!r}")
        bulk = BulkImport(self._database, self._tenant, replace, on_error, on_replaced, on_checked)
        return bulk.run(rows, chunk, on_progress)

    # -- versions --------------------------------------------------------------------------------------

    def at(self, version: int) -> Iterator[tuple[str, str]]:
        """Yield the ids and queries that were active at a version, in the order added."""
        with self._database.reading() as connection:
            history.require_versions(connection, version)  # at once, not when the first is read
        return self._at(version)

    def changes(self, since: int, until: int) -> Changes:
        """Return the difference between the active subscriptions of version `since` and of version `until`.

        A subscription that was removed and added again unchanged is not part of it.
        """
        if since > until:
            raise StoreError(f"changes lead from a version to a later one, not from {since} to {until}")
        with self._database.reading() as connection:
            history.require_versions(connection, since, until)
            return history.net_changes(connection, self._tenant, since, until)

    def begun(self, since: int, until: int) -> list[tuple[str, str, int]]:
        """Return the subscriptions that began between two versions and are active at the later one.

        They were not active with the same query all the time since the version `since`. Each has its id, its
        query, and the version in which it became active with that query, in the order added. One that was
        removed and added again is among them, and so is one whose earlier row has been pruned after a change
        of its subscriber alone.
        """
        with self._database.reading() as connection:
            history.require_versions(connection, until)
            return list(history.iter_begun(connection, self._tenant, since, until))

    def subscribers(self, since: int, until: int) -> Iterator[tuple[str, str]]:
        """Yield the ids and subscribers active at `until` that changed after `since`; all, if that is -1."""
        with self._database.reading() as connection:
            history.require_versions(connection, until)
            yield from history.iter_subscribers(connection, self._tenant, since, until)

    def placed(
        self, version: int, after: int = 0, since: int | None = None
    ) -> Iterator[tuple[int, str, str]]:
        """Yield the places, ids and queries that were active at a version, in the order added.

        Only those after the place `after`, so that an interrupted reader can resume; with `since`, only those
        that have changed since that earlier version.
        """
        with self._database.reading() as connection:
            history.require_versions(connection, version)
        return self._placed(version, after, since)

    def mark(self, version: int) -> str:
        """Return a digest of a version's first and last subscriptions, which differs between stores.

        It stays the same as long as the version can be read.
        """
        with self._database.reading() as connection:
            history.require_versions(connection, version)
            return history.digest(connection, self._tenant, version)

    def restricted(self, version: int) -> int:
        """Return the number of active subscriptions that are restricted to streams, and read by no engine
        but the service."""
        with self._database.reading() as connection:
            history.require_versions(connection, version)
            return history.count_restricted(connection, self._tenant, version)

    def prune(self, version: int) -> int:
        """Delete the history that only versions before this one need; returns the number of deleted rows."""
        with self._database.writing() as connection:
            return history.prune(connection, version)

    # ----------------------------------------------------------------------------------------------------

    def _at(self, version: int) -> Iterator[tuple[str, str]]:
        with self._database.reading() as connection:
            history.require_versions(connection, version)  # it may have been pruned meanwhile
            yield from history.iter_active(connection, self._tenant, version)

    def _placed(self, version: int, after: int, since: int | None) -> Iterator[tuple[int, str, str]]:
        with self._database.reading() as connection:
            history.require_versions(connection, version)
            yield from history.iter_active_with_places(connection, self._tenant, version, after, since)

    def _find(self, connection: Connection, ids: Iterable[str]) -> dict[str, Subscription]:
        return history.find_current(connection, self._tenant, filter(could_be_id, ids))

    def _check(self, row: NewSubscription) -> NewSubscription:
        check_row(row)
        compile_text(row.query, self.namespaces, row.language)
        return row

    def _set_active(self, id: str, active: bool) -> int:
        def switch(change: StoreChange, old: Subscription | None) -> Subscription:
            return replace(_require_found(id, old), active=active, since=change.next_version)

        return self._change(id, switch)

    def _change(self, id: str, become: Callable[[StoreChange, Subscription | None], Subscription]) -> int:
        """Replace one subscription by another; returns the version that has it."""
        with begin_change(self._database, self._tenant) as change:
            old = self._find(change.connection, [id]).get(id)
            new = become(change, old)
            if old is None:
                change.put([new])
            elif not new.same(old):
                change.end([old])
                change.put([new])
        return change.version


def _require_found(id: str, found: Subscription | None) -> Subscription:
    if found is None:
        raise StoreError(f"there is no subscription {id!r}")
    return found
