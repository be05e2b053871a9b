"""The generaliser of tables as a node sees it: fewer routes in place of many, if these exceed a budget.

A node knows of routes nothing but their keys, so what it generalises with is given to it. By default that is
`EXACT`, which never does: neighbours are told each route as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sapwood.mesh.core.frames import Route


class Covering(Protocol):
    """Routes that stand for others."""

    def cover(self, route: Route) -> Route | None:
        """Return an entry that accepts all that a route accepts, if one is known: for each of the routes that
        were generalised, and perhaps for others."""


class Generaliser(Protocol):
    """Makes tables smaller. What it returns depends on nothing but the routes and samples that it was
    given."""

    budget: int | None
    """the greatest size of a table for a neighbour; None: there is no bound"""

    @property
    def is_sampled(self) -> bool:
        """Whether there are messages to measure losses with."""

    def set_sample(self, messages: Sequence[object]) -> None:
        """Measure losses with other messages from now on."""

    def size(self, route: Route) -> int:
        """Return how much of the budget a route takes."""

    def generalise(self, routes: Sequence[Route], budget: int) -> Covering:
        """Return what stands for routes within a budget, or comes near to it."""


class _Exact:
    """The null twin: tables are exact, whatever their size."""

    budget: int | None = None
    is_sampled = False

    def set_sample(self, messages: Sequence[object]) -> None:
        """Measure nothing."""

    def size(self, route: Route) -> int:
        """Return that a route takes nothing."""
        return 0

    def generalise(self, routes: Sequence[Route], budget: int) -> Covering:
        """Let each route stand for itself."""
        return self

    def cover(self, route: Route) -> Route | None:
        """Return the route."""
        return route


EXACT: Generaliser = _Exact()
