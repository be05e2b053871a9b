"""Which routes a message meets, as the sender found out: a broker that only forwards it need not read it.

    sender     matches a message, and lists which routes it meets of the table that an inner neighbour told
    receiver   looks up on which of its sides these routes are wanted, and lists them for the next one

What is listed is a fact about a message and a set of routes, which the digest names. It decides whom the
message is for if that set is what the receiver has told the sender now: each route that is wanted on any
other side of the receiver, as it is, and perhaps some that are not wanted any more. A route that is new, or
stands for others, makes another set; then the message is matched.

Of a message that meets many routes, some are listed. Sides that want one of these want the message; whether
others do is known only if they want nothing at all.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sapwood.mesh.core.frames import MessageKey
from sapwood.mesh.core.tables.route_table import LOCAL, RouteTable
from sapwood.mesh.wire.message_content import MOST_HITS, SOME_HITS, Hits

if TYPE_CHECKING:
    from sapwood.mesh.wire.message_content import MessageContent
    from sapwood.serve.mesh.node.link_routes import LinkRoutes
    from sapwood.serve.tenants.evaluation import Evaluation, Publication
    from sapwood.serve.tenants.tenant_engines import TenantEngines

_MESSAGES = 20_000
"""of which hits are kept, for neighbours that get them later"""


class MessageHits:
    """Decides on the hits that messages come with, and finds those that they go on with."""

    def __init__(
        self,
        table: RouteTable,
        routes: LinkRoutes,
        engines: TenantEngines,
        counters: Counter[str],
        mode: str,
        has_local_changes: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_local_changes` returns whether what local subscriptions want is not yet in the table."""
        self._table = table
        self._routes = routes
        self._engines = engines
        self._counters = counters
        self._has_local_changes = has_local_changes
        self._is_active = mode != "never"
        self._inner: tuple[str, ...] = ()
        self._kept: OrderedDict[MessageKey, dict[str, Hits]] = OrderedDict()

    def set_inner(self, links: Iterable[str]) -> None:
        """Set which neighbours forward messages to others."""
        self._inner = tuple(links) if self._is_active else ()

    # -- what has come ---------------------------------------------------------------------------------

    def decide(self, content: MessageContent, link: str | None, is_local: bool) -> int | None:
        """Return the links that want a message that has come by one, as bits; None if it has to be matched
        for that. Without `is_local`, it does not matter whether local subscriptions want it."""
        hits = content.hits
        if hits is None or link is None or not self._is_active:
            return None
        table = self._table
        sides = table.find_sides(hits.table, hits.keys, hits.is_complete, link)
        if sides is None:
            self._counters["outdated hits"] += not table.covers(hits.table, link)
            return None
        links = 0
        for name, told in table.told.items():
            if sides & told.bit:
                links |= self._routes.mask_of(name)
        if is_local and (sides & LOCAL or not self._excludes_local(content.tenant, hits)):
            return None
        return links

    def _excludes_local(self, tenant: str, hits: Hits) -> bool:
        """Return whether no local subscription wants a message of which no listed route is wanted here."""
        broker = self._engines.of(tenant).broker
        if broker.joins or self._has_local_changes():  # joins see every message
            return False
        return hits.is_complete or not len(broker)

    # -- what goes out ---------------------------------------------------------------------------------

    def find(
        self, message: Publication, evaluation: Evaluation, link: str | None, used: Hits | None
    ) -> dict[str, Hits]:
        """Return the hits for each neighbour that forwards messages and wants one that was matched just now,
        or was decided on the hits that it has come with, by a link."""
        found: dict[str, Hits] = {}
        table = self._table
        for name in self._inner:
            if name == link or table.is_unknown(name) or not evaluation.links & self._routes.mask_of(name):
                continue
            if used is not None:
                keys, is_complete = table.select(used.keys, name), used.is_complete
            else:
                keys, is_complete = self._list_keys(message, evaluation, name)
            if keys:
                found[name] = Hits(table.wanted[name].digest, keys, is_complete)
        return found

    def _list_keys(
        self, message: Publication, evaluation: Evaluation, link: str
    ) -> tuple[tuple[int, ...], bool]:
        if evaluation.slots is None:
            return (), False
        bit = self._routes.mask_of(link).bit_length() - 1
        engine = self._engines.of(message.tenant)
        routes, is_complete = engine.find_hits(evaluation.slots, message.stream, bit, MOST_HITS, SOME_HITS)
        keys = self._routes.list_keys(link, routes)
        return tuple(keys[:MOST_HITS]), is_complete and len(keys) <= MOST_HITS

    def keep(self, key: MessageKey, found: dict[str, Hits]) -> None:
        """Keep the hits of a message for when it is sent, in place of those from before."""
        self._kept.pop(key, None)
        if found:
            self._kept[key] = found
            if len(self._kept) > _MESSAGES:
                self._kept.popitem(last=False)

    def get(self, link: str, key: MessageKey) -> Hits | None:
        """Return what a message that is sent to a neighbour is to carry."""
        found = self._kept.get(key)
        return found.get(link) if found is not None and link in self._inner else None
