"""Frames as bytes in a simulated mesh: formats, dictionaries, skeletons, projection, and damage on the way.

Without it, brokers hand each other frames as objects. With it, each broker has a format of its own, trains
dictionaries, forgets them when it crashes, routes by skeletons where it can, and cuts from messages what
nobody beyond a link reads. What is decided on a skeleton, and on what is left of a message, is taken at its
word: a wrong decision is a delivery that is missing, or a frame too many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sapwood.engine.limits import Limits
from sapwood.mesh.core import frames
from sapwood.mesh.core.actions import Match
from sapwood.mesh.core.frames import Frame, MessageFrame, MessageKey
from sapwood.mesh.core.tables.route_table import LOCAL as LOCAL_SIDE
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.projection.link_projection import ALWAYS, AUTO, NEVER, LinkProjection
from sapwood.mesh.routing.condition_uses import ConditionUses
from sapwood.mesh.routing.route import Route
from sapwood.mesh.sim.broker_workload import TENANT, BrokerWorkload, broker_workload, digest
from sapwood.mesh.sim.projection_workload import projection_workload
from sapwood.mesh.sim.scenario import Outcome, Scenario
from sapwood.mesh.wire.bodies.body_format import BodyFormat
from sapwood.mesh.wire.bodies.dictionary_controls import (
    DictionaryControl,
    LackDictionary,
    OfferDictionary,
    OfferPlan,
)
from sapwood.mesh.wire.bodies.dictionary_exchange import LinkControl
from sapwood.mesh.wire.frame_codec import (
    UnknownDictionary,
    WireError,
    decode_payload,
    encode_payload,
)
from sapwood.mesh.wire.held_payloads import ASK_AGAIN, GIVE_UP
from sapwood.mesh.wire.link_codec import LinkCodec
from sapwood.mesh.wire.message_content import (
    MOST_HITS,
    SOME_HITS,
    Hits,
    MessageContent,
    Projection,
)
from sapwood.mesh.wire.skeletons.skeleton_router import LOCAL, SkeletonRouter

if TYPE_CHECKING:
    from sapwood.mesh.sim.sim_broker import Storage, StreamedFrame
    from sapwood.mesh.sim.world import World

_SAMPLES = 6
P = ParamSpec("P")
T = TypeVar("T")


class _Inline(Executor):
    """Runs what it is given at once."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(work(*args, **kwargs))
        return future


