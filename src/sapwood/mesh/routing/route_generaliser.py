"""The generaliser of a broker's tables: real routes, and a sample of real messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.mesh.core.frames import Route as AnyRoute
from sapwood.mesh.routing.generalisation import Generalisation, generalise
from sapwood.mesh.routing.message_sample import SampleMessage, find_hits
from sapwood.mesh.routing.route import Route

FindHits = Callable[[Sequence[SampleMessage], Sequence[Route]], Sequence[int]]
"""for each of some routes, the messages of a sample that it accepts, as bits"""


class RouteGeneraliser:
    """Generalises tables that exceed a budget, which is in bytes of encodings.

    It has no randomness and no clock: what it returns depends on the routes and the sample that it was given.
    """

    def __init__(self, budget: int, find_hits: FindHits = find_hits) -> None:
        self.budget: int | None = budget
        self._find_hits_in = find_hits
        self._sample: tuple[SampleMessage, ...] = ()

    @property
    def is_sampled(self) -> bool:
        """Whether there are messages to measure losses with."""
        return bool(self._sample)

    def set_sample(self, messages: Sequence[object]) -> None:
        """Measure losses with other messages from now on."""
        self._sample = tuple([each for each in messages if isinstance(each, SampleMessage)])

    def size(self, route: AnyRoute) -> int:
        """Return the bytes that a route takes."""
        assert isinstance(route, Route)
        return len(route.identity) + 1

    def generalise(self, routes: Sequence[AnyRoute], budget: int) -> _Covering:
        """Return what stands for routes within a budget."""
        own = [route for route in routes if isinstance(route, Route)]
        with pause_garbage_collection():
            return _Covering(generalise(own, budget, self._find_hits, self.size))

    def _find_hits(self, routes: Sequence[Route]) -> Sequence[int]:
        return self._find_hits_in(self._sample, routes)


class _Covering:
    """A generalisation, for a table that knows of routes nothing but their keys."""

    def __init__(self, made: Generalisation) -> None:
        self._made = made

    def cover(self, route: AnyRoute) -> AnyRoute | None:
        """Return the entry that accepts all that a route accepts, if there is one."""
        assert isinstance(route, Route)
        return self._made.cover(route)
