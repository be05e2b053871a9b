"""Which messages are settled: stored wherever they are wanted, so that nobody needs them any more.

Each node reports to the neighbour on the side of a source up to which number that source's messages are
settled on its own side. The source learns so what is settled everywhere: its *floor*, which it tells all.

    source ◄──settled 9── b ◄──settled 9── c        c has stored 9
           ──floor 9────►   ──floor 9────►          what is stored of messages up to 9 may go

A source that has left the mesh tells nothing any more. Then each node that has unsettled messages of it sends
them on, and is rid of one as soon as its neighbours have received it. Whoever removes a broker before all its
messages are settled gives up what only it has; how many messages that may concern is reported as lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sapwood.mesh.core.frames import Ack, Frame, Intervals, MessageFrame, MessageKey
from sapwood.mesh.core.links.link_state import Link
from sapwood.mesh.core.messages.source_history import Entry, SourceHistory
from sapwood.mesh.core.node_context import NodeContext

_ACK_ALL = 5.0
"""seconds between complete reports"""
_JOIN_NUMBERS = 2**32
"""numbers that a broker may give to messages before it joins once more"""


class Settlement:
    """The messages of all sources, as far as they are not settled."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.sources: dict[str, SourceHistory] = {}
        self.own = self.source(context.name)
        self._changed: dict[str, None] = {}
        """sources of which more may be settled than was reported"""
        self._orphans: dict[str, None] = {}
        """sources that have left the mesh"""
        self.inherited: list[MessageKey] = []
        """messages of sources that have left, which are to be sent again from here"""
        self._shared: dict[Entry, Entry] = {}

    def source(self, name: str) -> SourceHistory:
        """Return the history of a source."""
        found = self.sources.get(name)
        if found is None:
            found = self.sources[name] = SourceHistory(name)
        return found

    def share(self, entry: Entry) -> Entry:
        """Return the one entry that is equal: most messages have one of a few."""
        if len(self._shared) > 1_000:
            self._shared.clear()
        return self._shared.setdefault(entry, entry)

    def mark(self, source: str) -> None:
        """Note that more of a source may be settled."""
        self._changed[source] = None
        if source not in self._context.hops:
            self._check_orphan(self.sources[source])

    def arrive(self, source: SourceHistory, number: int) -> None:
        """Note that a message came in its turn, and all before it that will come again."""
        source.arrive(number)
        if source.name in self._context.hops:
            source.skip_unresolved()
        self.mark(source.name)

    # -- the tree --------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """Return the number of the next message that is published here.

        A broker that joins with nothing stored may have been here before, and its former messages are known:
        it begins with numbers that it cannot have used.
        """
        return max(self.own.last, self._former_numbers(self.own.name)) + 1

    def _former_numbers(self, source: str) -> int:
        """Return the number up to which messages were published before a source joined, the last time."""
        return self._context.topology.joined.get(source, 0) * _JOIN_NUMBERS

    def begin_anew(self) -> None:
        """Forget for whom messages are: their sources send them again through the new tree."""
        for source in self.sources.values():
            source.forget_links()
        self.own.arrive(self.own.last)

    def begin_sending(self) -> list[MessageKey]:
        """Return the messages that this node sends again: its own, and those of brokers that have left."""
        self._changed.update(dict.fromkeys(self.sources))
        self.inherited.clear()
        keys: list[MessageKey] = []
        for name, source in self.sources.items():
            upto = source.last if source is self.own else self._abandoned(source)
            source.arrive(min(source.last, upto))
            keys += [MessageKey(name, number) for number in source.unresolved() if number <= upto]
        return keys

    def change_topology(self) -> None:
        """Take over what is unsettled of brokers that are not in the tree any more, or were not meanwhile."""
        self._orphans = {name: None for name in self._orphans if name not in self._context.topology}
        for source in list(self.sources.values()):
            self.mark(source.name)
            if source is not self.own and source.floor < self._former_numbers(source.name):
                self._inherit(source)

    def _check_orphan(self, source: SourceHistory) -> None:
        """Take over what is unsettled of a source that has left. One that is not in the tree because it has
        just joined, which is not known here yet, is recognised by its numbers."""
        topology, name = self._context.topology, source.name
        if name in self._orphans or source is self.own or name in topology:
            return
        if source.last // _JOIN_NUMBERS <= topology.version:
            self._orphans[name] = None
            self._inherit(source)

    def _abandoned(self, source: SourceHistory) -> int:
        """Return the number up to which a source does not care for its messages any more, because it has left
        since."""
        return source.last if source.name in self._orphans else self._former_numbers(source.name)

    def _inherit(self, source: SourceHistory) -> None:
        """Send again what is not known to have been, and wait for nothing else of neighbours than that they
        receive it."""
        upto, name = self._abandoned(source), source.name
        source.arrive(min(source.last, upto))
        unsettled = {number for number in source.unresolved() if number <= upto}
        self.inherited += [MessageKey(name, number) for number in sorted(unsettled)]
        for neighbour, link in self._context.links.items():
            pending = [number for number in source.pending(neighbour) if number <= upto]
            unsettled.update(pending)
            if link.outbound.is_open and pending:
                queued = link.outbound.messages_of(name)
                for number in pending:
                    if number not in queued:
                        source.settle_one(neighbour, number)
        if unsettled:
            detail = f"{name} has left the mesh: what only it had of its last messages is lost"
            self._context.report("lost", None, detail, len(unsettled))

    # -- reports ---------------------------------------------------------------------------------------

    def on_received(self, link: str, frames: Iterable[Frame]) -> None:
        """Note that a neighbour has stored frames: of a source that has left, that is all to wait for."""
        if not (self._orphans or self._context.topology.joined):
            return
        for frame in frames:
            if isinstance(frame, MessageFrame):
                source = self.sources[frame.key.source]
                if source is not self.own and frame.key.number <= self._abandoned(source):
                    source.settle_one(link, frame.key.number)
                    self.mark(source.name)

    def on_settled(self, link: str, settled: Mapping[str, int]) -> None:
        """Note what a neighbour reports."""
        for name, number in settled.items():
            source = self.sources.get(name)
            if source is not None and source.settle(link, number):
                self.mark(name)

    def on_stored(self, source: SourceHistory) -> None:
        """Note that messages of a source have become durable."""
        source.stored(self._context.journal.stored)
        self.mark(source.name)

    def raise_floors(self, in_work: Collection[MessageKey]) -> None:
        """Raise the floors that nobody else decides: of own messages, and of brokers that have left, but not
        above what is being matched."""
        for name in self._changed:
            source = self.sources[name]
            if source is self.own:
                self._raise(name, source.settled())
            elif source.floor < (upto := self._abandoned(source)):
                matched = [key.number - 1 for key in in_work if key.source == name]
                self._raise(name, min(source.settled(), upto, *matched))

    def acknowledge(self) -> None:
        """Report what is received and settled to the neighbours it came from, as far as they do not know."""
        context = self._context
        settled: dict[str, dict[str, int]] = {}
        for name in self._changed:
            hop = context.hops.get(name)
            if hop is not None:
                settled.setdefault(hop, {})[name] = self.sources[name].settled()
        self._changed.clear()
        due = {name for name, link in context.links.items() if context.now >= link.ack_all_at}
        if due:
            for source, history in self.sources.items():
                hop = context.hops.get(source)
                if hop in due and hop is not None and history.entries:
                    settled.setdefault(hop, {})[source] = history.settled()
        for name, link in context.links.items():
            acked = link.inbound.epoch, link.inbound.released
            if name in due:
                link.ack_all_at = context.now + _ACK_ALL
            if name in due or name in settled or acked != link.acked:
                link.acked = acked
                context.send_control(name, Ack(*acked, context.reset, settled.get(name, {})))

    # -- floors ----------------------------------------------------------------------------------------

    def floor(self, source: str) -> int:
        """Return what may be told of a source's floor: of one that has left, nothing that all agree on."""
        return 0 if source in self._orphans else self.sources[source].floor

    def floors(self) -> dict[str, int]:
        """Return the floors of all sources, as far as they may be told."""
        return {name: floor for name in self.sources if (floor := self.floor(name))}

    def learn_floor(self, source: str, floor: int) -> None:
        """Raise a floor of which a neighbour tells."""
        if not floor or source in self._orphans or source not in self._context.topology:
            return
        if source == self._context.name:
            self.learn_own(((floor, floor),))
        self._raise(source, floor)

    def learn_own(self, numbers: Intervals) -> None:
        """Note which numbers of this broker's messages others know: none that it has not stored, unless its
        state is older than it was. Then at least it must not use them again."""
        last = max((last for _, last in numbers), default=0)
        if last >= self.next_number():
            detail = f"others know messages of this broker up to {last}, it has stored {self.own.last}"
            self._context.report("lost", None, detail, last - self.own.last)
            self.own.last = last

    def _raise(self, source: str, floor: int) -> None:
        if self.source(source).raise_floor(floor):
            self._context.journal.set_floor(source, floor)
            for link in self._context.links.values():
                link.floors[source] = None

    def take_floors(self, name: str, link: Link, is_all: bool) -> dict[str, int]:
        """Return the floors that a neighbour is to be told, those that have changed or all."""
        hops = self._context.hops
        changed = self.sources if is_all else link.floors
        link.floors = {}
        return {
            source: floor for source in changed if hops.get(source) != name and (floor := self.floor(source))
        }