class SimWire:
    """What a broker that runs knows of bytes: nothing of it survives a crash."""

    def __init__(
        self,
        world: World,
        name: str,
        workload: BrokerWorkload,
        format: BodyFormat,
        mode: str,
        damage: float,
        carries_hits: bool = False,
    ) -> None:
        """`mode` says when the broker cuts messages."""
        self._world = world
        self._name = name
        self._workload = workload
        self._damage = damage
        self._carries_hits = carries_hits
        self._router = SkeletonRouter()
        self._codec = LinkCodec(format, self._router, Limits(), _SAMPLES, _Inline(), always_skeletons=True)
        self._projection = LinkProjection(mode, Limits(), self._is_known, clock=lambda: world.now)
        self._uses: dict[str, ConditionUses] = {}
        """by link"""
        self._contents: dict[tuple[MessageKey, int], MessageContent] = {}
        """by message and document, as they came, with skeletons"""
        self._inner: frozenset[str] = frozenset()
        """neighbours that forward messages to others"""
        self._hits: dict[tuple[str, MessageKey], Hits] = {}
        """by neighbour and message, which of its routes the message meets"""
        self._lacking: dict[str, set[bytes]] = {}
        """by neighbour, dictionaries that it does not have any more"""
        self._waiting: dict[str, tuple[float, float]] = {}
        """by neighbour of which a frame cannot be read, since when, and when it was asked last"""

    # -- frames ----------------------------------------------------------------------------------------

    def set_neighbours(self, topology: Topology) -> None:
        """Take over who the neighbours are."""
        names = topology.neighbours(self._name)
        self._inner = frozenset(each for each in names if len(topology.neighbours(each)) > 1)
        self._codec.set_neighbours(names, self._inner)
        self._projection.keep_only(names)
        self._uses = {name: uses for name, uses in self._uses.items() if name in names}

    def encode(self, link: str, item: StreamedFrame, may_cut: bool) -> bytes:
        """Return a frame as bytes, which may be damaged; of the message in it, parts may be cut."""
        frame = item.frame
        if isinstance(frame, MessageFrame) and frame.content is not None:
            assert isinstance(frame.content, int)
            content = self._find_content(frame.key, frame.content)
            if may_cut:
                content = self._cut(link, content)
            content = content._replace(hits=self._hits.get((link, frame.key)))
            encoded = self._codec.encode(link, content)
            frame = MessageFrame(frame.key, encoded, frame.table, frame.floor)
        payload = encode_payload(item.epoch, item.number, [frame], partial(self._codec.shares_plan, link))
        if self._world.faults.loss and self._world.random.random() < self._damage:
            self._world.count("damage")
            at = self._world.random.randrange(len(payload))
            payload = payload[:at] + bytes((payload[at] ^ 0x55,)) + payload[at + 1 :]
        return payload

    def _find_content(self, key: MessageKey, document: int) -> MessageContent:
        """Return a message as it came, or else as it is stored."""
        found = self._contents.get((key, document))
        return found or self._workload.content(document, f"{key.source}/{key.number}")

    def decode(self, link: str, payload: bytes) -> tuple[Frame | None, bool]:
        """Return a frame, None if it is refused, and whether it has to wait."""
        world = self._world
        try:
            (frame,) = decode_payload(payload, self._codec.dictionaries, self._codec.plans).frames
        except UnknownDictionary as error:
            since, asked = self._waiting.setdefault(link, (world.now, -ASK_AGAIN))
            in_vain = self._lacking.get(link, set())
            if world.now - since >= GIVE_UP or not in_vain.isdisjoint(error.identities):
                del self._waiting[link]
                world.count("refused frame")
                return None, False
            if world.now - asked >= ASK_AGAIN:
                world.count("dictionary asked")
                self._waiting[link] = since, world.now
                self.send(self._codec.ask(link, error.identities))
            return None, True
        except WireError:
            world.count("refused frame")
            return None, False
        self._waiting.pop(link, None)
        if isinstance(frame, MessageFrame) and isinstance(frame.content, MessageContent):
            document = self._workload.find_document(frame.content)
            self._contents[frame.key, document] = frame.content
            frame = MessageFrame(frame.key, document, frame.table, frame.floor, frame.is_partial)
        return frame, False

    def holds(self, link: str) -> bool:
        """Return whether a frame of a neighbour waits for a dictionary."""
        return link in self._waiting

    def learn(self, key: MessageKey, document: int) -> None:
        """Learn from a message that was published here."""
        self._codec.learn(self._find_content(key, document))

    # -- controls and time -----------------------------------------------------------------------------

    def receive(self, link: str, control: DictionaryControl) -> None:
        """Handle what a neighbour tells about dictionaries."""
        if isinstance(control, LackDictionary):
            self._lacking.setdefault(link, set()).add(control.identity)
        elif isinstance(control, OfferDictionary | OfferPlan):
            self._lacking.pop(link, None)
        self.send(self._codec.receive(link, control))

    def tick(self) -> None:
        """Send the offers that are due."""
        self.send(self._codec.tick(self._world.now))
        self._router.take_over()

    def send(self, controls: Iterable[LinkControl]) -> None:
        """Send controls to neighbours."""
        for link, control in controls:
            self._world.network.send_control(self._name, link, control)

    # -- projection ------------------------------------------------------------------------------------

    def _is_known(self, link: str) -> bool:
        """Return whether all that is wanted beyond a link is known."""
        node = self._world.brokers[self._name].node
        return node is not None and not node.table.is_unknown(link)

    def _cut(self, link: str, found: MessageContent) -> MessageContent:
        """Return a message as it goes over a link, without what nobody beyond reads, if that pays."""
        before, projection = found.projection, self._projection
        plan = projection.choose_plan(link, TENANT, found.stream, before.plan if before else None)
        if plan is None:
            return found
        body = projection.cut(link, TENANT, found.stream, found.body, plan)
        if len(body) == len(found.body):
            return found
        self._world.count("cut message" if before is None else "message cut further")
        original = digest(found.body) if before is None else before.original
        return found._replace(body=body, encoded=None, projection=Projection(plan, original))

    def mark_partial(self, storage: Storage) -> None:
        """Note which messages that are not settled are partial, as the contents that are stored tell."""
        for key, message in storage.state.messages.items():
            is_partial = self._workload.is_partial(storage.contents[key])
            if message.is_partial != is_partial:
                self._world.count("wrong mark of a partial message")
                storage.state.messages[key] = replace(message, is_partial=is_partial)

    def withhold(self, document: int, queries: Iterable[int]) -> list[int]:
        """Return, of the queries that a document matches, those of which nothing that they read was cut."""
        return [query for query in queries if self._workload.has_all(document, query)]

    # -- skeletons -------------------------------------------------------------------------------------

    def set_bit(self, link: str, bit: int) -> None:
        """Name the bit of a link."""
        self._router.set_bit(link, bit)

    def change_routes(
        self, link: str, bit: int, added: Sequence[frames.Route], removed: Sequence[frames.Route]
    ) -> None:
        """Change what a link wants. Of routes that differ only in what they read, skeletons are given one."""
        new, gone = _own(added), _own(removed)
        self._projection.change(link, new, gone)
        begun, ended = self._uses.setdefault(link, ConditionUses()).change(new, gone)
        self._router.change(bit, begun, ended)

    def change_local(self, added: Sequence[frames.Route], removed: Sequence[frames.Route]) -> None:
        """Change what local subscriptions want."""
        self._router.change(LOCAL, _own(added), _own(removed))

    # -- hits ------------------------------------------------------------------------------------------

    def decide_by_hits(self, action: Match, document: int) -> frozenset[str] | None:
        """Return the links that want a message, if that is known by what it has come with."""
        content = self._contents.get((action.key, document)) if action.key is not None else None
        node = self._world.brokers[self._name].node
        if content is None or content.hits is None or action.link is None or node is None:
            return None
        hits, table = content.hits, node.table
        sides = table.find_sides(*hits, action.link)
        is_undecided = sides is not None and action.is_local and not self._excludes_local(sides, hits)
        self._world.count("decided by hits" if sides is not None and not is_undecided else "hits not used")
        if sides is None or is_undecided:
            return None
        return frozenset(name for name, told in table.told.items() if sides & told.bit)

    def _excludes_local(self, sides: int, hits: Hits) -> bool:
        """Return whether no local subscription wants a message that sides want, as bits."""
        node = self._world.brokers[self._name].node
        assert node is not None
        if sides & LOCAL_SIDE or node.has_local_changes:
            return False
        return hits.is_complete or not node.table.local_routes()

    def find_hits(self, holding: Collection[int], came_by: str | None) -> dict[str, Hits]:
        """Return which routes of each neighbour a message meets, given the keys of all that hold of it."""
        node = self._world.brokers[self._name].node
        assert node is not None
        found: dict[str, Hits] = {}
        for link in sorted(self._inner & node.table.told.keys()) if self._carries_hits else ():
            keys = node.table.select(holding, link)
            if keys and link != came_by and not node.table.is_unknown(link):
                is_complete = len(keys) <= MOST_HITS
                listed = keys if is_complete else keys[:SOME_HITS]
                found[link] = Hits(node.table.wanted[link].digest, listed, is_complete)
        return found

    def keep_hits(self, key: MessageKey, found: Mapping[str, Hits]) -> None:
        """Keep the hits of a message for when it is sent."""
        for link in self._inner:
            self._hits.pop((link, key), None)
        self._hits.update(((link, key), hits) for link, hits in found.items())

    # -- skeletons -------------------------------------------------------------------------------------

    def decide(self, key: MessageKey | None, document: int, is_local: bool) -> int | None:
        """Return the links that want a message, as bits, if its skeleton tells."""
        content = self._contents.get((key, document)) if key is not None else None
        if content is None or content.skeleton is None:
            return None
        dictionary = self._codec.dictionaries.get(content.skeleton.dictionary)
        if dictionary is None:
            return None
        links = self._router.decide(TENANT, content.stream, content.skeleton, dictionary, is_local)
        self._world.count("decided by skeleton" if links is not None else "not decided by skeleton")
        return links


