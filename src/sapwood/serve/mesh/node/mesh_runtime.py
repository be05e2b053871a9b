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
from typing import TYPE_CHECKING

from sapwood.errors import MessageError, RouteError
from sapwood.mesh.core import actions, events
from sapwood.mesh.core.frames import Beat, MessageKey
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.projection.link_projection import LinkProjection
from sapwood.mesh.routing.route import Route
from sapwood.mesh.wire.bodies.body_format import parse_format
from sapwood.mesh.wire.bodies.dictionary_controls import (
    DictionaryControl,
)
from sapwood.mesh.wire.bodies.wire_dictionary import DictionaryError
from sapwood.mesh.wire.frame_codec import (
    WireError,
    decode_control,
    encode_control,
)
from sapwood.mesh.wire.link_codec import LinkCodec
from sapwood.mesh.wire.message_content import MessageContent
from sapwood.mesh.wire.skeletons.skeleton_router import LOCAL, SkeletonRouter
from sapwood.mesh.wire.topology_codec import decode_topology
from sapwood.serve.engine.message_ids import digest_of
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
from sapwood.serve.mesh.node.content_cache import StoredContents
from sapwood.serve.mesh.node.link_exchange import LinkExchange
from sapwood.serve.mesh.node.link_routes import LinkRoutes
from sapwood.serve.mesh.node.local_routes import LocalRoutes
from sapwood.serve.mesh.node.local_work import PRIORITY, LocalWork
from sapwood.serve.mesh.node.mesh_operations import MeshOperations
from sapwood.serve.mesh.node.mesh_store import MeshChanges, MeshStore, open_mesh_store
from sapwood.serve.mesh.node.message_hits import MessageHits
from sapwood.serve.mesh.node.message_matcher import Matching, MessageMatcher
from sapwood.serve.mesh.node.message_sink import MessageSink
from sapwood.serve.mesh.node.node_status import describe_node
from sapwood.serve.mesh.node.payload_receiver import PayloadReceiver
from sapwood.serve.mesh.node.table_budget import MessageSampler, make_generaliser
from sapwood.serve.tenants.evaluation import Deferred, Evaluation, Publication, QueryResult

if TYPE_CHECKING:
    from sapwood.serve.engine.message_ids import MessageIds
    from sapwood.serve.tenants.tenant_engines import TenantEngines

