"""Which queries are left out because streams would feed each other in a circle.

A broker refuses the query that closes a circle, whichever comes last. A pipeline may start at any version,
and has to come to the same for each; so it decides by when queries have begun, which a store knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sapwood.errors import QueryError
from sapwood.join.stream_graph import StreamGraph, describe_cycle
from sapwood.lang.language_detection import is_join
from sapwood.lang.xscl.compiler import compile_join
from sapwood.lang.xscl.model import Join


class SubscriptionStart(NamedTuple):
    """A subscription, and the version from which on it has been there."""

    id: str
    query: str
    since: int


class StreamCycles:
    """The queries that publish, and those of them that would close a circle."""

    def __init__(self) -> None:
        self._publishing: dict[str, tuple[SubscriptionStart, Join]] = {}
        self.closing: dict[str, str] = {}
        """by id, what is wrong"""

    def change(
        self, removed: Iterable[str], begun: Iterable[SubscriptionStart], namespaces: Mapping[str, str]
    ) -> tuple[list[SubscriptionStart], list[str]]:
        """Takes notice of subscriptions that are gone and of new ones. Of those that have been there before,
        some may now be served that were not, and some not be served any more."""
        before, kept = self.closing, dict(self._publishing)
        for id in removed:
            kept.pop(id, None)
        for each in begun:
            kept.pop(each.id, None)
            join = _publishing(each.query, namespaces)
            if join is not None:
                kept[each.id] = each, join
        if kept == self._publishing:
            return [], []
        old = {id for id in kept if kept[id] == self._publishing.get(id)}
        self._publishing = kept
        self.closing = self._closing()
        free = [kept[id][0] for id in sorted(old) if id in before and id not in self.closing]
        return free, sorted(id for id in old if id in self.closing and id not in before)

    def _closing(self) -> dict[str, str]:
        streams, closing = StreamGraph(), {}
        for begun, join in sorted(self._publishing.values(), key=lambda each: (each[0].since, each[0].id)):
            cycle = streams.cycle(join.streams, join.publish)
            if cycle:
                closing[begun.id] = describe_cycle(cycle)
            else:
                streams.add(join.streams, join.publish, bool(join.links))
        return closing


def _publishing(query: str, namespaces: Mapping[str, str]) -> Join | None:
    """The query, if it publishes; None also if it is not right, which its subscriber learns otherwise."""
    if "publish" not in query.lower() or not is_join(query):
        return None
    try:
        join = compile_join(query, namespaces)
    except QueryError:
        return None
    return join if join.publish else None
