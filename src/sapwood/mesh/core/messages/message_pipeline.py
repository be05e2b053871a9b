"""The way of a message through a node: queued, matched, stored, and sent to those who want it.

Messages are matched several at a time, and finished in the order in which they were taken. A change of tables
waits until none is being matched, and meanwhile no other message is taken: so it is known by which table each
message was routed, and whoever is told that a change is everywhere has got all that was routed without it.

When links begin anew, a node *synchronises*: it takes no message until the tables of its neighbours are
there, for a while. What is published meanwhile is stored, and decided upon later, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sapwood.mesh.core.actions import Match, Reply, StoredMessage
from sapwood.mesh.core.events import BarrierSet, Matched, Published, RoutesChanged, Token
from sapwood.mesh.core.frames import Epoch, MessageFrame, MessageKey, TableFrame
from sapwood.mesh.core.links.link_state import InboundLink, Link
from sapwood.mesh.core.messages.settlement import Settlement
from sapwood.mesh.core.messages.source_history import Entry, SourceHistory
from sapwood.mesh.core.node_context import NodeContext
from sapwood.mesh.core.tables.table_exchange import TableExchange

MATCHES = 512
"""messages that are being matched at a time"""
TABLE_WAIT = 2.0
"""seconds that a node waits for the tables of its neighbours before it sends everything to all of them"""

LocalEvent = Published | RoutesChanged | BarrierSet


@dataclass(slots=True)
class Work:
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
    is_passed_over: bool = False
    """whether nothing follows from it, because it is known"""
    is_partial: bool = False
    """whether parts of the content that it came with were cut on the way"""
    replaces: bool = False
    """whether that content takes the place of the stored one, which is partial"""
    result: Matched | None = None


class MessagePipeline:
    """Messages and changes of routes that wait, and messages that are being matched."""

    def __init__(self, context: NodeContext, settlement: Settlement, tables: TableExchange) -> None:
        self._context = context
        self._settlement = settlement
        self._tables = tables
        self._local: deque[LocalEvent] = deque()
        self._waiting_changes = 0
        """of local routes, among them"""
        self._again: deque[MessageKey] = deque()
        """stored messages of which it is to be decided whom they are for, before any that are published"""
        self._deferred = 0
        """messages that are being matched and will be among them"""
        self._works: dict[int, Work] = {}
        """messages that are being matched, in order"""
        self._keys_in_work: dict[MessageKey, int] = {}
        """with the reset when they were taken"""
        self._greatest_in_work: dict[str, int] = {}
        """by source, the greatest number that was matched"""
        self._next_token = 0
        self._unstored: deque[tuple[int, SourceHistory]] = deque()
        """`Store` actions, with the source of the message that each makes durable"""
        self._syncing_until: float | None = None
        self.late = self.duplicates = 0

    def __len__(self) -> int:
        """The number of frames and local events that are not handled."""
        queued = sum(len(link.inbound.queue) for link in self._context.links.values())
        return len(self._local) + len(self._again) + len(self._works) + queued

    @property
    def in_work(self) -> Collection[MessageKey]:
        """The messages of other brokers, and stored ones, that are being matched."""
        return self._keys_in_work

    @property
    def has_changes(self) -> bool:
        """Whether a change of local routes waits."""
        return self._waiting_changes > 0

    @property
    def is_syncing(self) -> bool:
        """Whether the node waits for the tables of its neighbours."""
        return self._syncing_until is not None

    def add(self, event: LocalEvent) -> None:
        """Queue something that was done at this broker."""
        self._local.append(event)
        self._waiting_changes += isinstance(event, RoutesChanged)

    # -- synchronisation -------------------------------------------------------------------------------

    def begin_sync(self) -> None:
        """Wait for the tables of neighbours."""
        self._syncing_until = self._context.now + TABLE_WAIT
        self._check_sync()

    def _check_sync(self) -> None:
        """Go on if the tables of all neighbours are there, or it is not worth to wait for them any longer."""
        if self._syncing_until is None:
            return
        if self._context.now < self._syncing_until and self._tables.table.unknown_links():
            return
        self._syncing_until = None
        self._again = deque(self._settlement.begin_sending())

    # -- the queues ------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Take from the queues what can be handled now."""
        inherited = self._settlement.inherited
        if not (self._local or self._again or self._context.unread or self.is_syncing or inherited):
            return
        self._check_sync()
        if inherited and not self.is_syncing:
            self._again += inherited
            inherited.clear()
        while True:
            if self._has_changes():
                if self._works:
                    return
                self._take_changes()
                self._check_sync()
            elif len(self._works) >= MATCHES or not self._take_messages():
                return

    def _has_changes(self) -> bool:
        """Return whether a change of tables is the first in some queue."""
        if self._local and not isinstance(self._local[0], Published):
            return True
        links = self._context.links
        return any(
            not isinstance(links[name].inbound.queue[0], MessageFrame) for name in self._context.unread
        )

    def _take_changes(self) -> None:
        """Handle all changes of tables that are the first in their queues, and what follows from them."""
        while self._local and not isinstance(first := self._local[0], Published):
            self._local.popleft()
            self._waiting_changes -= isinstance(first, RoutesChanged)
            self._tables.change_local(first)
        for name in list(self._context.unread):
            link = self._context.links[name]
            queue = link.inbound.queue
            while queue and not isinstance(frame := queue[0], MessageFrame):
                queue.popleft()
                if isinstance(frame, TableFrame):
                    self._tables.receive(name, link.inbound, frame)
                else:
                    self._tables.confirm(name, link, frame)
                link.inbound.handled += 1
                if not isinstance(frame, TableFrame) or frame.ends:  # a table is stored as a whole
                    self._context.mark_handled(name)
            if not queue:
                del self._context.unread[name]
        self._tables.finish_waits()
        self._tables.store_tables()

    def _take_messages(self) -> bool:
        """Let some messages be matched; return whether there was any."""
        progress = self._take_local()
        if not self.is_syncing:
            for name in list(self._context.unread):
                if self._take_inbound(name, self._context.links[name]):
                    progress = True
        return progress

    def _take_local(self) -> bool:
        if self._again and not self.is_syncing:
            if self._is_in_former_work(self._again[0]):
                return False
            key = self._again.popleft()
            entry = self._settlement.sources[key.source].entries.get(key.number)
            if entry is not None and entry.links is None and key not in self._keys_in_work:
                self._match(Work(0, key, False, self._context.reset), None, False)
            return True
        if not self._local:
            return False
        first = self._local[0]
        is_deferred = self.is_syncing
        if not isinstance(first, Published) or (self._deferred and not is_deferred):
            return False  # until it is decided whom those before it are for
        self._local.popleft()
        self._deferred += is_deferred
        reset = self._context.reset
        work = Work(0, None, True, reset, publisher=first.token, is_deferred=is_deferred)
        self._match(work, first.content, True)
        return True

    def _take_inbound(self, name: str, link: Link) -> bool:
        """Take the first frame of a neighbour, if it is a message."""
        inbound = link.inbound
        frame = inbound.queue[0]
        if not isinstance(frame, MessageFrame) or len(self._works) >= MATCHES:
            return False
        if self._is_in_former_work(frame.key):
            return False
        inbound.queue.popleft()
        if not inbound.queue:
            del self._context.unread[name]
        inbound.in_work += 1
        self._take_message(name, inbound, frame)
        return True

    def _is_in_former_work(self, key: MessageKey) -> bool:
        """Return whether a message is being matched since before the links began anew: when that is done, it
        is known, and it is to be decided once more whom it is for."""
        reset = self._context.reset
        return self._keys_in_work.get(key, reset) != reset

    def _take_message(self, name: str, inbound: InboundLink, frame: MessageFrame) -> None:
        key = frame.key
        if 0 <= frame.table < inbound.confirmed:
            self.late += 1
            self._context.report("late", name, f"{key.source}/{key.number}")
        self._settlement.learn_floor(key.source, frame.floor)
        source = self._settlement.source(key.source)
        entry = source.entries.get(key.number)
        is_known = key.number in source or key in self._keys_in_work
        if is_known and (entry is None or entry.links is not None):
            self.duplicates += frame.content is not None
            self._pass_over(name, inbound, key)
        elif is_known:
            work = Work(0, key, False, self._context.reset, name, inbound.epoch)
            if frame.content is not None and source.is_partial(key.number):
                work.replaces, work.is_partial = True, frame.is_partial
            self._match(work, frame.content if work.replaces else None, False)
        elif frame.content is None:  # which cannot be: the neighbour was told of more than is here
            self._context.report("lost", name, f"{key.source}/{key.number}")
            self._pass_over(name, inbound, key)
        else:
            # A message behind others of its source passed another way when this node did not want it: it only
            # passes here now, for somebody who did.
            greatest = self._greatest_in_work.get(source.name, 0)
            is_local = key.number > source.last and key.number > greatest
            self._greatest_in_work[source.name] = max(key.number, greatest)
            work = Work(0, key, True, self._context.reset, name, inbound.epoch)
            work.is_partial = frame.is_partial
            self._match(work, frame.content, is_local)

    def _pass_over(self, name: str, inbound: InboundLink, key: MessageKey) -> None:
        """Handle a message of which nothing follows, in its turn."""
        self._next_token += 1
        work = Work(self._next_token, key, False, self._context.reset, name, inbound.epoch)
        work.is_passed_over = True
        work.result = Matched(work.token, frozenset())
        self._works[work.token] = work
        self._finish_first()

    def _match(self, work: Work, content: object, is_local: bool) -> None:
        self._next_token += 1
        work.token = self._next_token
        self._works[work.token] = work
        if work.key is not None:
            self._keys_in_work[work.key] = work.reset
        self._context.actions.append(Match(work.token, content, work.key, work.is_new, is_local, work.link))

    # -- matched messages ------------------------------------------------------------------------------

    def on_matched(self, event: Matched) -> None:
        """Finish what was matched, in the order in which it was taken."""
        work = self._works.get(event.token)
        if work is None:
            return
        work.result = event
        self._finish_first()

    def _finish_first(self) -> None:
        while self._works:
            first = next(iter(self._works.values()))
            if first.result is None:
                return
            del self._works[first.token]
            self._finish(first, first.result)

    def _finish(self, work: Work, result: Matched) -> None:
        """Store a message that was matched, and let neighbours have it."""
        self._deferred -= work.is_deferred
        if work.link is not None:
            self._mark_handled(work.link, work.epoch)
        if work.is_passed_over:
            if work.key is not None and work.reset == self._context.reset:
                self._settlement.arrive(self._settlement.source(work.key.source), work.key.number)
            return
        if work.key is None:
            if result.problem is not None:
                self._context.actions.append(Reply(work.publisher, None, result.problem))
                return
            key = MessageKey(self._context.name, self._settlement.next_number())
        else:
            key = work.key
            self._keys_in_work.pop(key, None)
            if result.problem is not None:
                self._context.report("refused", work.link, f"{key}: {result.problem}")
        self._store(work, key, result)

    def _mark_handled(self, name: str, epoch: Epoch | None) -> None:
        link = self._context.links.get(name)
        if link is not None and link.inbound.epoch == epoch:
            link.inbound.in_work -= 1
            link.inbound.handled += 1
            self._context.mark_handled(name)

    def _store(self, work: Work, key: MessageKey, result: Matched) -> None:
        context, source = self._context, self._settlement.source(key.source)
        is_current = work.reset == context.reset
        is_own = work.link is None and work.is_new
        if key.number <= source.floor or not (work.is_new or is_current):
            return  # nobody needs the message any more, or it comes again
        links: frozenset[str] | None = None
        if is_current and not work.is_deferred:
            found = result.links if result.problem is None else context.links
            links = self._links_for(key.source, work.link, found)
        elif is_own and not self.is_syncing:
            self._again.append(key)
        has_content = work.is_new or work.replaces
        is_partial = work.is_partial if has_content else source.is_partial(key.number)
        store = context.store(
            StoredMessage(key, work.link, links, context.reset, is_partial),
            work.token if work.is_new else None,
            replaces=work.token if work.replaces else None,
        )
        entry = self._settlement.share(Entry(work.link, links))
        if work.is_new:
            source.add(key.number, entry, store, is_partial)
            self._unstored.append((store, source))
        else:
            source.set_partial(key.number, is_partial)
            source.resolve(key.number, entry)
        if is_current or is_own:
            self._settlement.arrive(source, key.number)
        else:
            self._settlement.mark(source.name)
        for name in sorted(links or ()):
            context.send_message(name, key, self._tables.version(name), store)
        if is_own:
            context.journal.wait(Reply(work.publisher, key))

    def _links_for(self, source: str, came_by: str | None, found: Iterable[str]) -> frozenset[str]:
        """Return the neighbours that a message has to be sent to."""
        links = {link for link in found if link in self._context.links}
        links.update(self._tables.table.unknown_links())
        links.discard(came_by or "")
        links.discard(self._context.hops.get(source, ""))
        return frozenset(links)

    def on_stored(self) -> None:
        """Note which messages have become durable."""
        stored = self._context.journal.stored
        while self._unstored and self._unstored[0][0] <= stored:
            self._settlement.on_stored(self._unstored.popleft()[1])
