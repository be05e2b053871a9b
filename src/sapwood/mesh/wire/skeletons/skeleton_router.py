"""Routing by skeletons: all routes of a broker, in an index of paths and values by tenant.

Routes are taken over when there are skeletons, a few at a time, because each takes a tenth of a millisecond.
As long as some are not, and where there are too many, messages are matched.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from time import perf_counter
from typing import TYPE_CHECKING

from sapwood.mesh.routing.route_index import MOST_LINKS
from sapwood.mesh.wire.skeletons.skeleton_index import SkeletonIndex

if TYPE_CHECKING:
    from sapwood.mesh.routing.route import Route
    from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary
    from sapwood.mesh.wire.skeletons.skeleton import Skeleton, TestedNames

LOCAL = MOST_LINKS
"""the bit of subscriptions of this broker, behind those of links"""
MOST_ROUTES = 20_000
_SECONDS = 0.005
"""for which routes are taken over in one call, of which one is due for each message with a skeleton"""

ListRoutes = Callable[[], "Iterable[tuple[int, Route]]"]


class SkeletonRouter:
    """Decides, on a message's skeleton, which links want it, if no local subscription may."""

    def __init__(self) -> None:
        self._indexes: dict[str, SkeletonIndex] = {}
        self._changes: deque[tuple[bool, int, Route]] = deque()
        self._routes = 0
        self._counts: Counter[int] = Counter()
        """by bit, the number of routes"""
        self._gave_up = False
        self._bits: dict[str, int] = {}
        self._list_routes: ListRoutes = tuple

    def set_source(self, list_routes: ListRoutes) -> None:
        """Set where all routes are found, with their bits, when they have become few enough again."""
        self._list_routes = list_routes

    def change(self, bit: int, added: Collection[Route], removed: Collection[Route]) -> None:
        """Change what a link, or LOCAL, wants: each route once more, or once less.

        The source has the changes already.
        """
        self._routes += len(added) - len(removed)
        self._counts[bit] += len(added) - len(removed)
        if self._gave_up:
            if self._routes > MOST_ROUTES // 2:
                return
            self._gave_up = False
            self._changes.extend((True, bit, route) for bit, route in self._list_routes())
        elif self._routes > MOST_ROUTES:
            self._gave_up = True
            self._indexes.clear()
            self._changes.clear()
        else:
            self._changes.extend((True, bit, route) for route in added)
            self._changes.extend((False, bit, route) for route in removed)

    def set_bit(self, link: str, bit: int) -> None:
        """Name the bit of a link."""
        self._bits[link] = bit

    def count(self, link: str) -> int:
        """Return how many routes a neighbour has told."""
        return self._counts[self._bits[link]] if link in self._bits else 0

    def take_over(self) -> bool:
        """Take over some changes; return whether none is left, and the routes are not too many."""
        if self._gave_up:
            return False
        until = perf_counter() + _SECONDS
        while self._changes and perf_counter() < until:
            is_added, bit, route = self._changes.popleft()
            index = self._indexes.get(route.tenant)
            if index is None:
                index = self._indexes[route.tenant] = SkeletonIndex(never_definite=1 << LOCAL)
            if is_added:
                index.add(bit, route)
            else:
                index.remove(bit, route)
        return not self._changes

    def find_tested(self, tenant: str, link: str) -> TestedNames | None:
        """Return the names that a neighbour, and those behind it, test; None if that is not known."""
        bit = self._bits.get(link)
        if bit is None or not self.take_over():
            return None
        index = self._indexes.get(tenant)
        return index.tested_by(bit) if index is not None else None

    def decide(
        self, tenant: str, stream: str, skeleton: Skeleton, dictionary: WireDictionary, is_local: bool
    ) -> int | None:
        """Return the links that want a message, as bits; None if the message has to be read for that.

        Without `is_local`, it does not matter whether local subscriptions want it.
        """
        if not self.take_over():
            return None
        index = self._indexes.get(tenant)
        if index is None:
            return 0
        masks = index.decide(skeleton, dictionary, stream)
        if masks is None:
            return None
        undecided = masks.possible & ~masks.definite
        if not is_local:
            undecided &= ~(1 << LOCAL)
        return None if undecided else masks.definite
