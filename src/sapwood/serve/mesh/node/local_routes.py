"""The routes of local subscriptions, as they change with the store."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sapwood.errors import SapwoodError
from sapwood.mesh.routing.route import Route, routes_of

if TYPE_CHECKING:
    from sapwood.store.tenant_changes import TenantChange

_log = logging.getLogger(__name__)
Place = tuple[str, int]


class LocalRoutes:
    """By tenant and place of a subscription, its routes, and which of them are new or gone."""

    def __init__(self) -> None:
        self._routes: dict[Place, tuple[Route, ...]] = {}
        self._added: list[Route] = []
        self._removed: list[Route] = []

    def __len__(self) -> int:
        """The number of subscriptions."""
        return len(self._routes)

    def apply(self, change: TenantChange, namespaces: Mapping[str, str]) -> None:
        """Note that a subscription begins with a new state, or ends."""
        new = change.subscription
        if new is None:
            self.remove(change.tenant, change.place)
        else:
            self.put(change.tenant, change.place, new.query, new.streams, namespaces)

    def put(
        self, tenant: str, place: int, query: str, streams: Sequence[str], namespaces: Mapping[str, str]
    ) -> None:
        """Note that a subscription has begun, or has changed."""
        try:
            routes = routes_of(query, namespaces, tenant, tuple(streams))
        except SapwoodError as error:  # what cannot be evaluated here gets nothing, whatever it wants
            _log.error("the subscription at place %d of %s has no route: %s", place, tenant, error)
            routes = ()
        old = self._routes.get((tenant, place), ())
        if routes != old:
            self._added += routes
            self._removed += old
            self._routes[tenant, place] = routes

    def remove(self, tenant: str, place: int) -> None:
        """Note that a subscription has ended."""
        self._removed += self._routes.pop((tenant, place), ())

    def get(self, tenant: str, place: int) -> tuple[Route, ...]:
        """Return the routes of a subscription."""
        return self._routes.get((tenant, place), ())

    def list_routes(self) -> Iterator[Route]:
        """Yield the routes of all subscriptions, each as often as it is used."""
        for routes in self._routes.values():
            yield from routes

    def take(self) -> tuple[tuple[Route, ...], tuple[Route, ...]]:
        """Return the routes that are new and gone since the last call."""
        added, removed = tuple(self._added), tuple(self._removed)
        self._added, self._removed = [], []
        return added, removed
