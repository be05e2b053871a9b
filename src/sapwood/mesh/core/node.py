"""A broker of a mesh as a state machine: events in, actions out.

    published ─┐                              ┌─► Store ─► Stored ─► replies, frames to neighbours
    received ──┴─► queue ─► Match ─► Matched ─┤
    tables, routes ─► queue ─► route table ───┴─► tables for the other neighbours

A message is handled once: it is matched with local subscriptions and the routes of all links, stored with all
that follows from it, and only then promised to anybody. What is stored is the outbox, too: a link that begins
anew, after a restart or a change of the tree, sends what its neighbour has not settled, from there.

Who is told what, and when:
  - a publisher: when the message is stored
  - the neighbour it came from: when it is stored (`received`), and when it is stored wherever it is wanted on
    this side (`settled`); the source learns by that what nobody will ever need again, and its *floor* rises
  - who changes routes: when all brokers have the change

The order of a source's messages is that of the links they pass. If the tree changes, every node forgets for
whom unsettled messages are, the sources send them again, in order, through the new tree, and each node passes
them on once more, without handling again what it has handled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from sapwood.mesh.core import link_state
from sapwood.mesh.core.actions import (
    Action,
    Match,
    Release,
    Reply,
    Report,
    Send,
    SendControl,
    SetRoutes,
    Store,
    StoredMessage,
    TableChange,
)
from sapwood.mesh.core.events import (
    Accepted,
    BarrierSet,
    Controlled,
    Drained,
    Event,
    Matched,
    Published,
    Received,
    RoutesChanged,
    SendFailed,
    Stored,
    Tick,
    Token,
    TopologyChanged,
)
from sapwood.mesh.core.frames import (
    EVERYTHING,
    UNNUMBERED,
    Ack,
    Beat,
    ConfirmFrame,
    Content,
    Control,
    Epoch,
    MessageFrame,
    MessageKey,
    Nack,
    NeedTable,
    Open,
    Opened,
    Refused,
    TableFrame,
)
from sapwood.mesh.core.node_state import NodeState
from sapwood.mesh.core.route_table import Change, Confirmations, RouteTable, Wait
from sapwood.mesh.core.source_history import Entry, SourceHistory
from sapwood.mesh.core.topology import Topology

MATCHES = 512
"""messages that are being matched at a time"""
TABLE_WAIT = 2.0
"""seconds that a node waits for the tables of its neighbours before it sends everything to all of them"""
_OPEN, _ACK, _ACK_ALL, _BEAT, _BEAT_ALL, _REMOVE, _NACK, _LOST = 0.5, 0.2, 5.0, 1.0, 10.0, 1.0, 1.0, 2.0
"""seconds between: attempts to open a link; acknowledgements, and complete ones; beats, and complete ones;
removals of routes; complaints about a gap; and from the last frame to the suspicion that some are lost"""


@dataclass(slots=True)
class _Work:
    """A message that is being matched."""

    token: int
    key: MessageKey | None
    """None: published here, without a number"""
    is_new: bool
    reset: int
    link: str | None = None
    epoch: Epoch | None = None
    publisher: Token = None
    is_deferred: bool = False
    """whether it is decided later whom it is for, because tables are missing"""
    result: Matched | None = None


@dataclass(slots=True)
class _Link:
    """A neighbour: both directions, and when what is due."""

    outbound: link_state.OutboundLink
    inbound: link_state.InboundLink
    edge: int
    opening_at: float = 0.0
    acked: tuple[Epoch, int] | None = None
    """the last frame that the neighbour was told is received"""
    ack_all_at: float = 0.0
    beat_all_at: float = 0.0
    floors: dict[str, None] = field(default_factory=dict)
    """sources whose floor has changed since the last beat"""
    confirmed: ConfirmFrame | None = None
    """the last confirmation of the neighbour's table"""


