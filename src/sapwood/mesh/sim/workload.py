"""What simulated publishers publish and subscribers want: documents and queries, by number.

Answers are computed once, by a `Broker` that holds all queries, and by the routes' conditions: the simulator
asks for the same ones millions of times.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from sapwood.mesh.core.frames import Route


class Workload(Protocol):
    """Documents and queries with numbers, and which match."""

    documents: int
    queries: int

    def matching(self, document: int) -> Collection[int]:
        """Return the queries that a document matches."""

    def results(self, document: int, query: int) -> Collection[bytes]:
        """Return the bodies of what a query delivers of a document."""

    def routes(self, query: int) -> tuple[Route, ...]:
        """Return necessary conditions of a query."""

    def holding(self, document: int) -> Collection[int]:
        """Return the keys of the routes whose condition holds of a document."""

    def learn(self, route: Route) -> None:
        """Find out of which documents a route holds that a node has made."""

    def is_refused(self, document: int) -> bool:
        """Return whether a document is not accepted as a message."""