_log = logging.getLogger(__name__)
_TICK = 0.1
_STATUS = 1.0


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
        budget = settings.table_budget
        self._event_log = open_event_log(NodeStart(state, topology, self._incarnation, budget))
        self.node = Node(state, topology, self._incarnation, make_generaliser(budget))
        self._sampler = MessageSampler(budget)
        self.local_routes = LocalRoutes()
        self.operations = MeshOperations(self)
        self._changes = MeshChanges()
        self._sink: MessageSink | None = None
        self._skeletons = SkeletonRouter() if settings.skeletons != "never" else None
        self._codec = LinkCodec(
            parse_format(settings.format),
            self._skeletons,
            engines.limits,
            settings.dictionary_samples,
            always_skeletons=settings.skeletons == "always",
        )
        self.projection = LinkProjection(
            settings.project,
            engines.limits,
            lambda link: not self.node.table.is_unknown(link),
            self._codec.seconds_per_byte,
        )
        self.local_work = LocalWork(
            engines, settings.scheduling, self.counters, self._store_outcome, self.local_routes.get
        )
        self._routes = LinkRoutes(engines, self.projection, self._skeletons)
        self._hits = MessageHits(
            self.node.table,
            self._routes,
            engines,
            self.counters,
            settings.hits,
            lambda: self.node.has_local_changes,
        )
        self._matcher = MessageMatcher(
            engines,
            ids,
            self.counters,
            self.local_work,
            self._hits,
            self._skeletons,
            self._codec.dictionaries,
        )
        self._matches: list[Matching] = []
        self._matched: dict[int, Matching] = {}
        self._contents = StoredContents(self.store, self.counters)
        self._links = LinkExchange(self._codec, self._contents, self.projection, self._hits.get)
        if self._skeletons is not None:
            self._skeletons.set_source(self._list_routes)
        self._output: list[MeshOutputItem] = []
        self._receiver = PayloadReceiver(
            self._links, self._codec, self.counters, lambda item: self._output.append(item)
        )
        self.barriers: list[RequestDone] = []
        """answers that wait until all that was deferred is evaluated"""
        self._ticked = self._reported = 0.0
        self._set_neighbours(topology)

    # -- the engine ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Tell the node of the routes of local subscriptions."""
        self._engines.observe(self.local_routes)
        self._feed(events.Tick(time.monotonic()))
        self.follow_store()
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
        self._receiver.send_controls(self._codec.tick(now))
        self._receiver.check_held(now)
        sampled = self._sampler.take(now)
        if sampled is not None:
            self._feed(sampled)
        if now - self._reported >= _STATUS:
            self._reported = now
            self._send(self.describe())
        return True

    def follow_store(self) -> None:
        """Tell the node of routes that have changed with the store."""
        added, removed = self.local_routes.take()
        if self._skeletons is not None:
            self._skeletons.change(LOCAL, added, removed)
        self._feed(events.RoutesChanged(("version", self._engines.version), added, removed))

    def _list_routes(self) -> Iterator[tuple[int, Route]]:
        """Yield all routes, with the bits of those who want them."""
        yield from self._routes.list_routes()
        yield from ((LOCAL, route) for route in self.local_routes.list_routes())

    def handle(self, command: MeshInput) -> None:
        """Handle what came over the mesh."""
        for item in command.items:
            try:
                self._receive(item)
            except (WireError, DictionaryError, RouteError) as error:
                self.counters["refused payloads"] += 1
                _log.error("what came from %s cannot be used: %s", getattr(item, "link", "the hub"), error)
                if isinstance(item, PayloadArrived):  # its frames are asked for again
                    self._receiver.release(item.link)

    def _receive(self, item: MeshItem) -> None:
        if isinstance(item, PayloadArrived):
            self._receive_payload(item)
        elif isinstance(item, ControlArrived):
            self._receive_control(item)
        elif isinstance(item, PayloadAccepted):
            self._codec.accepted(item.link, item.number, time.monotonic())
            self._feed(events.Accepted(item.link, item.epoch, item.number))
        elif isinstance(item, PayloadFailed):
            self.counters["failed sends"] += 1
            self._codec.failed(item.link)
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
        self._links.keep_only(neighbours)
        self._set_neighbours(topology)

    def _set_neighbours(self, topology: Topology) -> None:
        neighbours = topology.neighbours(self._settings.broker)
        self.local_work.is_inner = len(neighbours) > 1
        inner = [name for name in neighbours if len(topology.neighbours(name)) > 1]
        self._codec.set_neighbours(neighbours, inner)
        self._hits.set_inner(inner)

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
        payload = self._receiver.receive(item)
        if payload is None:
            return
        last = payload.first + len(payload.frames) - 1
        frames = enumerate(payload.frames, payload.first)
        received = [events.Received(item.link, payload.epoch, number, frame) for number, frame in frames]
        self._feed(events.Batch(tuple(received)))
        if not self.node.has_taken(item.link, payload.epoch, last):
            self._links.drop(item.link, item.tag)  # out of order, or of another epoch
            self._receiver.release(item.link)

    def _receive_control(self, item: ControlArrived) -> None:
        control = decode_control(item.payload)
        if isinstance(control, DictionaryControl):
            self.handle(MeshInput([*self._receiver.receive_control(item.link, control)]))
        elif not (isinstance(control, Beat) and self._receiver.holds(item.link)):  # what is held is not lost
            self._feed(events.Controlled(item.link, control))

    def flush(self, sink: MessageSink | None) -> None:
        """Do all that the node asks for, until it waits for something else."""
        if sink is not None:
            self._sink = sink
        self._run_matches({})
        for payload in self._links.take_payloads():
            self._codec.sent(payload.link, payload.number, len(payload.payload), time.monotonic())
            self._output.append(payload)
        if not self.local_work:
            self._output += self.barriers
            self.barriers.clear()
        if self._output:
            output, self._output = self._output, []
            self._send(MeshOutput(output))

    def feed(self, event: events.Event) -> None:
        """Give the node an event; what follows is done with the batch that is being built."""
        self._feed(event)

    def find_routes(self, message: Publication) -> list[tuple[Route, frozenset[str]]]:
        """Return the routes that a message meets, with the links that want each; MessageError if it cannot be
        read. Of those that differ only in what they read, one is there."""
        found = self._engines.of(message.tenant).find_routes(message)
        return [(route, self._routes.name(links)) for route, links in found]

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
            self._receiver.release(action.link)
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
            content = self._contents.find(action.key)
        if content is None:  # the log does not keep it any more
            assert action.key is not None
            _log.error("message %s/%d is not in the log any more", *action.key)
            content = MessageContent("", "", "", None, b"")
        assert isinstance(content, MessageContent)
        publication = Publication(
            content.tenant,
            content.stream,
            content.id,
            content.body,
            content.time,
            content.is_unique,
            content.projection,
        )
        return Matching(action, publication, is_received=True, content=content)

    def _run_matches(self, published: dict[int, Matching]) -> None:
        """Match what the node wants to be matched, until it wants no more."""
        while self._matches:
            matches, self._matches = self._matches, []
            self._matcher.match(matches)
            matched: list[events.SingleEvent] = []
            for matching in matches:
                self._matched[matching.action.token] = matching
                if matching.action.key is not None:
                    self._hits.keep(matching.action.key, matching.hits)
                if not matching.is_received:
                    published[id(matching.publication)] = matching
                if matching.error is None and matching.publication.projection is None:
                    self._sampler.add(matching.publication)
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
            yield events.Published(None, QueryResult.of(result))

    # -- storing ---------------------------------------------------------------------------------------

    def _store(self, store: actions.Store) -> None:
        self._changes.add(store)
        message = store.message
        if message is None:
            return
        if store.match is None:
            self._changes.moved.append(message)
            if store.replaces is not None:
                self._replace_content(message.key, self._matched[store.replaces])
            return
        matching = self._matched[store.match]
        publication, came = matching.publication, matching.content
        content = MessageContent(
            publication.tenant,
            publication.stream,
            publication.published_id or publication.id,
            publication.time,
            publication.body,
            publication.is_new,
            None if came is None else came.encoded,
            None if came is None else came.skeleton,
            publication.projection,
        )
        self._contents.add(message.key, content)
        if message.key.source == self._settings.broker:
            self._changes.last = message.key.number
            self._hits.keep(message.key, matching.hits)
            self._codec.learn(content)
        evaluation = matching.evaluation or Evaluation(publication.time)
        evaluation.mesh = message
        evaluation.is_local = matching.action.is_local and matching.error is None
        evaluation.is_deferred = matching.is_deferred and matching.error is None
        if self._settings.scheduling == PRIORITY:
            self._links.encode_for_all(message.key, self.node.topology.neighbours(self._settings.broker))
        if matching.is_received or isinstance(publication, QueryResult):
            assert self._sink is not None
            if matching.error is not None:
                self._sink.reject_received(publication, matching.error)
            self._sink.store_received(publication, digest_of(publication), evaluation)

    def _replace_content(self, key: MessageKey, matching: Matching) -> None:
        """Store a message that has come again with more than is here, under the id that it has here."""
        assert matching.content is not None
        content = matching.content._replace(hits=None)  # which are those of another table
        self._contents.replace(key, content)
        self._changes.replace(key, content)

    def _store_outcome(self, deferred: Deferred, outcome: Evaluation | MessageError) -> None:
        """Store what became of a deferred message, and publish the results of queries."""
        assert self._sink is not None
        self._changes.evaluated.append((deferred.seq, isinstance(outcome, Evaluation)))
        if isinstance(outcome, MessageError):
            self._sink.reject_received(deferred.message, outcome)
            return
        self._sink.store_evaluation(deferred, outcome)
        for result in outcome.published:
            self._feed(events.Published(None, QueryResult.of(result)))

    def place(self, stored: Deferred, evaluation: Evaluation) -> None:
        """Add the row of a message that has its sequence number in the log."""
        if evaluation.mesh is not None:
            self._changes.place(stored.seq, evaluation.mesh, evaluation, stored.message)
            if evaluation.is_deferred:
                self.local_work.add(stored)

    # -- replies, reports ----------------------------------------------------------------------

    def _reply(self, action: actions.Reply) -> None:
        token = action.token
        if not isinstance(token, tuple):
            return  # a publisher is answered when the batch is committed
        kind, number = token
        if kind == "version":
            self._output.append(RoutesConfirmed(number))
        else:
            self.barriers.append(RequestDone(number))

    def _report(self, report: actions.Report) -> None:
        self.counters[report.kind] += report.count
        level = logging.INFO if report.kind in ("reset", "healed") else logging.WARNING
        where = f" on link {report.link}" if report.link else ""
        _log.log(level, "mesh: %s%s %s", report.kind, where, report.detail)

    # -- what it tells ---------------------------------------------------------------------------------

    def describe(self) -> MeshStatus:
        """Return the state of the node."""
        self.counters.update(self._codec.take_counters())
        neighbours = self.node.topology.neighbours(self._settings.broker)
        traffic = {name: {**self._links.traffic(name), **self._codec.describe(name)} for name in neighbours}
        return describe_node(self.node, traffic, self.counters, self._incarnation, len(self.local_routes))

    def find_needed(self) -> int | None:
        """Return the first message of the log that is not settled everywhere, or not evaluated here."""
        found = self.store.find_needed(self.node.floors), self.local_work.first
        return min((seq for seq in found if seq is not None), default=None)

    def close(self) -> None:
        """Close the database, and end the training of dictionaries."""
        self._codec.close()
        self.store.close()
        if self._event_log is not None:
            self._event_log.close()
