"""How links open, carry numbered frames, and notice what is lost.

Each direction of a link has an *epoch*: a run of frames with the numbers 1, 2, 3 and so on. A restart of the
sender, a new edge of the tree, or a receiver that has lost its place begins another one.

    sender                                    receiver
      ── Open(epoch) ───────────────────────►   stores the epoch
      ◄─ Opened(what it has) ────────────────
      ── frames 1 … n ──────────────────────►   handles them in order, and stores what follows
      ◄─ Ack(received, settled) ─────────────   the sender forgets what is received
      ── Beat(sent, digest, floors) ────────►   every second; all frames that were sent must be there
      ◄─ Nack(expected) ─────────────────────   if not: the sender goes back, and sends all after it again
      ◄─ Refused(epoch) ─────────────────────   not the epoch that was stored: the sender opens another

A link that opens sends the whole table first, then all messages that the neighbour has not settled; those it
has already are sent without content, so that their place in the order is known. Of a message, parts may be
cut that nobody beyond the link reads. What is left is *partial*: enough for the routes of this tree, and
maybe not for those of another. So a neighbour does not count partial messages among those it has.
"""

from __future__ import annotations

from functools import partial

from sapwood.mesh.core.actions import Release, Send
from sapwood.mesh.core.events import Accepted, Controlled, Drained, Received, SendFailed
from sapwood.mesh.core.frames import (
    Ack,
    Beat,
    Content,
    Control,
    Epoch,
    MessageFrame,
    MessageKey,
    Nack,
    Open,
    Opened,
    Refused,
)
from sapwood.mesh.core.links.link_state import InboundLink, Link, OutboundLink
from sapwood.mesh.core.messages.journal import Cursor
from sapwood.mesh.core.messages.settlement import Settlement
from sapwood.mesh.core.node_context import NodeContext
from sapwood.mesh.core.tables.table_exchange import TableExchange

_OPEN, _NACK, _LOST, _BEAT_ALL = 0.5, 1.0, 2.0, 10.0
"""seconds: between attempts to open a link; between complaints about a gap; from the last frame to the
suspicion that some are lost; between complete beats"""


