"""The queries that are not served because streams would feed each other in a cycle.

A broker refuses the query that closes a cycle, whichever comes last. A pipeline may start at any version, and
has to refuse the same queries at each; so the order is that in which they were subscribed, which the store
knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sapwood.errors import QueryError
from sapwood.join.stream_graph import StreamGraph, describe_cycle
from sapwood.lang.languages import compile_text
from sapwood.lang.xscl.model import Join


class SubscriptionStart(NamedTuple):
    """A subscription, and the version at which it started."""

    id: str
    query: str
    since: int


class StreamCycles:
    """The queries that publish, and those of them that would close a cycle."""

    def __init__(self) -> None:
        self._publishing: dict[str, tuple[SubscriptionStart, Join]] = {}
        self.refused: dict[str, str] = {}
        """by id, the cycle that a query would close"""

    def update(
        self, removed: Iterable[str], started: Iterable[SubscriptionStart], namespaces: Mapping[str, str]
    ) -> tuple[list[SubscriptionStart], list[str]]:
        """Update the queries. Returns those of the earlier ones that were refused and no longer are, and
        the ids of those that were not refused and now are."""
        before, publishing = self.refused, dict(self._publishing)
        for id in removed:
            publishing.pop(id, None)
        for start in started:
            publishing.pop(start.id, None)
            join = _compile_publishing(start.query, namespaces)
            if join is not None:
                publishing[start.id] = start, join
        if publishing == self._publishing:
            return [], []
        old = {id for id in publishing if publishing[id] == self._publishing.get(id)}
        self._publishing = publishing
        self.refused = self._find_refused()
        accepted = [publishing[id][0] for id in sorted(old) if id in before and id not in self.refused]
        return accepted, sorted(id for id in old if id in self.refused and id not in before)

    def _find_refused(self) -> dict[str, str]:
        streams, refused = StreamGraph(), {}
        in_order = sorted(self._publishing.values(), key=lambda each: (each[0].since, each[0].id))
        for start, join in in_order:
            cycle = streams.cycle(join.streams, join.publish)
            if cycle:
                refused[start.id] = describe_cycle(cycle)
            else:
                streams.add(join.streams, join.publish, bool(join.links))
        return refused


def _compile_publishing(query: str, namespaces: Mapping[str, str]) -> Join | None:
    """Compile a query that publishes; None for others, and for wrong ones, which are reported elsewhere."""
    if "publish" not in query.lower():
        return None
    try:
        compiled = compile_text(query, namespaces)
    except QueryError:
        return None
    return compiled if isinstance(compiled, Join) and compiled.publish else None
