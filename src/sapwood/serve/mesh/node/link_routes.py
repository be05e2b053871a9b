"""The routes of links in the engines of tenants, where each neighbour is a bit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sapwood.mesh.core.actions import SetRoutes
from sapwood.mesh.routing.route import Route
from sapwood.mesh.routing.route_index import MOST_LINKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sapwood.mesh.wire.skeletons.skeleton_router import SkeletonRouter
    from sapwood.serve.tenants.tenant_engines import TenantEngines

_log = logging.getLogger(__name__)
_NO_BIT = -1


class LinkRoutes:
    """Which messages links want; a neighbour beyond the number of bits gets everything."""

    def __init__(self, engines: TenantEngines, skeletons: SkeletonRouter | None = None) -> None:
        self._engines = engines
        self._skeletons = skeletons
        self._bits: dict[str, int] = {}
        self._routes: dict[str, dict[int, Route]] = {}

    def change(self, action: SetRoutes) -> None:
        """Change what a link wants."""
        bit = self._find_bit(action.link)
        table = self._routes.setdefault(action.link, {})
        changed: dict[str, tuple[list[Route], list[Route]]] = {}
        for route in action.added:
            assert isinstance(route, Route)
            if route.key not in table:
                table[route.key] = route
                changed.setdefault(route.tenant, ([], []))[0].append(route)
        for key in action.removed:
            gone = table.pop(key, None)
            if gone is not None:
                changed.setdefault(gone.tenant, ([], []))[1].append(gone)
        if bit != _NO_BIT:
            for tenant, (added, removed) in changed.items():
                self._engines.of(tenant).set_routes(bit, added, removed)
            if self._skeletons is not None:
                new = [route for added, _ in changed.values() for route in added]
                self._skeletons.change(bit, new, [route for _, old in changed.values() for route in old])

    def keep_only(self, links: Iterable[str]) -> None:
        """Forget the links that are none any more."""
        kept = set(links)
        for link in [link for link in self._bits if link not in kept]:
            bit = self._bits.pop(link)
            gone = self._routes.pop(link, {})
            if bit != _NO_BIT:
                if self._skeletons is not None:
                    self._skeletons.change(bit, (), gone.values())
                for _, engine in self._engines:
                    engine.clear_routes(bit)

    def list_routes(self) -> Iterator[tuple[int, Route]]:
        """Yield the routes of all links that have a bit."""
        for link, routes in self._routes.items():
            bit = self._bits[link]
            if bit != _NO_BIT:
                yield from ((bit, route) for route in routes.values())

    def name(self, mask: int) -> frozenset[str]:
        """Return the neighbours whose bits are set."""
        if not mask and _NO_BIT not in self._bits.values():
            return frozenset()
        return frozenset(link for link, bit in self._bits.items() if bit == _NO_BIT or mask >> bit & 1)

    def _find_bit(self, link: str) -> int:
        found = self._bits.get(link)
        if found is None:
            used = set(self._bits.values())
            free = (bit for bit in range(MOST_LINKS) if bit not in used)
            found = self._bits[link] = next(free, _NO_BIT)
            if self._skeletons is not None and found != _NO_BIT:
                self._skeletons.set_bit(link, found)
            if found == _NO_BIT:
                _log.error("mesh: %s is neighbour number %d: everything is sent there", link, len(used) + 1)
        return found