WireFactory = Callable[["World", str], SimWire]


def _own(routes: Sequence[frames.Route]) -> list[Route]:
    return [route for route in routes if isinstance(route, Route)]


def choose_workload(seed: int) -> BrokerWorkload:
    """Return the workload of a scenario: in most of them, there is much to cut."""
    return projection_workload() if seed % 3 else broker_workload()


def run_on_wire(
    seed: int, workload: BrokerWorkload | None = None, largest: int = 30, **options: Any
) -> Outcome:
    """Run a random scenario in which frames are bytes, of a format that each broker has for itself, and
    messages are cut by brokers that do so always, never, or where it pays."""
    known = workload or choose_workload(seed)
    random = Random(f"wire {seed}")
    damage = random.choice((0.0, 0.002, 0.02))
    formats: dict[str, BodyFormat] = {}
    choices = Random(f"projection {seed}")
    carries_hits = Random(f"hits {seed}").random() < 0.5
    possible = choices.choice(((ALWAYS,), (AUTO,), (ALWAYS, ALWAYS, AUTO, NEVER)))
    modes: dict[str, str] = {}

    def make_wire(world: World, name: str) -> SimWire:
        format = formats.setdefault(name, random.choice(list(BodyFormat)))
        mode = modes.setdefault(name, choices.choice(possible))
        return SimWire(world, name, known, format, mode, damage, carries_hits)

    return Scenario(seed, known, largest=largest, make_wire=make_wire, **options).run()
