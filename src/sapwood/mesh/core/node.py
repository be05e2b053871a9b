"""A broker of a mesh as a state machine: events in, actions out.

    published ─┐                              ┌─► Store ─► Stored ─► replies, frames to neighbours
    received ──┴─► queue ─► Match ─► Matched ─┤
    tables, routes ─► queue ─► route table ───┴─► tables for the other neighbours

    message_pipeline   queues, matching, and what is stored of a message
    settlement         which messages nobody needs any more; the history of each source
    table_exchange     routes of all sides, confirmations of changes, digests
    link_protocol      epochs, numbered frames, acknowledgements, what is lost
    journal            the steps of the durable state, and what waits for them

A message is handled once: it is matched with local subscriptions and the routes of all links, stored with all
that follows from it, and only then promised to anybody. What is stored is the outbox, too: a link that begins
anew, after a restart or a change of the tree, sends what its neighbour has not settled, from there.

Who is told what, and when:
  - a publisher: when the message is stored
  - the neighbour it came from: when it is stored (`received`), and when it is stored wherever it is wanted on
    this side (`settled`); the source learns by that what nobody will ever need again, and its *floor* rises
  - who changes routes: when all brokers have the change

The order of a source's messages is that of the links they pass. A new or removed leaf changes no way that a
message takes. Any other change of the tree is a *reset*: with other ways, a message could overtake one that
is still on its old way, or never come. So every node forgets for whom unsettled messages are, and the sources
send them again, in order, through the new tree; nodes pass on what they have, without handling it twice:

      before                 after: c has moved            a is the source, 5 and 6 are unsettled
         a 5 6                  a 5 6          a ── 5, 6 ──► b     b has 5: it is not handled again, but its
        ╱                      ╱ ╲                                 place is noted; 6 is new there
       b 5                  5 b   c 5          a ── 5, 6 ──► c     c has 5, too: sent without content
        ╲
         c 5                                   6 arrives nowhere before 5, whoever learns late of the tree

All links get new epochs, which name the version of the reset, so that a node that knows of it and one that
does not yet cannot exchange frames. Floors stay: what is settled is settled in any tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sapwood.mesh.core import events
from sapwood.mesh.core.actions import Action
from sapwood.mesh.core.events import Event
from sapwood.mesh.core.frames import Epoch
from sapwood.mesh.core.links.link_protocol import LinkProtocol
from sapwood.mesh.core.messages.message_pipeline import MessagePipeline
from sapwood.mesh.core.messages.settlement import Settlement
from sapwood.mesh.core.messages.source_history import Entry
from sapwood.mesh.core.node_context import NodeContext
from sapwood.mesh.core.node_state import NodeState
from sapwood.mesh.core.tables.generaliser import EXACT, Generaliser
from sapwood.mesh.core.tables.route_table import RouteTable
from sapwood.mesh.core.tables.table_exchange import TableExchange
from sapwood.mesh.core.topology import Topology

_ACK, _BEAT, _REMOVE = 0.2, 1.0, 1.0
"""seconds between acknowledgements, beats, and removals of routes"""


class Node:
    """A broker's part in the mesh."""

    def __init__(
        self, state: NodeState, topology: Topology, incarnation: int, generaliser: Generaliser = EXACT
    ) -> None:
        """Go on from what is stored; `incarnation` is greater than in any run before. The generaliser, which
        no other node has, makes tables smaller that exceed its budget."""
        self.name = state.name
        self._context = NodeContext(state.name, incarnation, state.reset)
        self._settlement = Settlement(self._context)
        self._tables = TableExchange(self._context, generaliser)
        self._links = LinkProtocol(self._context, self._settlement, self._tables)
        self._pipeline = MessagePipeline(self._context, self._settlement, self._tables)
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.Tick: self._on_tick,
            events.Published: self._pipeline.add,
            events.RoutesChanged: self._pipeline.add,
            events.BarrierSet: self._pipeline.add,
            events.Sampled: lambda event: generaliser.set_sample(event.messages),
            events.Matched: self._pipeline.on_matched,
            events.Stored: self._on_stored,
            events.Received: self._links.on_received,
            events.Controlled: self._links.on_controlled,
            events.Accepted: self._links.on_accepted,
            events.SendFailed: self._links.on_failed,
            events.Drained: self._links.on_drained,
            events.TopologyChanged: self._on_topology,
            events.Batch: self._on_batch,
        }
        self._next_ack = self._next_beat = self._next_removal = 0.0
        self._restore(state, topology)

    def handle(self, event: Event) -> list[Action]:
        """Return what follows from an event."""
        self._handlers[type(event)](event)
        self._pipeline.pump()
        self._links.transmit()
        actions, self._context.actions = self._context.actions, []
        return actions

    def _on_batch(self, batch: events.Batch) -> None:
        handlers = self._handlers
        for event in batch.events:
            handlers[type(event)](event)

    # -- what can be seen ------------------------------------------------------------------------------

    @property
    def topology(self) -> Topology:
        """The tree that the node has adopted."""
        return self._context.topology

    @property
    def table(self) -> RouteTable:
        """The routes of all sides, to be read only."""
        return self._tables.table

    @property
    def waiting(self) -> int:
        """The number of frames and local events that are not handled."""
        return len(self._pipeline)

    @property
    def has_local_changes(self) -> bool:
        """Whether what local subscriptions want has changed, and the table does not have that yet."""
        return self._pipeline.has_changes

    @property
    def unconfirmed(self) -> int:
        """The number of changes that not all brokers have."""
        return len(self._tables.confirmations)

    @property
    def late(self) -> int:
        """The number of messages that were routed by a table older than one that was confirmed: none."""
        return self._pipeline.late

    @property
    def duplicates(self) -> int:
        """The number of messages that came once more, and were recognised."""
        return self._pipeline.duplicates

    def outbox(self, link: str) -> int:
        """Return how many frames for a neighbour it has not received."""
        return len(self._context.links[link].outbound)

    def unsettled(self) -> int:
        """Return how many messages are not known to be settled everywhere."""
        return sum(len(source.entries) for source in self._settlement.sources.values())

    def unsettled_for(self, link: str) -> int:
        """Return how many messages a neighbour has not reported as settled."""
        return sum(len(source.pending(link)) for source in self._settlement.sources.values())

    def is_open(self, link: str) -> bool:
        """Return whether frames can be sent to a neighbour."""
        return link in self._context.links and self._context.links[link].outbound.is_open

    def has_taken(self, link: str, epoch: Epoch, number: int) -> bool:
        """Return whether a frame was in its turn when it came, so that it need not come again."""
        inbound = self._context.links[link].inbound if link in self._context.links else None
        return inbound is not None and inbound.epoch == epoch and number < inbound.expected

    @property
    def positions(self) -> dict[str, int]:
        """By source, the greatest number that was handled."""
        return {name: source.last for name, source in self._settlement.sources.items() if source.last}

    @property
    def floors(self) -> dict[str, int]:
        """By source, the number up to which its messages are settled everywhere."""
        return {name: source.floor for name, source in self._settlement.sources.items()}

    # -- the tree --------------------------------------------------------------------------------------

    def _restore(self, state: NodeState, topology: Topology) -> None:
        """Take over what is stored, and the tree."""
        context, settlement, tables = self._context, self._settlement, self._tables
        context.set_topology(topology)
        is_reset = topology.reset != state.reset
        neighbours = topology.neighbours(self.name)
        for name, floor in state.floors.items():
            settlement.source(name).raise_floor(floor)
        for message in state.messages.values():
            source = settlement.source(message.key.source)
            links = message.links if message.reset == state.reset else None
            if links is not None:
                source.arrive(message.key.number)
            entry = settlement.share(Entry(message.came_by, links))
            source.add(message.key.number, entry, is_partial=message.is_partial)
        settlement.own.arrive(settlement.own.last)
        for source in settlement.sources.values():
            source.drop_links_but(neighbours)
        restored: list[str] = []
        for name in neighbours:
            tables.table.add_link(name)
            self._links.add(name, state.cursors.get(name))
            if self._is_table_valid(state, name):
                tables.restore(name, state.tables[name])
                restored.append(name)
        for name in state.tables:
            if name not in restored:
                tables.drop_stored(name)
        if is_reset:
            self._begin_anew(topology.reset)
        for source in settlement.sources.values():
            if source.name in context.hops:
                source.skip_unresolved()
        settlement.change_topology()
        for name in neighbours:  # which may wait for a confirmation since before the restart
            tables.table.take_additions(name, always=True)
        tables.expect_confirmations(state.tables, restored)
        self._pipeline.begin_sync()

    def _is_table_valid(self, state: NodeState, name: str) -> bool:
        """Return whether a stored table has all that was ever confirmed: it came by the same edge, or it is
        that of a leaf, whose own routes no other change of the tree concerns."""
        stored, topology = state.tables.get(name), self._context.topology
        if stored is None or not stored.is_complete:
            return False
        edge = state.cursors[name][0].edge if name in state.cursors else 0
        if edge == topology.edge(self.name, name):
            return True
        joined = max(topology.joined.get(name, 0), topology.joined.get(self.name, 0))
        return len(topology.neighbours(name)) == 1 and joined <= edge

    def _on_topology(self, event: events.TopologyChanged) -> None:
        context, topology = self._context, event.topology
        if topology.version <= context.topology.version:
            return
        context.set_topology(topology)
        is_reset = topology.reset != context.reset
        if is_reset:
            self._begin_anew(topology.reset)
            context.report("reset", None, f"topology {topology.version}")
        neighbours = topology.neighbours(self.name)
        changed = is_reset
        for name in list(context.links):
            if name not in neighbours:
                self._remove_link(name)
                changed = True
            elif context.links[name].edge != topology.edge(self.name, name):
                self._links.renew(name)
                self._tables.renew(name)
                changed = True
        for name in neighbours:
            if name not in context.links:
                self._tables.table.add_link(name)
                self._links.add(name)
                changed = True
        self._settlement.change_topology()
        if changed:
            self._pipeline.begin_sync()
            self._tables.tell_neighbours(always=is_reset)
            if is_reset:
                self._tables.confirmations.begin_anew()
            self._tables.finish_waits()

    def _begin_anew(self, reset: int) -> None:
        """Forget for whom messages are: their sources send them again through the new tree."""
        self._context.reset = reset
        self._settlement.begin_anew()
        self._context.store(reset=reset)

    def _remove_link(self, name: str) -> None:
        self._links.remove(name)
        self._tables.remove(name)
        for source in self._settlement.sources.values():
            source.drop_link(name)

    # -- time and storage ------------------------------------------------------------------------------

    def _on_stored(self, event: events.Stored) -> None:
        actions, released = self._context.journal.on_stored(event.number)
        self._pipeline.on_stored()
        self._context.actions += actions
        self._links.on_released(released)

    def _on_tick(self, event: events.Tick) -> None:
        context = self._context
        is_first = context.now == 0.0
        context.now = max(context.now, event.now)
        if is_first and self._pipeline.is_syncing:
            self._pipeline.begin_sync()  # which began when the time was not known
        self._links.open_links()
        if context.now >= self._next_removal:
            self._next_removal = context.now + _REMOVE
            self._tables.tell_removals()
        if context.now >= self._next_ack:
            self._next_ack = context.now + _ACK
            if not self._pipeline.is_syncing:
                self._settlement.raise_floors(self._pipeline.in_work)
            if context.journal.has_changes:
                context.store()
            self._settlement.acknowledge()
        if context.now >= self._next_beat:
            self._next_beat = context.now + _BEAT
            self._links.beat()
