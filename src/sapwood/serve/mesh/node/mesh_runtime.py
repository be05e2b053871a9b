"""The node of the mesh inside the engine: it does what the node asks for, with the log and the routes.

server ─► payloads, controls ─► node ─► Match ─► tenants' engines ─► Matched ─► node
                                 ├─► Store ─► rows of the batch that is being built
commit thread ─► MeshStored ─────┤
                                 └─► Send, SendControl ─► server ─► NATS
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sapwood.errors import MessageError
from sapwood.mesh.core import actions, events
from sapwood.mesh.core.frames import MessageKey
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.routing.route import Route
from sapwood.mesh.wire.frame_codec import (
    WireError,
    decode_control,
    encode_control,
)
from sapwood.mesh.wire.message_content import MessageContent
from sapwood.mesh.wire.topology_codec import decode_topology, encode_topology
from sapwood.serve.engine.message_ids import digest
from sapwood.serve.log.log_batch import MoreChanges
from sapwood.serve.mesh.event_log import NodeStart, open_event_log
from sapwood.serve.mesh.mesh_frames import (
    ControlArrived,
    ControlOut,
    MeshInput,
    MeshItem,
    MeshOutput,
    MeshOutputItem,
    MeshStatus,
    PayloadAccepted,
    PayloadArrived,
    PayloadFailed,
    RequestDone,
    RoutesConfirmed,
    StreamDrained,
)
from sapwood.serve.mesh.mesh_settings import MeshSettings
from sapwood.serve.mesh.node.content_cache import ContentCache
from sapwood.serve.mesh.node.link_exchange import LinkExchange
from sapwood.serve.mesh.node.link_routes import LinkRoutes
from sapwood.serve.mesh.node.local_routes import LocalRoutes
from sapwood.serve.mesh.node.mesh_operations import MeshOperations
from sapwood.serve.mesh.node.mesh_store import MeshChanges, MeshStore, encode_links, open_mesh_store
from sapwood.serve.mesh.node.message_matcher import Matching, MessageMatcher
from sapwood.serve.tenants.evaluation import Evaluation, Publication

if TYPE_CHECKING:
    from sapwood.serve.engine.message_ids import MessageIds
    from sapwood.serve.tenants.tenant_engines import TenantEngines

_log = logging.getLogger(__name__)
_TICK = 0.1
_STATUS = 1.0
_CACHE_BYTES = 64 * 2**20


class MessageSink(Protocol):
    """Takes messages that did not come from a publisher of this service."""

    def store_received(self, message: Publication, mark: bytes, evaluation: Evaluation) -> None:
        """Store a message with its deliveries."""

    def reject_received(self, message: Publication, error: MessageError) -> None:
        """Record a message that is refused."""


class MeshRuntime:
    """Drives a node with the events of its broker."""

    def __init__(
        self,
        settings: MeshSettings,
        location: str,
        engines: TenantEngines,
        ids: MessageIds,
        send: Callable[[MeshOutput | MeshStatus], None],
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._send = send
        self.counters: Counter[str] = Counter()
        self.store = MeshStore(open_mesh_store(location))
        self._incarnation, topology = self.store.begin(settings.mesh, settings.broker)
        state = self.store.read_state(settings.broker)
        self._event_log = open_event_log(NodeStart(state, topology, self._incarnation))
        self.node = Node(state, topology, self._incarnation)
        self.local_routes = LocalRoutes()
        self.operations = MeshOperations(self)
        self._changes = MeshChanges()
        self._sink: MessageSink | None = None
        self._matcher = MessageMatcher(engines, ids, self.counters)
        self._matches: list[Matching] = []
        self._matched: dict[int, Matching] = {}
        self._links = LinkExchange(self._find_content)
        self._routes = LinkRoutes(engines)
        self._output: list[MeshOutputItem] = []
        self._contents = ContentCache(_CACHE_BYTES)
        self._ticked = self._reported = 0.0

    # -- the engine ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Tell the node of the routes of local subscriptions."""
        self._engines.observe(self.local_routes)
        self._feed(events.Tick(time.monotonic()))
        added, _ = self.local_routes.take()
        self._feed(events.RoutesChanged(("version", self._engines.version), added))
        self.flush(None)

    def use(self, sink: MessageSink) -> None:
        """Store messages in this batch from now on."""
        self._sink = sink

    def take_changes(self) -> MeshChanges | None:
        """Return what has to be stored with the batch that ends; None if there is nothing."""
        changes, self._changes = self._changes, MeshChanges()
        return changes or None

    def expire(self, changes: MoreChanges | None, upto: int) -> MeshChanges:
        """Return the changes of a batch that deletes messages from the log, too."""
        expired = changes if isinstance(changes, MeshChanges) else MeshChanges()
        expired.expired = upto
        return expired

    def stored(self, number: int) -> None:
        """Note that a transaction is durable."""
        self._feed(events.Stored(number))

    def tick(self) -> bool:
        """Let the node know the time, if that is due; return whether it was."""
        now = time.monotonic()
        if now - self._ticked < _TICK:
            return False
        self._ticked = now
        self._feed(events.Tick(now))
        if now - self._reported >= _STATUS:
            self._reported = now
            self._send(self.describe())
        return True

    def follow_store(self) -> None:
        """Tell the node of routes that have changed with the store."""
        added, removed = self.local_routes.take()
        self._feed(events.RoutesChanged(("version", self._engines.version), added, removed))

    def handle(self, command: MeshInput) -> None:
        """Handle what came over the mesh."""
        for item in command.items:
            try:
                self._receive(item)
            except WireError as error:
                self.counters["refused payloads"] += 1
                _log.error("what came from %s cannot be used: %s", getattr(item, "link", "the hub"), error)
                if isinstance(item, PayloadArrived):  # its frames are asked for again
                    self._release(item.link)

    def _receive(self, item: MeshItem) -> None:
        if isinstance(item, PayloadArrived):
            self._receive_payload(item)
        elif isinstance(item, ControlArrived):
            self._feed(events.Controlled(item.link, decode_control(item.payload)))
        elif isinstance(item, PayloadAccepted):
            self._feed(events.Accepted(item.link, item.epoch, item.number))
        elif isinstance(item, PayloadFailed):
            self.counters["failed sends"] += 1
            self._feed(events.SendFailed(item.link, item.epoch))
        elif isinstance(item, StreamDrained):
            self._feed(events.Drained(item.link))
        else:
            self.change_topology(decode_topology(item.topology))

    def change_topology(self, topology: Topology) -> None:
        """Adopt another tree of brokers."""
        if topology.version <= self.node.topology.version:
            return
        _log.info("topology %d: %s", topology.version, dict(topology.parents))
        self._changes.topology = topology
        self._feed(events.TopologyChanged(topology))
        neighbours = topology.neighbours(self._settings.broker)
        self._routes.keep_only(neighbours)

    # -- messages --------------------------------------------------------------------------------------

    def evaluate(self, messages: Sequence[Publication]) -> Iterable[Evaluation | MessageError]:
        """Evaluate messages that were published here; return what becomes of each, in order."""
        matchings: dict[int, Matching] = {}
        self._feed(events.Batch(tuple([events.Published(None, message) for message in messages])))
        self._run_matches(matchings)
        for message in messages:
            found = matchings[id(message)]
            if found.error is not None:
                yield found.error
            else:
                assert found.evaluation is not None
                yield found.evaluation

    def _receive_payload(self, item: PayloadArrived) -> None:
        payload = self._links.receive(item)
        last = payload.first + len(payload.frames) - 1
        frames = enumerate(payload.frames, payload.first)
        received = [events.Received(item.link, payload.epoch, number, frame) for number, frame in frames]
        self._feed(events.Batch(tuple(received)))
        if not self.node.has_taken(item.link, payload.epoch, last):
            self._links.drop(item.link, item.tag)  # out of order, or of another epoch
            self._release(item.link)

    def _release(self, link: str) -> None:
        released = self._links.take_released(link)
        if released is not None:
            self._output.append(released)

    def flush(self, sink: MessageSink | None) -> None:
        """Do all that the node asks for, until it waits for something else."""
        if sink is not None:
            self._sink = sink
        self._run_matches({})
        self._output += self._links.take_payloads()
        if self._output:
            output, self._output = self._output, []
            self._send(MeshOutput(output))

    def feed(self, event: events.Event) -> None:
        """Give the node an event; what follows is done with the batch that is being built."""
        self._feed(event)

    def find_routes(self, message: Publication) -> list[Route]:
        """Return the routes of all links that a message meets; MessageError if it cannot be read."""
        return [route for route, _ in self._engines.of(message.tenant).find_routes(message)]

    def namespaces_of(self, tenant: str) -> Mapping[str, str]:
        """Return the prefixes that a tenant has declared."""
        return self._engines.of(tenant).namespaces

    def _feed(self, event: events.Event) -> None:
        following = self.node.handle(event)
        if self._event_log is not None:
            self._event_log.add(event, following)
        for action in following:
            self._do(action)

    def _do(self, action: actions.Action) -> None:
        if isinstance(action, actions.Match):
            self._matches.append(self._begin_match(action))
        elif isinstance(action, actions.Store):
            self._store(action)
        elif isinstance(action, actions.Send):
            self._links.send(action)
        elif isinstance(action, actions.SendControl):
            self._output.append(ControlOut(action.link, encode_control(action.control)))
        elif isinstance(action, actions.Release):
            self._links.release(action)
            self._release(action.link)
        elif isinstance(action, actions.SetRoutes):
            self._routes.change(action)
        elif isinstance(action, actions.Reply):
            self._reply(action)
        else:
            self._report(action)

    # -- matching --------------------------------------------------------------------------------------

    def _begin_match(self, action: actions.Match) -> Matching:
        content = action.content
        if isinstance(content, Publication):  # published here
            return Matching(action, content, is_received=False)
        if content is None:
            assert action.key is not None
            content = self._find_content(action.key)
        if content is None:  # the log does not keep it any more
            assert action.key is not None
            _log.error("message %s/%d is not in the log any more", *action.key)
            content = MessageContent("", "", "", None, b"")
        assert isinstance(content, MessageContent)
        publication = Publication(
            content.tenant, content.stream, content.id, content.body, content.time, content.is_unique
        )
        return Matching(action, publication, is_received=True)

    def _run_matches(self, published: dict[int, Matching]) -> None:
        """Match what the node wants to be matched, until it wants no more."""
        while self._matches:
            matches, self._matches = self._matches, []
            self._matcher.match(matches)
            matched: list[events.SingleEvent] = []
            for matching in matches:
                self._matched[matching.action.token] = matching
                if not matching.is_received:
                    published[id(matching.publication)] = matching
                matched += self._describe_match(matching)
            self._feed(events.Batch(tuple(matched)))
            self._matched.clear()

    def _describe_match(self, matching: Matching) -> Iterator[events.SingleEvent]:
        """Yield what has become of a message."""
        token = matching.action.token
        if matching.error is not None:
            yield events.Matched(token, frozenset(), str(matching.error))
            return
        assert matching.evaluation is not None
        yield events.Matched(token, self._routes.name(matching.evaluation.links))
        for result in matching.evaluation.published:
            yield events.Published(None, _Result.of(result))

    # -- storing ---------------------------------------------------------------------------------------

    def _store(self, store: actions.Store) -> None:
        self._changes.add(store)
        message = store.message
        if message is None:
            return
        if store.match is None:
            self._changes.moved.append(message)
            return
        matching = self._matched[store.match]
        publication = matching.publication
        content = MessageContent(
            publication.tenant,
            publication.stream,
            publication.id,
            publication.time,
            publication.body,
            publication.is_new,
        )
        self._contents.add(message.key, content)
        if message.key.source == self._settings.broker:
            self._changes.last = message.key.number
        evaluation = matching.evaluation or Evaluation(publication.time)
        evaluation.mesh = message
        evaluation.is_local = matching.action.is_local and matching.error is None
        if matching.is_received or isinstance(publication, _Result):
            assert self._sink is not None
            if matching.error is not None:
                self._sink.reject_received(publication, matching.error)
            self._sink.store_received(publication, digest(publication.body), evaluation)

    def place(self, seq: int, evaluation: Evaluation) -> None:
        """Add the row of a message that has its sequence number in the log."""
        message = evaluation.mesh
        if message is None:
            return
        self._changes.messages.append(
            {
                "seq": seq,
                "source": message.key.source,
                "number": message.key.number,
                "came_by": message.came_by,
                "links": encode_links(message.links),
                "reset": message.reset,
                "is_local": evaluation.is_local,
            }
        )

    def _find_content(self, key: MessageKey) -> MessageContent | None:
        found = self._contents.get(key)
        if found is None:
            self.counters["contents read"] += 1
            found = self.store.read_contents([key]).get(key)
            if found is not None:
                self._contents.add(key, found)
        return found

    # -- replies, reports ----------------------------------------------------------------------

    def _reply(self, action: actions.Reply) -> None:
        token = action.token
        if not isinstance(token, tuple):
            return  # a publisher is answered when the batch is committed
        kind, number = token
        if kind == "version":
            self._output.append(RoutesConfirmed(number))
        else:
            self._output.append(RequestDone(number))

    def _report(self, report: actions.Report) -> None:
        self.counters[report.kind] += report.count
        level = logging.INFO if report.kind in ("reset", "healed") else logging.WARNING
        where = f" on link {report.link}" if report.link else ""
        _log.log(level, "mesh: %s%s %s", report.kind, where, report.detail)

    # -- what it tells ---------------------------------------------------------------------------------

    def describe(self) -> MeshStatus:
        """Return the state of the node."""
        node = self.node
        links: dict[str, dict[str, Any]] = {}
        for name in node.topology.neighbours(self._settings.broker):
            told, wanted = node.table.told[name], node.table.wanted[name]
            links[name] = {
                "open": node.is_open(name),
                "outbox": node.outbox(name),
                "unsettled": node.unsettled_for(name),
                "version": told.version,
                "confirmed": told.confirmed,
                "routes out": told.count,
                "routes in": wanted.count,
                "knows table": not node.table.is_unknown(name),
                **self._links.traffic(name),
            }
        self.counters["late"] = node.late
        self.counters["duplicates"] = node.duplicates
        return MeshStatus(
            encode_topology(node.topology),
            self._incarnation,
            links,
            dict(self.counters),
            node.unsettled(),
            node.unconfirmed,
            node.waiting,
            len(node.table),
            len(self.local_routes),
            node.floors,
            node.positions,
        )

    def find_needed(self) -> int | None:
        """Return the first message of the log that is not settled everywhere; None if all are."""
        return self.store.find_needed(self.node.floors)

    def close(self) -> None:
        """Close the database."""
        self.store.close()
        if self._event_log is not None:
            self._event_log.close()


class _Result(Publication):
    """A message that a query has published."""

    @classmethod
    def of(cls, result: Publication) -> _Result:
        return cls(result.tenant, result.stream, result.id, result.body, result.time, result.is_new)
