"""Changes of subscriptions that a server asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.errors import ExistingIdError, SapwoodError
from sapwood.serve.engine.engine_settings import EngineSettings, TenantQuota
from sapwood.serve.log.log_database import LOCK_TIMEOUT
from sapwood.serve.query_cost import check_cost
from sapwood.store import NewSubscription, Subscription, SubscriptionStore


class ChangedSubscription(SapwoodError):
    """Raised where a subscription is not in the state that a change expects."""


class QuotaExceeded(SapwoodError):
    """Raised for what a tenant may not do."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A subscription after a change."""

    subscription: Subscription | None
    version: int
    """of the store"""
    created: bool = False


class SubscriptionChanges:
    """The operations on subscriptions, each with its checks; other processes may change the store, too."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._stores: dict[str, SubscriptionStore] = {}

    def run(self, tenant: str, operation: str, arguments: dict[str, Any]) -> Any:
        """Do an operation by its name; returns its result."""
        operations: dict[str, Callable[..., Any]] = {
            "put": self._put,
            "patch": self._patch,
            "remove": self._remove,
            "import": self._import,
            "declare": self._declare,
        }
        return operations[operation](tenant, **arguments)

    def _store(self, tenant: str) -> SubscriptionStore:
        found = self._stores.get(tenant)
        if found is None:
            found = self._stores[tenant] = SubscriptionStore(
                self._settings.store, tenant=tenant, lock_timeout=LOCK_TIMEOUT
            )
        return found

    def find(self, tenant: str, id: str) -> Subscription | None:
        """Return a subscription."""
        return self._store(tenant).get(id)

    def _put(
        self, tenant: str, row: NewSubscription, only_new: bool = False, expected: int | None = None
    ) -> Changed:
        """Create a subscription, or replace it as a whole."""
        store = self._store(tenant)
        old = self._find(store, row.id, expected)
        if old is not None and only_new:
            raise ExistingIdError(row.id)
        quota = self._settings.quota_of(tenant)
        check_cost(row.query, store.namespaces, quota.query_cost)
        subscriber, streams = row.subscriber or "", row.streams or ()
        active = row.active is not False
        if old is None:
            self._check_room(store, quota, 1)
            version = store.add(row.id, row.query, subscriber, row.language, active, streams)
        else:
            version = store.replace(row.id, row.query, subscriber, row.language, active, streams)
        return Changed(store.get(row.id), version, old is None)

    def _patch(self, tenant: str, id: str, fields: dict[str, Any], expected: int | None = None) -> Changed:
        """Change some fields of a subscription."""
        store = self._store(tenant)
        old = self._find(store, id, expected)
        if old is None:
            raise KeyError(id)
        query = fields.get("query", old.query)
        if query != old.query:
            check_cost(query, store.namespaces, self._settings.quota_of(tenant).query_cost)
        language = fields.get("language") or (old.language if query == old.query else None)
        version = store.replace(
            id, query, fields.get("subscriber"), language, fields.get("active"), fields.get("streams")
        )
        return Changed(store.get(id), version)

    def _remove(self, tenant: str, id: str, expected: int | None = None) -> int:
        store = self._store(tenant)
        if self._find(store, id, expected) is None:
            raise KeyError(id)
        return store.remove(id)

    def _import(
        self, tenant: str, rows: Sequence[NewSubscription], replace: bool
    ) -> tuple[dict[str, int], list[tuple[int, SapwoodError]]]:
        """Import some subscriptions; returns counts, and the positions of refused ones with errors."""
        store = self._store(tenant)
        quota = self._settings.quota_of(tenant)
        errors: list[tuple[int, SapwoodError]] = []
        positions = {id(row): i for i, row in enumerate(rows)}  # several may have the same subscription's id
        good = list(rows)
        if quota.query_cost is not None:
            namespaces = store.namespaces
            good = []
            for row in rows:
                try:
                    check_cost(row.query, namespaces, quota.query_cost)
                    good.append(row)
                except SapwoodError as error:
                    errors.append((positions[id(row)], error))
        if quota.subscriptions is not None:
            new = sum(1 for row in good if store.get(row.id) is None)
            self._check_room(store, quota, new)
        with pause_garbage_collection():
            report = store.import_many(
                good, replace, lambda row, error: errors.append((positions[id(row)], error))
            )
        counts = asdict(report)
        counts["refused"] = len(errors)
        return counts, errors

    def _declare(self, tenant: str, namespaces: dict[str, str]) -> int:
        store = self._store(tenant)
        known = store.namespaces
        return store.declare({p: uri for p, uri in namespaces.items() if known.get(p) != uri})

    def _find(self, store: SubscriptionStore, id: str, expected: int | None) -> Subscription | None:
        """Return a subscription; ChangedSubscription if it is not in the expected version."""
        found = store.get(id)
        if expected is not None and (found is None or found.since != expected):
            state = "there is none" if found is None else f"it is at version {found.since}"
            raise ChangedSubscription(
                f"the subscription {id!r} is not at version {expected}: {state}; read it again, and repeat"
            )
        return found

    def _check_room(self, store: SubscriptionStore, quota: TenantQuota, new: int) -> None:
        if quota.subscriptions is not None and len(store) + new > quota.subscriptions:
            raise QuotaExceeded(
                f"the quota allows {quota.subscriptions:,} subscriptions; remove some, or have it raised"
            )

    def close(self) -> None:
        """Close the connections."""
        for store in self._stores.values():
            store.close()