class LinkProtocol:
    """The links to all neighbours."""

    def __init__(self, context: NodeContext, settlement: Settlement, tables: TableExchange) -> None:
        self._context = context
        self._settlement = settlement
        self._tables = tables
        self._opening: dict[str, None] = {}
        """links of which the neighbour is to be told that they are open, after a `Store`"""

    # -- neighbours ------------------------------------------------------------------------------------

    def add(self, name: str, cursor: tuple[Epoch, int] | None = None) -> None:
        """Add a neighbour; go on after a stored frame, if that came by the same edge."""
        context = self._context
        edge = context.topology.edge(context.name, name)
        link = context.links[name] = Link(edge, OutboundLink(Epoch(edge, context.incarnation)))
        if cursor is not None and cursor[0].edge == edge:
            inbound = link.inbound
            inbound.epoch, inbound.handled = cursor
            inbound.released = inbound.handled

    def renew(self, name: str) -> None:
        """Let both directions of a link begin anew."""
        self.remove(name)
        self.add(name)

    def remove(self, name: str) -> None:
        """Remove a neighbour, with all that was to be sent or handled."""
        for links in (self._context.unsent, self._context.unread, self._opening):
            links.pop(name, None)
        del self._context.links[name]
        self._context.journal.drop_cursor(name)

    # -- frames ----------------------------------------------------------------------------------------

    def on_received(self, event: Received) -> None:
        """Queue a frame that has come in its turn."""
        link = self._context.links.get(event.link)
        if link is None:
            return
        inbound = link.inbound
        if event.epoch != inbound.epoch:
            if event.epoch > inbound.epoch:
                self._context.send_control(event.link, Refused(event.epoch))
            else:
                self._release(event.link, event.epoch, event.number)
            return
        inbound.frame_at = self._context.now
        inbound.is_drained = False
        expected = inbound.expected
        if event.number == expected:
            inbound.queue.append(event.frame)
            self._context.unread[event.link] = None
        elif event.number > expected:
            if self._complain(event.link, inbound):  # what is lost, or has failed, must not be silent
                missing = f"frames {expected} to {event.number - 1}"
                self._context.report("gap", event.link, missing, event.number - expected)
        elif event.number <= inbound.released:
            self._release(event.link, event.epoch, event.number)

    def _release(self, name: str, epoch: Epoch, number: int) -> None:
        self._context.actions.append(Release(name, epoch, number))

    def _complain(self, name: str, inbound: InboundLink) -> bool:
        """Ask for the frames that are missing, from time to time; return whether it was time."""
        now = self._context.now
        if now - inbound.nacked_at < _NACK and inbound.nacked_at >= 0:
            return False
        inbound.nacked_at = now
        self._context.send_control(name, Nack(inbound.epoch, inbound.expected))
        return True

    def on_accepted(self, event: Accepted) -> None:
        """Note that the transport has frames."""
        link = self._context.links.get(event.link)
        if link is not None and link.outbound.epoch == event.epoch:
            link.outbound.accept(event.number)

    def on_failed(self, event: SendFailed) -> None:
        """Note that the transport has given up."""
        link = self._context.links.get(event.link)
        if link is not None and link.outbound.epoch == event.epoch:
            link.outbound.fail(self._context.now)
            self._context.unsent[event.link] = None

    def on_drained(self, event: Drained) -> None:
        """Note that no more frames of a neighbour wait in the transport."""
        link = self._context.links.get(event.link)
        if link is not None:
            link.inbound.is_drained = True

    def on_released(self, cursors: list[Cursor]) -> None:
        """Note which frames are handled for good."""
        for name, epoch, handled in cursors:
            link = self._context.links.get(name)
            if link is not None and link.inbound.epoch == epoch and handled > link.inbound.released:
                link.inbound.released = handled
                self._release(name, epoch, handled)
        for name in list(self._opening):
            link = self._context.links[name]
            after = link.inbound.opened_after
            if after is not None and after <= self._context.journal.stored:
                link.inbound.opened_after = None
                del self._opening[name]
                self._say_opened(name, link)

    def transmit(self) -> None:
        """Give the transport what it may have now."""
        context = self._context
        for name in list(context.unsent):
            outbound = context.links[name].outbound
            if not outbound.is_open or context.now < outbound.retry_at:
                continue
            outbound.refill(partial(self._make_frame, outbound))
            for number, frame in outbound.take(context.journal.stored):
                context.actions.append(Send(name, outbound.epoch, number, frame))
            if not outbound.is_unsent:
                del context.unsent[name]

    def _make_frame(self, outbound: OutboundLink, key: MessageKey, table: int) -> MessageFrame | None:
        """Return the frame of a message, without content if the neighbour has it. It may have a partial copy
        of one that existed before the links began anew: of that, nothing is cut any more."""
        source = self._settlement.sources[key.source]
        if key.number <= source.floor:
            return None
        floor = self._settlement.floor(key.source)
        if outbound.has(key):
            return MessageFrame(key, None, table, floor)
        content = Content.WHOLE if key.number <= source.resent else Content.STORED
        return MessageFrame(key, content, table, floor, source.is_partial(key.number))

    # -- controls --------------------------------------------------------------------------------------

    def on_controlled(self, event: Controlled) -> None:
        """Act upon a control of a neighbour."""
        link = self._context.links.get(event.link)
        if link is not None:
            self._on_control(event.link, link, event.control)

    def _on_control(self, name: str, link: Link, control: Control) -> None:
        if isinstance(control, Open):
            self._on_open(name, link, control)
        elif isinstance(control, Ack):
            self._on_ack(name, link, control)
        elif isinstance(control, Beat):
            self._on_beat(name, link, control)
        elif control.epoch != link.outbound.epoch:
            return
        elif isinstance(control, Opened):
            self._on_opened(name, link, control)
        elif isinstance(control, Nack):
            self._on_nack(name, link, control)
        elif isinstance(control, Refused):
            self._begin_outbound(name, link)
        elif link.outbound.is_open:
            self._tables.heal(name)

    def _on_nack(self, name: str, link: Link, control: Nack) -> None:
        """Send again what a neighbour misses. If it had stored that, and still misses it after some time, its
        state is older than it was: the link begins anew."""
        outbound, now = link.outbound, self._context.now
        if not outbound.is_open:
            return
        if control.expected > outbound.received:
            link.behind_at = None
        elif link.behind_at is None:
            link.behind_at = now
        elif now - link.behind_at >= _LOST:
            missing = f"frames {control.expected} to {outbound.received}, which {name} has forgotten"
            self._context.report("lost", name, missing, outbound.received - control.expected + 1)
            self._begin_outbound(name, link)
            return
        outbound.go_back(control.expected - 1)
        self._context.unsent[name] = None

    def _begin_outbound(self, name: str, link: Link) -> None:
        """Let the direction to a neighbour begin anew."""
        epoch = link.outbound.epoch
        link.outbound.begin(epoch._replace(attempt=epoch.attempt + 1))
        link.opening_at = self._context.now
        link.behind_at = None
        self._context.unsent.pop(name, None)

    def _on_open(self, name: str, link: Link, control: Open) -> None:
        inbound = link.inbound
        if control.epoch.edge != link.edge or control.epoch < inbound.epoch:
            return
        if control.needs_table and control.epoch != inbound.epoch:
            self._tables.send_all(name)
        link.ack_all_at = 0.0
        if control.epoch > inbound.epoch:
            inbound.begin(control.epoch)
            self._context.unread.pop(name, None)
            self._tables.renumber(name)
            self._context.mark_handled(name)
            inbound.opened_after = self._context.store()
            self._opening[name] = None
        elif inbound.opened_after is None:
            self._say_opened(name, link)

    def _say_opened(self, name: str, link: Link) -> None:
        hops, inbound = self._context.hops, link.inbound
        sources = self._settlement.sources
        have = {
            s: history.have() for s, history in sources.items() if history.entries and hops.get(s) == name
        }
        opened = Opened(inbound.epoch, inbound.released, have, self._settlement.floors())
        self._context.send_control(name, opened)

    def _on_opened(self, name: str, link: Link, control: Opened) -> None:
        for source, floor in control.floors.items():
            self._settlement.learn_floor(source, floor)
        self._settlement.learn_own(control.have.get(self._context.name, ()))
        outbound = link.outbound
        if outbound.is_open:
            self._acknowledge(name, link, control.received)
            return
        outbound.open(control.have)
        self._tables.send_all(name)
        self._tables.confirm_again(name, link)
        table, store = self._tables.version(name), self._context.journal.last
        for source, history in sorted(self._settlement.sources.items()):
            for number in history.pending(name):
                self._context.send_message(name, MessageKey(source, number), table, store)

    def _acknowledge(self, name: str, link: Link, received: int) -> None:
        self._settlement.on_received(name, link.outbound.acknowledge(received))

    def _on_ack(self, name: str, link: Link, control: Ack) -> None:
        if control.epoch == link.outbound.epoch and link.outbound.is_open:
            if control.received >= link.outbound.received:
                link.behind_at = None
            self._acknowledge(name, link, control.received)
        if control.reset == self._context.reset:
            self._settlement.on_settled(name, control.settled)

    def _on_beat(self, name: str, link: Link, control: Beat) -> None:
        context, inbound = self._context, link.inbound
        for source, floor in control.floors.items():
            if context.hops.get(source) == name:
                self._settlement.learn_floor(source, floor)
        if control.epoch != inbound.epoch:
            if control.epoch > inbound.epoch and control.epoch.edge == link.edge:
                context.send_control(name, Refused(control.epoch))
            return
        is_quiet = inbound.is_drained and context.now - inbound.frame_at >= _LOST
        if control.sent >= inbound.expected and is_quiet:
            missing = f"frames {inbound.expected} to {control.sent}"
            context.report("lost", name, missing, control.sent - inbound.expected + 1)
            self._complain(name, inbound)
        else:
            self._tables.check(name, inbound, control)

    # -- time ------------------------------------------------------------------------------------------

    def open_links(self) -> None:
        """Ask neighbours to open links that are not, from time to time."""
        context = self._context
        for name, link in context.links.items():
            if not link.outbound.is_open and context.now >= link.opening_at:
                link.opening_at = context.now + _OPEN
                needs_table = not self._tables.table.wanted[name].is_complete
                context.send_control(name, Open(link.outbound.epoch, needs_table))

    def beat(self) -> None:
        """Tell all neighbours how far the links to them are."""
        context = self._context
        for name, link in context.links.items():
            if link.outbound.is_open:
                is_all = context.now >= link.beat_all_at
                if is_all:
                    link.beat_all_at = context.now + _BEAT_ALL
                floors = self._settlement.take_floors(name, link, is_all)
                version, digest, count = self._tables.digest(name, link)
                beat = Beat(link.outbound.epoch, link.outbound.accepted, version, digest, count, floors)
                context.send_control(name, beat)
