"""The tables of a node and of its neighbours: what is told, what is received, and what all brokers have.

A table of a neighbour is *complete* when all its parts are there, and *open* as long as the neighbour lacks
tables itself. A neighbour whose table is not complete, or open, gets everything: no table means forward,
never drop. Routes are added to what neighbours have at once, and removed from it a second later or so.

Digests heal what should not happen: a neighbour tells the digest of the table it has told; whoever has
another one forgets the table, sends everything, and asks for the table again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sapwood.mesh.core.actions import Reply, SetRoutes, TableChange
from sapwood.mesh.core.events import BarrierSet, RoutesChanged
from sapwood.mesh.core.frames import EVERYTHING, Beat, ConfirmFrame, NeedTable, TableFrame
from sapwood.mesh.core.links.link_state import InboundLink, Link
from sapwood.mesh.core.node_context import NodeContext
from sapwood.mesh.core.node_state import StoredTable
from sapwood.mesh.core.tables.confirmations import Confirmations, Wait
from sapwood.mesh.core.tables.generaliser import Generaliser
from sapwood.mesh.core.tables.route_table import Change, RouteTable


class TableExchange:
    """The routes of all sides, and who waits until all brokers have them."""

    def __init__(self, context: NodeContext, generaliser: Generaliser) -> None:
        self._context = context
        self.table = RouteTable(generaliser)
        self.confirmations = Confirmations(self.table)

    def version(self, link: str) -> int:
        """Return the version of a neighbour's table by which messages are routed now."""
        return EVERYTHING if self.table.is_unknown(link) else self.table.wanted[link].version

    # -- changes ---------------------------------------------------------------------------------------

    def change_local(self, event: RoutesChanged | BarrierSet) -> None:
        """Change what local subscriptions want, and let somebody wait until all brokers have it."""
        if isinstance(event, RoutesChanged):
            self.table.change_local(event.added, event.removed)
            self.tell_neighbours()
        else:
            self.tell_neighbours(always=True)
        if event.token is not None:
            self.confirmations.add(Wait(self.confirmations.versions(), event.token))
        self.finish_waits()

    def receive(self, name: str, inbound: InboundLink, frame: TableFrame) -> None:
        """Take over what a neighbour tells, and tell the others."""
        change = self.table.receive(name, frame)
        self._set_routes(name, change)
        wanted = self.table.wanted[name]
        added, removed = tuple(change.added), tuple(change.removed)
        self._context.journal.change_table(
            TableChange(name, frame.version, wanted.is_complete, wanted.is_open, added, removed)
        )
        if frame.ends:
            self.tell_neighbours(besides=name)
            needed = self.confirmations.versions(besides=name)
            self.confirmations.add(Wait(needed, link=name, epoch=inbound.epoch, version=frame.version))

    def confirm(self, name: str, link: Link, frame: ConfirmFrame) -> None:
        """Note that all brokers on a neighbour's side have a version of what it was told."""
        if frame.epoch == link.outbound.epoch:
            link.inbound.confirmed = max(link.inbound.confirmed, frame.version)
            self.confirmations.confirm(name, frame.version)

    def _set_routes(self, name: str, change: Change) -> None:
        if change.added or change.removed:
            self._context.actions.append(SetRoutes(name, tuple(change.added), tuple(change.removed)))

    def tell_neighbours(self, besides: str | None = None, always: bool = False) -> None:
        """Tell neighbours of routes that they do not have."""
        for name in self._context.links:
            if name != besides:
                frame = self.table.take_additions(name, always)
                if frame is not None:
                    self._context.send(name, frame)

    def tell_removals(self) -> None:
        """Tell neighbours of routes that they need not have any more, after what replaces these."""
        for name in self._context.links:
            if self.table.is_due(name):
                replacing = self.table.take_additions(name)
                if replacing is not None:
                    self._context.send(name, replacing)
            frame = self.table.take_removals(name)
            if frame is not None:
                self._context.send(name, frame)

    def send_all(self, name: str) -> None:
        """Send the whole table to a neighbour."""
        for frame in self.table.take_all(name):
            self._context.send(name, frame)

    def finish_waits(self) -> None:
        """Answer those who waited until all brokers have a change; of one neighbour's, the last."""
        answered: dict[str, ConfirmFrame] = {}
        for wait in self.confirmations.take():
            if wait.link is None:
                self._context.actions.append(Reply(wait.token))
                continue
            link = self._context.links.get(wait.link)
            if link is not None and link.inbound.epoch == wait.epoch:
                link.confirmed = answered[wait.link] = ConfirmFrame(wait.epoch, wait.version)
        for name, frame in answered.items():
            self._context.send(name, frame, self.store_tables())

    def confirm_again(self, name: str, link: Link) -> None:
        """Repeat the last confirmation on a link that has begun anew."""
        if link.confirmed is not None and link.confirmed.epoch == link.inbound.epoch:
            self._context.send(name, link.confirmed, self.store_tables())

    def store_tables(self) -> int:
        """Return the number of the `Store` with which all changes of tables are durable."""
        if self._context.journal.has_tables:
            self._context.store()
        return self._context.journal.last_tables

    # -- neighbours ------------------------------------------------------------------------------------

    def restore(self, name: str, stored: StoredTable) -> None:
        """Take over the table of a neighbour that was stored."""
        self.table.restore(name, stored.routes.values(), stored.version, stored.is_open)
        self._set_routes(name, Change(list(stored.routes.values())))

    def expect_confirmations(self, stored: Mapping[str, StoredTable], restored: Iterable[str]) -> None:
        """Confirm, when all others have it, what neighbours have told before a restart."""
        for name in restored:
            if stored[name].version >= 0:
                needed = self.confirmations.versions(besides=name)
                epoch = self._context.links[name].inbound.epoch
                self.confirmations.add(Wait(needed, link=name, epoch=epoch, version=stored[name].version))

    def renew(self, name: str) -> None:
        """Let the tables of a link begin anew. What a leaf wanted before it still wants: only its own. But a
        table that was open stays so, because it may lack some: they are not told while it is open."""
        is_leaf = len(self._context.topology.neighbours(name)) <= 1
        if is_leaf and self.table.wanted[name].is_complete:
            self.renumber(name)
        else:
            self.forget(name)

    def renumber(self, name: str) -> None:
        """Keep the table of a neighbour, which numbers its versions anew."""
        wanted = self.table.renumber(name)
        self._context.journal.change_table(
            TableChange(name, wanted.version, wanted.is_complete, wanted.is_open)
        )

    def forget(self, name: str) -> None:
        """Forget the table of a neighbour: it gets everything, until it has told what it wants."""
        self._set_routes(name, self.table.forget(name))
        self.drop_stored(name)
        self.tell_neighbours()

    def remove(self, name: str) -> None:
        """Forget a neighbour that is none any more."""
        self._set_routes(name, self.table.remove_link(name))
        self.drop_stored(name)
        self.confirmations.drop(name)

    def drop_stored(self, name: str) -> None:
        """Let nothing be stored of the table of a neighbour."""
        self._context.journal.change_table(TableChange(name, 0, False, False, is_dropped=True))

    # -- digests ---------------------------------------------------------------------------------------

    def digest(self, name: str, link: Link) -> tuple[int, int, int]:
        """Return the version of what a neighbour was told, with its digest and count; no version if some of
        it is still on its way to the transport."""
        told, outbound = self.table.told[name], link.outbound
        is_told = outbound.accepted == outbound.last and not outbound.is_unsent
        return told.version if is_told else -1, told.digest, told.count

    def check(self, name: str, inbound: InboundLink, beat: Beat) -> None:
        """Compare the table of a neighbour with what it has told, when all of that is here."""
        if beat.version < 0 or beat.sent >= inbound.expected or inbound.queue:
            return
        wanted = self.table.wanted[name]
        if not wanted.is_complete:
            self._context.send_control(name, NeedTable(inbound.epoch))
        elif wanted.version == beat.version and (wanted.digest, wanted.count) != (beat.digest, beat.count):
            self.forget(name)
            self._context.send_control(name, NeedTable(inbound.epoch))

    def heal(self, name: str) -> None:
        """Send the whole table to a neighbour that misses some of it."""
        self._context.report("healed", name, "the table was sent again")
        self.send_all(name)
