"""The routes of links in the engines of tenants, where each neighbour is a bit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sapwood.mesh.core.actions import SetRoutes
from sapwood.mesh.routing.condition_uses import ConditionUses
from sapwood.mesh.routing.route import Route
from sapwood.mesh.routing.route_index import MOST_LINKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sapwood.mesh.projection.link_projection import LinkProjection
    from sapwood.mesh.wire.skeletons.skeleton_router import SkeletonRouter
    from sapwood.serve.tenants.tenant_engines import TenantEngines

_log = logging.getLogger(__name__)
_NO_BIT = -1


class LinkRoutes:
    """Which messages links want; a neighbour beyond the number of bits gets everything.

    Of routes that differ only in what they read, engines are given one.
    """

    def __init__(
        self,
        engines: TenantEngines,
        projection: LinkProjection | None = None,
        skeletons: SkeletonRouter | None = None,
    ) -> None:
        self._engines = engines
        self._projection = projection
        self._skeletons = skeletons
        self._bits: dict[str, int] = {}
        self._routes: dict[str, dict[int, Route]] = {}
        self._uses: dict[str, ConditionUses] = {}
        """by link, the conditions of its routes"""
        self._partial: dict[str, dict[int, dict[int, None]]] = {}
        """by link and key of a route that reads whole messages, the keys of those that read parts"""

    def change(self, action: SetRoutes) -> None:
        """Change what a link wants."""
        bit = self._find_bit(action.link)
        table = self._routes.setdefault(action.link, {})
        new: list[Route] = []
        for route in action.added:
            assert isinstance(route, Route)
            if route.key not in table:
                table[route.key] = route
                new.append(route)
        known = [table.pop(key, None) for key in action.removed]
        gone = [route for route in known if route is not None]
        if self._projection is not None:
            self._projection.change(action.link, new, gone)
        if bit != _NO_BIT:
            self._note_partial(action.link, new, gone)
            added, removed = self._uses.setdefault(action.link, ConditionUses()).change(new, gone)
            changed: dict[str, tuple[list[Route], list[Route]]] = {}
            for route in added:
                changed.setdefault(route.tenant, ([], []))[0].append(route)
            for route in removed:
                changed.setdefault(route.tenant, ([], []))[1].append(route)
            for tenant, (some, others) in changed.items():
                self._engines.of(tenant).set_routes(bit, some, others)
            if self._skeletons is not None:
                self._skeletons.change(bit, added, removed)

    def _note_partial(self, link: str, new: Iterable[Route], gone: Iterable[Route]) -> None:
        """Note which routes read parts of messages, by the one of their condition that reads whole ones."""
        partial = self._partial.setdefault(link, {})
        for route in new:
            whole = route.of_whole_messages
            if whole is not route:
                partial.setdefault(whole.key, {})[route.key] = None
        for route in gone:
            whole = route.of_whole_messages
            if whole is not route:
                del partial[whole.key][route.key]
                if not partial[whole.key]:
                    del partial[whole.key]

    def keep_only(self, links: Iterable[str]) -> None:
        """Forget the links that are none any more."""
        kept = set(links)
        if self._projection is not None:
            self._projection.keep_only(kept)
        for link in [link for link in self._bits if link not in kept]:
            bit = self._bits.pop(link)
            self._routes.pop(link, None)
            self._partial.pop(link, None)
            uses = self._uses.pop(link, ConditionUses())
            if bit != _NO_BIT:
                if self._skeletons is not None:
                    self._skeletons.change(bit, (), list(uses))
                for _, engine in self._engines:
                    engine.clear_routes(bit)

    def list_routes(self) -> Iterator[tuple[int, Route]]:
        """Yield the routes of all links that have a bit."""
        for link, uses in self._uses.items():
            bit = self._bits[link]
            if bit != _NO_BIT:
                yield from ((bit, route) for route in uses)

    def mask_of(self, link: str) -> int:
        """Return the bit of a neighbour as a number; 0 if it has none."""
        bit = self._bits.get(link, _NO_BIT)
        return 0 if bit == _NO_BIT else 1 << bit

    def list_keys(self, link: str, routes: Iterable[Route]) -> list[int]:
        """Return the keys of the routes of a link with the conditions of some that read whole messages."""
        keys = [route.key for route in routes]
        partial = self._partial.get(link)
        if not partial:
            return keys
        table = self._routes[link]
        found = [key for key in keys if key in table]
        for key in keys:
            found += partial.get(key, ())
        return found

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
