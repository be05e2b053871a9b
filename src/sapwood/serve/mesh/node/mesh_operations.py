"""What the server asks its node for: routes to prepare, barriers, and what operators want to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sapwood.errors import MessageError, SapwoodError
from sapwood.lang.pattern import use_prefixes
from sapwood.mesh.core import events
from sapwood.mesh.routing.route import Route, routes_of
from sapwood.serve.mesh.mesh_errors import UnknownBroker
from sapwood.serve.mesh.mesh_frames import MeshRequest
from sapwood.serve.tenants.evaluation import Publication

if TYPE_CHECKING:
    from sapwood.serve.mesh.node.mesh_runtime import MeshRuntime

_MOST_LISTED = 1_000
_MOST_NAMED = 3
"""routes of a link that are named as the reason why a message was sent there"""
QueryOfStreams = tuple[str, Sequence[str], str | None]
"""a query, the streams that it is restricted to, and its language"""


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
            "prepare all": self._prepare_all,
            "release": self._release,
            "barrier": self._barrier,
            "routes": self._list_routes,
            "route page": self._read_route_page,
            "subscription routes": self._find_routes,
            "has routes": self._has_routes,
            "matched routes": self._match_routes,
            "tables": self._describe_tables,
            "positions": self._read_positions,
            "projection": self._explain_projection,
            "trace": self._trace,
            "status": self._runtime.describe,
        }
        if command.operation in ("prepare", "prepare all", "barrier"):
            return operations[command.operation](command.request, **command.arguments)
        return operations[command.operation](**command.arguments)

    # -- changes ---------------------------------------------------------------------------------------

    def _prepare(
        self, request: int, tenant: str, query: str, streams: Sequence[str], language: str | None = None
    ) -> int:
        """Tell all brokers of a query that a subscription is about to have; done when they have it."""
        namespaces = self._runtime.namespaces_of(tenant)
        routes = routes_of(query, namespaces, tenant, tuple(streams), language)
        return self._announce(request, routes)

    def _prepare_all(self, request: int, tenant: str, queries: Sequence[QueryOfStreams]) -> int:
        """Tell all brokers of queries that subscriptions are about to have; done when they have them.

        What is no query is left out: the change itself is refused for it.
        """
        namespaces = self._runtime.namespaces_of(tenant)
        routes: list[Route] = []
        for query, streams, language in queries:
            try:
                routes += routes_of(query, namespaces, tenant, tuple(streams), language)
            except SapwoodError:
                continue
        return self._announce(request, tuple(routes))

    def _announce(self, request: int, routes: tuple[Route, ...]) -> int:
        self._prepared[request] = routes
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

    # -- tables ----------------------------------------------------------------------------------------

    def _list_routes(self, link: str | None = None, limit: int = _MOST_LISTED) -> list[dict[str, Any]]:
        """Return what is wanted on the side of a neighbour, or by local subscriptions."""
        routes: list[dict[str, Any]] = self._read_route_page(link, 0, limit)["routes"]
        return routes

    def _read_route_page(self, link: str | None, after: int, limit: int) -> dict[str, Any]:
        """Return some of what is wanted on a side, and how much it is."""
        table = self._runtime.node.table
        if link is not None and link not in table.told:
            known = ", ".join(sorted(table.told)) or "none"
            raise UnknownBroker(f"there is no link to {link!r} here; there are: {known}")
        routes = table.local_routes() if link is None else table.routes_of(link)
        shown = [self._describe(route) for route in routes[after : after + limit]]
        return {"routes": shown, "count": len(routes)}

    def _describe(self, route: Any) -> dict[str, Any]:
        with use_prefixes(self._runtime.namespaces_of(route.tenant)):
            return {
                "key": f"{route.key:032x}",
                "tenant": route.tenant,
                "stream": route.stream,
                "condition": str(route.condition),
                "exact": route.exact,
                "reads": None if route.reads is None else sorted(map(str, route.reads)),
            }

    def _describe_tables(self) -> dict[str, Any]:
        """Return the versions and digests of what each neighbour was told, and has told."""
        table = self._runtime.node.table
        described: dict[str, Any] = {}
        for link, told in table.told.items():
            wanted = table.wanted[link]
            described[link] = {
                "told": {
                    "version": told.version,
                    "confirmed": told.confirmed,
                    "count": told.count,
                    "digest": f"{told.digest:032x}",
                    "generalised": told.generalised,
                },
                "wanted": {
                    "version": wanted.version,
                    "count": wanted.count,
                    "digest": f"{wanted.digest:032x}",
                    "known": not table.is_unknown(link),
                },
            }
        return described

    # -- subscriptions ---------------------------------------------------------------------------------

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
            told = self._find_entries(int(key, 16))
            found.append({"key": key, "sides": sides, "versions": versions, "told as": told})
        return found

    def _find_entries(self, key: int) -> dict[str, Any]:
        """Return, by neighbour, the entry that stands for a route in what it is told, if that is another."""
        table = self._runtime.node.table
        found = {link: table.find_entry(link, key) for link in table.told}
        return {link: self._describe(entry) for link, entry in found.items() if entry is not None}

    def _explain_projection(self, tenant: str) -> list[dict[str, Any]]:
        """Return what is cut from a tenant's messages that go to each neighbour, by stream, and why."""
        projection = self._runtime.projection
        with use_prefixes(self._runtime.namespaces_of(tenant)):
            return [
                {"link": link} | projection.explain(link, tenant, stream)._asdict()
                for link in self._runtime.node.table.told
                for stream in projection.list_streams(link, tenant)
            ]

    # -- messages --------------------------------------------------------------------------------------

    def _match_routes(self, tenant: str, stream: str, body: bytes) -> dict[str, Any]:
        """Return, by neighbour, some of the routes that a message meets, and how many do, at present."""
        try:
            matched = self._runtime.find_routes(Publication(tenant, stream, "", body))
        except MessageError:
            return {}
        table = self._runtime.node.table
        found: dict[str, Any] = {link: {"count": 0, "routes": []} for link in table.told}
        for route, links in matched:
            for link in links & found.keys():
                found[link]["count"] += 1
                if len(found[link]["routes"]) < _MOST_NAMED:
                    found[link]["routes"].append(self._describe(route))
        return found

    def _trace(self, tenant: str, id: str) -> list[dict[str, Any]]:
        """Return what became here of messages with an id."""
        return self._runtime.store.trace(tenant, id)

    def _read_positions(self) -> dict[str, int]:
        """Return, by source, the last message that was handled."""
        return self._runtime.node.positions
