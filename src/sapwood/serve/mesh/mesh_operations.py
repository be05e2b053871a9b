"""What the server asks its node for: routes to prepare, barriers, and what operators want to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sapwood.lang.pattern import use_prefixes
from sapwood.mesh.core import events
from sapwood.mesh.routing.route import Route, routes_of
from sapwood.serve.mesh.mesh_frames import MeshRequest

if TYPE_CHECKING:
    from sapwood.serve.mesh.mesh_runtime import MeshRuntime

_MOST_LISTED = 10_000


class MeshOperations:
    """Operations on a node, by name."""

    def __init__(self, runtime: MeshRuntime) -> None:
        self._runtime = runtime
        self._prepared: dict[int, tuple[Route, ...]] = {}
        """by request, routes that a subscription is about to have"""

    def run(self, command: MeshRequest) -> Any:
        """Do an operation; returns its result."""
        operations: dict[str, Callable[..., Any]] = {
            "prepare": self._prepare,
            "release": self._release,
            "barrier": self._barrier,
            "routes": self._list_routes,
            "subscription routes": self._find_routes,
            "has routes": self._has_routes,
            "trace": self._trace,
            "status": self._runtime.describe,
        }
        if command.operation in ("prepare", "barrier"):
            return operations[command.operation](command.request, **command.arguments)
        return operations[command.operation](**command.arguments)

    def _prepare(
        self, request: int, tenant: str, query: str, streams: Sequence[str], language: str | None = None
    ) -> int:
        """Tell all brokers of a query that a subscription is about to have; done when they have it."""
        namespaces = self._runtime.namespaces_of(tenant)
        routes = self._prepared[request] = routes_of(query, namespaces, tenant, tuple(streams), language)
        self._runtime.feed(events.RoutesChanged(("request", request), routes))
        return request

    def _release(self, prepared: int) -> None:
        """Take back what was prepared: the subscription has the query now, or never will."""
        routes = self._prepared.pop(prepared, ())
        self._runtime.feed(events.RoutesChanged(None, (), routes))

    def _barrier(self, request: int) -> int:
        """Wait until all messages that were published anywhere before have arrived here."""
        self._runtime.feed(events.BarrierSet(("request", request)))
        return request

    def _list_routes(self, link: str | None = None, limit: int = _MOST_LISTED) -> list[dict[str, Any]]:
        """Return what is wanted on the side of a neighbour, or by local subscriptions."""
        table = self._runtime.node.table
        routes = table.local_routes() if link is None else table.routes_of(link)
        return [self._describe(route) for route in routes[:limit]]

    def _describe(self, route: Any) -> dict[str, Any]:
        with use_prefixes(self._runtime.namespaces_of(route.tenant)):
            return {
                "key": f"{route.key:032x}",
                "tenant": route.tenant,
                "stream": route.stream,
                "condition": str(route.condition),
            }

    def _find_routes(self, tenant: str, place: int) -> list[dict[str, Any]]:
        """Return the routes of a subscription."""
        return [self._describe(route) for route in self._runtime.local_routes.get(tenant, place)]

    def _has_routes(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return where routes are wanted, as seen from here."""
        node = self._runtime.node
        found: list[dict[str, Any]] = []
        for key in keys:
            sides = node.table.sides_of(int(key, 16))
            versions = {link: node.table.wanted[link].version for link in sides if link in node.table.wanted}
            found.append({"key": key, "sides": sides, "versions": versions})
        return found

    def _trace(self, tenant: str, id: str) -> list[dict[str, Any]]:
        """Return what became here of messages with an id."""
        return self._runtime.store.trace(tenant, id)