class Node:
    """A broker's part in the mesh."""

    def __init__(self, state: NodeState, topology: Topology, incarnation: int) -> None:
        """Go on from what is stored; `incarnation` is greater than in any run before."""
        self.name = state.name
        self._incarnation = incarnation
        self._topology = Topology()
        self._reset = state.reset
        self._hops: dict[str, str] = {}
        self._links: dict[str, _Link] = {}
        self._cursors = dict(state.cursors)
        self._sources: dict[str, SourceHistory] = {}
        for name, floor in state.floors.items():
            self._source(name).raise_floor(floor)
        for message in state.messages.values():
            source = self._source(message.key.source)
            if message.reset == state.reset:
                source.arrive(message.key.number)
                source.add(message.key.number, Entry(message.came_by, message.links))
            else:
                source.add(message.key.number, Entry(message.came_by, None))
        self._own = self._source(self.name)
        self._own.arrive(self._own.last)
        self._table = RouteTable()
        self._saved = state.tables
        self._confirmations = Confirmations(self._table)
        self._local: deque[Published | RoutesChanged | BarrierSet] = deque()
        self._again: deque[MessageKey] = deque()
        """stored messages of which it is to be decided whom they are for, before any that are published"""
        self._deferred = 0
        """messages that are being matched and will be among them"""
        self._works: dict[int, _Work] = {}
        """messages that are being matched, in order"""
        self._keys_in_work: set[MessageKey] = set()
        self._in_work: dict[str, int] = {}
        """by source, the greatest number that was matched"""
        self._next_token = self._store = self._stored = 0
        self._now = 0.0
        self._dirty_cursors: set[str] = set()
        self._dirty_floors: set[str] = set()
        self._dirty_tables: list[TableChange] = []
        self._unstored: deque[tuple[int, SourceHistory]] = deque()
        """sources with messages that become durable with a `Store`"""
        self._unsettled: set[str] = set(self._sources)
        """sources of which more may be settled than was reported"""
        self._gates: deque[tuple[int, Action]] = deque()
        """actions that wait for a `Store`"""
        self._releases: deque[tuple[int, str, Epoch, int]] = deque()
        self._next_ack = self._next_beat = self._next_removal = 0.0
        self._syncing_until: float | None = None
        """when the node waits no more for the tables of its neighbours"""
        self._actions: list[Action] = []
        self.late = self.duplicates = 0
        self._adopt(topology)

    # -- the outside -----------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Action]:
        """Return what follows from an event."""
        if isinstance(event, Received):
            self._receive(event)
        elif isinstance(event, Matched):
            self._matched(event)
        elif isinstance(event, Stored):
            self._on_stored(event.number)
        elif isinstance(event, Accepted):
            self._on_accepted(event)
        elif isinstance(event, Tick):
            self._tick(event.now)
        elif isinstance(event, Controlled):
            self._control(event.link, event.control)
        elif isinstance(event, Published | RoutesChanged | BarrierSet):
            self._local.append(event)
        elif isinstance(event, SendFailed):
            link = self._links.get(event.link)
            if link is not None and link.outbound.epoch == event.epoch:
                link.outbound.fail(self._now)
        elif isinstance(event, Drained):
            if event.link in self._links:
                self._links[event.link].inbound.is_drained = True
        else:
            self._change_topology(event)
        self._pump()
        self._transmit()
        actions, self._actions = self._actions, []
        return actions

    @property
    def topology(self) -> Topology:
        """The tree that the node has adopted."""
        return self._topology

    @property
    def table(self) -> RouteTable:
        """The routes of all sides, to be read only."""
        return self._table

    @property
    def waiting(self) -> int:
        """The number of frames and local events that are not handled."""
        queued = sum(len(link.inbound.queue) for link in self._links.values())
        return len(self._local) + len(self._again) + len(self._works) + queued

    @property
    def unconfirmed(self) -> int:
        """The number of changes that not all brokers have."""
        return len(self._confirmations)

    def outbox(self, link: str) -> int:
        """Return how many frames for a neighbour it has not received."""
        return len(self._links[link].outbound.frames)

    def unsettled(self) -> int:
        """Return how many messages are not known to be settled everywhere."""
        return sum(len(source.entries) for source in self._sources.values())

    def unsettled_for(self, link: str) -> int:
        """Return how many messages a neighbour has not reported as settled."""
        return sum(len(list(source.pending(link))) for source in self._sources.values())

    def is_open(self, link: str) -> bool:
        """Return whether frames can be sent to a neighbour."""
        return link in self._links and self._links[link].outbound.is_open

    @property
    def positions(self) -> dict[str, int]:
        """By source, the greatest number that was handled."""
        return {name: source.last for name, source in self._sources.items() if source.last}

    @property
    def floors(self) -> dict[str, int]:
        """By source, the number up to which its messages are settled everywhere."""
        return {name: source.floor for name, source in self._sources.items()}

    def _source(self, name: str) -> SourceHistory:
        found = self._sources.get(name)
        if found is None:
            found = self._sources[name] = SourceHistory(name)
        return found

    # -- the tree --------------------------------------------------------------------------------------

    def _adopt(self, topology: Topology) -> None:
        """Take over a tree at the start."""
        self._topology = topology
        self._hops = topology.next_hops(self.name)
        neighbours = topology.neighbours(self.name)
        is_reset = topology.reset != self._reset
        for name in self._saved:
            if name not in neighbours or (is_reset and len(topology.neighbours(name)) > 1):
                self._drop_table(name)
        for name in neighbours:
            self._add_link(name)
            saved = self._saved.get(name)
            if (
                saved is not None
                and saved.is_complete
                and not (is_reset and len(topology.neighbours(name)) > 1)
            ):
                self._table.restore(name, saved.routes.values(), saved.is_open)
                self._table.wanted[name].version = saved.version
                self._actions.append(SetRoutes(name, tuple(saved.routes.values())))
        if is_reset:
            self._begin_anew(topology.reset)
        for name in neighbours:  # which may wait for a confirmation since before the restart
            self._table.take_additions(name, always=True)
        for name, link in self._links.items():
            if (
                name in self._saved
                and self._saved[name].version >= 0
                and self._table.wanted[name].is_complete
            ):
                version, needed = self._saved[name].version, self._confirmations.versions(besides=name)
                self._confirmations.add(Wait(needed, link=name, epoch=link.inbound.epoch, version=version))
        self._saved = {}
        for source in self._sources.values():  # of former neighbours
            for other in {other for entry in source.entries.values() for other in entry.links or ()}:
                if other not in self._links:
                    source.drop_link(other)
        self._begin_sync()

    def _change_topology(self, event: TopologyChanged) -> None:
        topology = event.topology
        if topology.version <= self._topology.version:
            return
        self._topology = topology
        self._hops = topology.next_hops(self.name)
        neighbours = topology.neighbours(self.name)
        is_reset = topology.reset != self._reset
        if is_reset:
            self._begin_anew(topology.reset)
            self._actions.append(Report("reset", None, f"topology {topology.version}"))
        changed = False
        for name in list(self._links):
            if name not in neighbours:
                self._remove_link(name)
                changed = True
            elif self._links[name].edge != topology.edge(self.name, name):
                self._renew_link(name)
                changed = True
        for name in neighbours:
            if name not in self._links:
                self._add_link(name)
                changed = True
        if changed or is_reset:
            self._begin_sync()
            self._tell_neighbours(always=is_reset)
            if is_reset:
                self._confirmations.begin_anew()
            self._finish_waits()

    def _begin_anew(self, reset: int) -> None:
        """Forget for whom messages are: their sources send them again through the new tree."""
        self._reset = reset
        for source in self._sources.values():
            source.forget_links()
        self._own.arrive(self._own.last)
        self._store_now(reset=reset)

    def _renew_link(self, name: str) -> None:
        """Let a link begin anew. What a leaf wanted before it still wants: only its own."""
        edge = self._topology.edge(self.name, name)
        outbound = link_state.OutboundLink(Epoch(edge, self._incarnation))
        self._links[name] = _Link(outbound, link_state.InboundLink(), edge)
        self._cursors.pop(name, None)
        if len(self._topology.neighbours(name)) > 1 or not self._table.wanted[name].is_complete:
            self._forget_table(name)
        else:
            self._table.wanted[name].is_open = False
            self._renumber_table(name)

    def _renumber_table(self, name: str) -> None:
        """Keep the table of a neighbour, which numbers its versions anew."""
        wanted = self._table.wanted[name]
        wanted.version, wanted.arriving = UNNUMBERED, None
        self._dirty_tables.append(TableChange(name, UNNUMBERED, wanted.is_complete, wanted.is_open))

    def _forget_table(self, name: str) -> None:
        self._set_routes(name, self._table.forget(name))
        self._drop_table(name)
        self._tell_neighbours()

    def _drop_table(self, name: str) -> None:
        self._dirty_tables.append(TableChange(name, 0, False, False, is_dropped=True))

    def _add_link(self, name: str) -> None:
        edge = self._topology.edge(self.name, name)
        epoch, handled = self._cursors.get(name, (Epoch(0, 0), 0))
        inbound = link_state.InboundLink()
        if epoch.edge == edge:
            inbound.epoch, inbound.handled, inbound.released = epoch, handled, handled
        outbound = link_state.OutboundLink(Epoch(edge, self._incarnation))
        self._links[name] = _Link(outbound, inbound, edge)
        self._table.add_link(name)

    def _remove_link(self, name: str) -> None:
        del self._links[name]
        self._set_routes(name, self._table.remove_link(name))
        self._drop_table(name)
        self._confirmations.drop(name)
        self._cursors.pop(name, None)
        for source in self._sources.values():
            source.drop_link(name)

    def _begin_sync(self) -> None:
        self._syncing_until = self._now + TABLE_WAIT
        self._check_sync()

    def _check_sync(self) -> None:
        """Go on if the tables of all neighbours are there, or it is not worth to wait for them any longer."""
        if self._syncing_until is None:
            return
        if self._now < self._syncing_until and self._table.unknown_links():
            return
        self._syncing_until = None
        self._unsettled.update(self._sources)
        self._again.clear()
        self._again += [MessageKey(self.name, number) for number in self._own.unresolved()]
        for name, source in self._sources.items():  # of brokers that have left, and cannot send again
            if name != self.name and name not in self._topology:
                source.arrive(source.last)
                self._again += [MessageKey(name, number) for number in source.unresolved()]

    def _links_for(self, source: str, came_by: str | None, found: Iterable[str]) -> frozenset[str]:
        """Return the neighbours that a message has to be sent to."""
        links = {link for link in found if link in self._links}
        links.update(self._table.unknown_links())
        links.discard(came_by or "")
        links.discard(self._hops.get(source, ""))
        return frozenset(links)

    # -- the queue -------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Take from the queues what can be handled now."""
        self._check_sync()
        progress = True
        while progress and len(self._works) < MATCHES:
            progress = self._take_local()
            for name in list(self._links):
                if name in self._links and self._take_inbound(name, self._links[name]):
                    progress = True

    def _take_local(self) -> bool:
        if self._again and self._syncing_until is None:
            key = self._again.popleft()
            entry = self._source(key.source).entries.get(key.number)
            if entry is not None and entry.links is None:
                self._match(_Work(0, key, False, self._reset), None, False)
            return True
        if not self._local:
            return False
        first = self._local[0]
        if isinstance(first, Published):
            is_deferred = self._syncing_until is not None
            if self._deferred and not is_deferred:
                return False  # until it is decided whom those before it are for
            self._local.popleft()
            self._deferred += is_deferred
            work = _Work(0, None, True, self._reset, publisher=first.token, is_deferred=is_deferred)
            self._match(work, first.content, True)
            return True
        if self._works:
            return False
        self._local.popleft()
        if isinstance(first, RoutesChanged):
            self._table.change_local(first.added, first.removed)
            self._tell_neighbours()
        else:
            self._tell_neighbours(always=True)
        if first.token is not None:
            self._confirmations.add(Wait(self._confirmations.versions(), first.token))
        self._finish_waits()
        return True

    def _take_inbound(self, name: str, link: _Link) -> bool:
        inbound = link.inbound
        if not inbound.queue:
            return False
        frame = inbound.queue[0]
        if isinstance(frame, MessageFrame):
            if self._syncing_until is not None or len(self._works) >= MATCHES:
                return False
            inbound.queue.popleft()
            inbound.in_work += 1
            self._take_message(name, inbound, frame)
            return True
        if self._works:  # what was matched with the former table is sent before this is confirmed
            return False
        inbound.queue.popleft()
        if isinstance(frame, TableFrame):
            self._receive_table(name, inbound, frame)
        elif frame.epoch == link.outbound.epoch:
            inbound.confirmed = max(inbound.confirmed, frame.version)
            self._confirmations.confirm(name, frame.version)
            self._finish_waits()
        inbound.handled += 1
        self._dirty_cursors.add(name)
        return True

    def _take_message(self, name: str, inbound: link_state.InboundLink, frame: MessageFrame) -> None:
        if 0 <= frame.table < inbound.confirmed:
            self.late += 1
            self._actions.append(Report("late", name, f"{frame.key.source}/{frame.key.number}"))
        self._raise_floor(frame.key.source, frame.floor)
        source = self._source(frame.key.source)
        number = frame.key.number
        entry = source.entries.get(number)
        is_known = number in source or frame.key in self._keys_in_work
        if is_known and (entry is None or entry.links is not None):
            self.duplicates += frame.content is not None
            source.arrive(number)
            self._match_nothing(name, inbound)
        elif is_known:
            self._match(_Work(0, frame.key, False, self._reset, name, inbound.epoch), None, False)
        elif frame.content is None:  # which cannot be: the neighbour was told of more than is here
            self._actions.append(Report("lost", name, f"{frame.key.source}/{number}"))
            self._match_nothing(name, inbound)
        else:
            # A message behind others of its source passed another way when this node did not want it: it only
            # passes here now, for somebody who did.
            is_local = number > source.last and number > self._in_work.get(source.name, 0)
            self._in_work[source.name] = max(number, self._in_work.get(source.name, 0))
            self._match(_Work(0, frame.key, True, self._reset, name, inbound.epoch), frame.content, is_local)

    def _match_nothing(self, name: str, inbound: link_state.InboundLink) -> None:
        """Handle a frame of which nothing follows, in its turn."""
        if not self._works:
            inbound.in_work -= 1
            inbound.handled += 1
            self._dirty_cursors.add(name)
            return
        self._next_token += 1
        work = _Work(self._next_token, None, False, self._reset, name, inbound.epoch)
        work.result = Matched(work.token, frozenset())
        self._works[work.token] = work

    def _match(self, work: _Work, content: object, is_local: bool) -> None:
        self._next_token += 1
        work.token = self._next_token
        self._works[work.token] = work
        if work.key is not None:
            self._keys_in_work.add(work.key)
        self._actions.append(Match(work.token, content, work.key, work.is_new, is_local))

    # -- messages --------------------------------------------------------------------------------------

    def _matched(self, event: Matched) -> None:
        work = self._works.get(event.token)
        if work is None:
            return
        work.result = event
        while self._works:
            first = next(iter(self._works.values()))
            if first.result is None:
                return
            del self._works[first.token]
            self._finish(first, first.result)

    def _finish(self, work: _Work, result: Matched) -> None:
        """Store a message that was matched, and let neighbours have it."""
        self._keys_in_work.discard(work.key or MessageKey("", 0))
        self._deferred -= work.is_deferred
        if work.link is not None:
            link = self._links.get(work.link)
            if link is not None and link.inbound.epoch == work.epoch:
                link.inbound.in_work -= 1
                link.inbound.handled += 1
                self._dirty_cursors.add(work.link)
            if work.key is None:  # a frame of which nothing follows
                return
        if work.key is None:
            if result.problem is not None:
                self._actions.append(Reply(work.publisher, None, result.problem))
                return
            work.key = MessageKey(self.name, self._own.last + 1)
        elif result.problem is not None:
            self._actions.append(Report("refused", work.link, f"{work.key}: {result.problem}"))
        source = self._source(work.key.source)
        is_own = work.link is None and work.is_new
        if not work.is_new and (work.reset != self._reset or work.key.number <= source.floor):
            return  # the message comes again, or nobody needs it any more
        if work.reset != self._reset or work.is_deferred:
            links = None
            if is_own and self._syncing_until is None:
                self._again.append(work.key)
        else:
            found = result.links if result.problem is None else self._links
            links = self._links_for(work.key.source, work.link, found)
        message = StoredMessage(work.key, work.link, links, self._reset)
        number = self._store_now(message, work.token if work.is_new else None)
        self._unsettled.add(source.name)
        if work.reset == self._reset or is_own:
            source.arrive(work.key.number)
        if work.is_new:
            source.add(work.key.number, Entry(work.link, links), number)
            self._unstored.append((number, source))
        else:
            source.resolve(work.key.number, Entry(work.link, links))
        for name in sorted(links or ()):
            self._enqueue(name, work.key, number)
        if is_own:
            self._gates.append((number, Reply(work.publisher, work.key)))

    def _enqueue(self, name: str, key: MessageKey, store: int) -> None:
        outbound = self._links[name].outbound
        if outbound.is_open:
            content = None if outbound.has(*key) else Content.STORED
            table = EVERYTHING if self._table.is_unknown(name) else self._table.wanted[name].version
            outbound.add(MessageFrame(key, content, table, self._source(key.source).floor), store)

    def _store_now(
        self, message: StoredMessage | None = None, match: int | None = None, reset: int | None = None
    ) -> int:
        """Store a message, and how far the inbound links and the floors are."""
        self._store += 1
        cursors: dict[str, tuple[Epoch, int]] = {}
        for name in self._dirty_cursors:
            link = self._links.get(name)
            if link is not None:
                cursors[name] = link.inbound.epoch, link.inbound.handled
                self._releases.append((self._store, name, *cursors[name]))
        self._cursors |= cursors
        floors = {name: self._sources[name].floor for name in self._dirty_floors}
        tables = tuple(self._dirty_tables)
        self._dirty_cursors.clear()
        self._dirty_floors.clear()
        self._dirty_tables.clear()
        self._actions.append(Store(self._store, message, match, cursors, floors, tables, reset))
        return self._store

    def _on_stored(self, number: int) -> None:
        self._stored = max(self._stored, number)
        while self._unstored and self._unstored[0][0] <= self._stored:
            source = self._unstored.popleft()[1]
            source.stored(self._stored)
            self._unsettled.add(source.name)
        while self._gates and self._gates[0][0] <= self._stored:
            self._actions.append(self._gates.popleft()[1])
        released: dict[tuple[str, Epoch], int] = {}
        while self._releases and self._releases[0][0] <= self._stored:
            _, name, epoch, handled = self._releases.popleft()
            link = self._links.get(name)
            if link is not None and link.inbound.epoch == epoch and handled > link.inbound.released:
                link.inbound.released = handled
                released[name, epoch] = handled
        for (name, epoch), handled in released.items():
            self._actions.append(Release(name, epoch, handled))
        for name, link in self._links.items():
            after = link.inbound.opened_after
            if after is not None and after <= self._stored:
                link.inbound.opened_after = None
                self._say_opened(name, link)

    # -- tables ----------------------------------------------------------------------------------------

    def _receive_table(self, name: str, inbound: link_state.InboundLink, frame: TableFrame) -> None:
        change = self._table.receive(name, frame)
        self._set_routes(name, change)
        wanted = self._table.wanted[name]
        self._dirty_tables.append(
            TableChange(
                name,
                frame.version,
                wanted.is_complete,
                wanted.is_open,
                tuple(change.added),
                tuple(change.removed),
            )
        )
        if frame.ends:
            self._tell_neighbours(besides=name)
            needed = self._confirmations.versions(besides=name)
            self._confirmations.add(Wait(needed, link=name, epoch=inbound.epoch, version=frame.version))
            self._finish_waits()

    def _set_routes(self, name: str, change: Change) -> None:
        if change.added or change.removed:
            self._actions.append(SetRoutes(name, tuple(change.added), tuple(change.removed)))

    def _tell_neighbours(self, besides: str | None = None, always: bool = False) -> None:
        """Tell neighbours of routes that they do not have."""
        for name, link in self._links.items():
            if name != besides:
                frame = self._table.take_additions(name, always)
                if frame is not None and link.outbound.is_open:
                    link.outbound.add(frame)

    def _finish_waits(self) -> None:
        """Answer those who waited until all brokers have a change."""
        for wait in self._confirmations.take():
            if wait.link is None:
                self._actions.append(Reply(wait.token))
                continue
            link = self._links.get(wait.link)
            if link is not None and link.inbound.epoch == wait.epoch:
                link.confirmed = ConfirmFrame(wait.epoch, wait.version)
                if link.outbound.is_open:
                    link.outbound.add(link.confirmed, self._store_pending())

    def _store_pending(self) -> int:
        """Return the number of the `Store` with which all changes of tables are durable."""
        return self._store_now() if self._dirty_tables else self._store

    def _send_table(self, name: str, link: _Link) -> None:
        for frame in self._table.take_all(name):
            link.outbound.add(frame)

    # -- links -----------------------------------------------------------------------------------------

    def _receive(self, event: Received) -> None:
        link = self._links.get(event.link)
        if link is None:
            return
        inbound = link.inbound
        if event.epoch != inbound.epoch:
            if event.epoch > inbound.epoch:
                self._actions.append(SendControl(event.link, Refused(event.epoch)))
            else:
                self._actions.append(Release(event.link, event.epoch, event.number))
            return
        inbound.frame_at = self._now
        inbound.is_drained = False
        if event.number == inbound.expected:
            inbound.queue.append(event.frame)
        elif event.number > inbound.expected:
            self._complain(event.link, inbound)
        elif event.number <= inbound.released:
            self._actions.append(Release(event.link, event.epoch, event.number))

    def _complain(self, name: str, inbound: link_state.InboundLink) -> None:
        """Ask for the frames that are missing, from time to time."""
        if self._now - inbound.nacked_at >= _NACK or inbound.nacked_at < 0:
            inbound.nacked_at = self._now
            self._actions.append(SendControl(name, Nack(inbound.epoch, inbound.expected)))

    def _on_accepted(self, event: Accepted) -> None:
        link = self._links.get(event.link)
        if link is not None and link.outbound.epoch == event.epoch:
            link.outbound.accept(event.number)

    def _transmit(self) -> None:
        for name, link in self._links.items():
            outbound = link.outbound
            if outbound.is_open and outbound.sent < outbound.last and self._now >= outbound.retry_at:
                for number, frame in outbound.take(self._stored):
                    self._actions.append(Send(name, outbound.epoch, number, frame))

    # -- controls --------------------------------------------------------------------------------------

    def _control(self, name: str, control: Control) -> None:
        link = self._links.get(name)
        if link is None:
            return
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
            if link.outbound.is_open:
                link.outbound.acknowledge(control.expected - 1)
                link.outbound.go_back(control.expected - 1)
        elif isinstance(control, Refused):
            epoch = control.epoch
            link.outbound.begin(Epoch(epoch.edge, epoch.incarnation, epoch.attempt + 1))
            link.opening_at = self._now
        elif link.outbound.is_open:
            self._actions.append(Report("healed", name, "the table was sent again"))
            self._send_table(name, link)

    def _on_open(self, name: str, link: _Link, control: Open) -> None:
        inbound = link.inbound
        if control.epoch.edge != link.edge or control.epoch < inbound.epoch:
            return
        if control.needs_table and link.outbound.is_open and control.epoch != inbound.epoch:
            self._send_table(name, link)
        link.ack_all_at = 0.0
        if control.epoch > inbound.epoch:
            inbound.begin(control.epoch)
            self._renumber_table(name)
            self._dirty_cursors.add(name)
            inbound.opened_after = self._store_now()
        elif inbound.opened_after is None:
            self._say_opened(name, link)

    def _say_opened(self, name: str, link: _Link) -> None:
        hops = self._hops
        own = {s: h for s, h in self._sources.items() if hops.get(s) == name}
        have = {source: history.have() for source, history in own.items() if history.entries}
        floors = {source: history.floor for source, history in self._sources.items() if history.floor}
        self._actions.append(
            SendControl(name, Opened(link.inbound.epoch, link.inbound.handled, have, floors))
        )

    def _on_opened(self, name: str, link: _Link, control: Opened) -> None:
        for source, floor in control.floors.items():
            self._raise_floor(source, floor)
        outbound = link.outbound
        if outbound.is_open:
            outbound.acknowledge(control.received)
            return
        outbound.open(dict(control.have))
        self._send_table(name, link)
        if link.confirmed is not None and link.confirmed.epoch == link.inbound.epoch:
            outbound.add(link.confirmed, self._store_pending())
        for source in sorted(self._sources):
            history = self._sources[source]
            for number in list(history.pending(name)):
                self._enqueue(name, MessageKey(source, number), self._store)

    def _on_ack(self, name: str, link: _Link, control: Ack) -> None:
        if control.epoch == link.outbound.epoch and link.outbound.is_open:
            link.outbound.acknowledge(control.received)
        if control.reset == self._reset:
            for source, number in control.settled.items():
                if source in self._sources and self._sources[source].settle(name, number):
                    self._unsettled.add(source)

    def _on_beat(self, name: str, link: _Link, control: Beat) -> None:
        for source, floor in control.floors.items():
            if self._hops.get(source) == name:
                self._raise_floor(source, floor)
        inbound, wanted = link.inbound, self._table.wanted[name]
        if control.epoch != inbound.epoch:
            if control.epoch > inbound.epoch and control.epoch.edge == link.edge:
                self._actions.append(SendControl(name, Refused(control.epoch)))
            return
        is_quiet = inbound.is_drained and self._now - inbound.frame_at >= _LOST
        if control.sent >= inbound.expected and is_quiet:
            missing = f"frames {inbound.expected} to {control.sent}"
            self._actions.append(Report("lost", name, missing, control.sent - inbound.expected + 1))
            self._complain(name, inbound)
        elif wanted.is_complete and wanted.version == control.version:
            if (wanted.digest, wanted.count) != (control.digest, control.count):
                self._forget_table(name)
                self._actions.append(SendControl(name, NeedTable(inbound.epoch)))
        elif not wanted.is_complete and control.sent < inbound.expected and not inbound.queue:
            self._actions.append(SendControl(name, NeedTable(inbound.epoch)))

    # -- settlement ------------------------------------------------------------------------------------

    def _raise_floor(self, source: str, floor: int) -> None:
        if floor and self._source(source).raise_floor(floor):
            self._dirty_floors.add(source)
            for link in self._links.values():
                link.floors[source] = None

    def _settle(self) -> None:
        """Raise the floors that nobody else decides: of own messages, and of brokers that have left."""
        if self._syncing_until is None:
            for name in self._unsettled:
                if name not in self._hops:
                    self._raise_floor(name, self._sources[name].settled())

    # -- time ------------------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        self._now = max(self._now, now)
        for name, link in self._links.items():
            if not link.outbound.is_open and self._now >= link.opening_at:
                link.opening_at = self._now + _OPEN
                needs_table = not self._table.wanted[name].is_complete
                self._actions.append(SendControl(name, Open(link.outbound.epoch, needs_table)))
        if self._now >= self._next_removal:
            self._next_removal = self._now + _REMOVE
            for name, link in self._links.items():
                frame = self._table.take_removals(name)
                if frame is not None and link.outbound.is_open:
                    link.outbound.add(frame)
        if self._now >= self._next_ack:
            self._next_ack = self._now + _ACK
            self._settle()
            if self._dirty_cursors or self._dirty_floors or self._dirty_tables:
                self._store_now()
            self._acknowledge_all()
        if self._now >= self._next_beat:
            self._next_beat = self._now + _BEAT
            for name, link in self._links.items():
                self._beat(name, link)

    def _acknowledge_all(self) -> None:
        """Report what is received and settled to the neighbours it came from, as far as they do not know."""
        settled: dict[str, dict[str, int]] = {}
        for source in self._unsettled:
            hop = self._hops.get(source)
            if hop is not None:
                settled.setdefault(hop, {})[source] = self._sources[source].settled()
        self._unsettled.clear()
        for name, link in self._links.items():
            news = settled.get(name, {})
            if self._now >= link.ack_all_at:
                link.ack_all_at = self._now + _ACK_ALL
                for source, history in self._sources.items():
                    if history.entries and self._hops.get(source) == name:
                        news[source] = history.settled()
                link.acked = None
            acked = link.inbound.epoch, link.inbound.released
            if news or acked != link.acked:
                link.acked = acked
                self._actions.append(SendControl(name, Ack(*acked, self._reset, news)))

    def _beat(self, name: str, link: _Link) -> None:
        if not link.outbound.is_open:
            return
        if self._now >= link.beat_all_at:
            link.beat_all_at = self._now + _BEAT_ALL
            link.floors = dict.fromkeys(self._sources)
        floors = {
            source: self._sources[source].floor for source in link.floors if self._hops.get(source) != name
        }
        link.floors = {}
        told, outbound = self._table.told[name], link.outbound
        is_told = outbound.accepted == outbound.last
        beat = Beat(
            outbound.epoch,
            outbound.accepted,
            told.version if is_told else -1,
            told.digest,
            told.count,
            floors,
        )
        self._actions.append(SendControl(name, beat))
