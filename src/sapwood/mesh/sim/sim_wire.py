"""Frames as bytes in a simulated mesh: formats, dictionaries, skeletons, and damage on the way.

Without it, brokers hand each other frames as objects. With it, each broker has a format of its own, trains
dictionaries, forgets them when it crashes, and routes by skeletons where it can. What is decided on one is
taken at its word: a wrong decision is a delivery that is missing, or a frame too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sapwood.engine.limits import Limits
from sapwood.mesh.core import frames
from sapwood.mesh.core.frames import Frame, MessageFrame, MessageKey
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.routing.route import Route
from sapwood.mesh.sim.broker_workload import DOCUMENTS, TENANT
from sapwood.mesh.sim.scenario import Outcome, Scenario
from sapwood.mesh.sim.workload import Workload
from sapwood.mesh.wire.bodies.body_format import BodyFormat
from sapwood.mesh.wire.bodies.dictionary_controls import (
    DictionaryControl,
    LackDictionary,
    OfferDictionary,
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
from sapwood.mesh.wire.message_content import MessageContent
from sapwood.mesh.wire.skeletons.skeleton_router import LOCAL, SkeletonRouter

if TYPE_CHECKING:
    from sapwood.mesh.sim.sim_broker import StreamedFrame
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

    def __init__(self, world: World, name: str, format: BodyFormat, damage: float) -> None:
        self._world = world
        self._name = name
        self._damage = damage
        self._router = SkeletonRouter()
        self._codec = LinkCodec(format, self._router, Limits(), _SAMPLES, _Inline(), always_skeletons=True)
        self._contents: dict[MessageKey, MessageContent] = {}
        """as they came, with skeletons"""
        self._lacking: dict[str, set[bytes]] = {}
        """by neighbour, dictionaries that it does not have any more"""
        self._waiting: dict[str, tuple[float, float]] = {}
        """by neighbour of which a frame cannot be read, since when, and when it was asked last"""

    # -- frames ----------------------------------------------------------------------------------------

    def set_neighbours(self, topology: Topology) -> None:
        """Take over who the neighbours are."""
        names = topology.neighbours(self._name)
        self._codec.set_neighbours(names, [each for each in names if len(topology.neighbours(each)) > 1])

    def encode(self, link: str, item: StreamedFrame) -> bytes:
        """Return a frame as bytes, which may be damaged."""
        frame = item.frame
        if isinstance(frame, MessageFrame) and frame.content is not None:
            assert isinstance(frame.content, int)
            content = self._contents.get(frame.key) or _content_of(frame.content, frame.key)
            encoded = self._codec.encode(link, content)
            frame = MessageFrame(frame.key, encoded, frame.table, frame.floor)
        payload = encode_payload(item.epoch, item.number, [frame])
        if self._world.faults.loss and self._world.random.random() < self._damage:
            self._world.count("damage")
            at = self._world.random.randrange(len(payload))
            payload = payload[:at] + bytes((payload[at] ^ 0x55,)) + payload[at + 1 :]
        return payload

    def decode(self, link: str, payload: bytes) -> tuple[Frame | None, bool]:
        """Return a frame, None if it is refused, and whether it has to wait."""
        world = self._world
        try:
            (frame,) = decode_payload(payload, self._codec.dictionaries).frames
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
            self._contents[frame.key] = frame.content
            document = _document_of(frame.content)
            frame = MessageFrame(frame.key, document, frame.table, frame.floor)
        return frame, False

    def holds(self, link: str) -> bool:
        """Return whether a frame of a neighbour waits for a dictionary."""
        return link in self._waiting

    def learn(self, key: MessageKey, document: int) -> None:
        """Learn from a message that was published here."""
        self._codec.learn(_content_of(document, key))

    # -- controls and time -----------------------------------------------------------------------------

    def receive(self, link: str, control: DictionaryControl) -> None:
        """Handle what a neighbour tells about dictionaries."""
        if isinstance(control, LackDictionary):
            self._lacking.setdefault(link, set()).add(control.identity)
        elif isinstance(control, OfferDictionary):
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

    # -- skeletons -------------------------------------------------------------------------------------

    def set_bit(self, link: str, bit: int) -> None:
        """Name the bit of a link."""
        self._router.set_bit(link, bit)

    def change_routes(self, bit: int, added: Sequence[frames.Route], removed: Sequence[frames.Route]) -> None:
        """Change what a link wants."""
        self._router.change(bit, _own(added), _own(removed))

    def change_local(self, added: Sequence[frames.Route], removed: Sequence[frames.Route]) -> None:
        """Change what local subscriptions want."""
        self._router.change(LOCAL, _own(added), _own(removed))

    def decide(self, key: MessageKey | None, is_local: bool) -> int | None:
        """Return the links that want a message, as bits, if its skeleton tells."""
        content = self._contents.get(key) if key is not None else None
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


def _content_of(document: int, key: MessageKey) -> MessageContent:
    found = DOCUMENTS[document]
    return MessageContent(TENANT, found.stream, f"{key.source}/{key.number}", None, found.text.encode())


@cache
def _numbers() -> dict[tuple[str, bytes], int]:
    return {(each.stream, each.text.encode()): number for number, each in enumerate(DOCUMENTS)}


def _document_of(content: MessageContent) -> int:
    """Return the document with the same bytes: that there is one is what is tested."""
    return _numbers()[content.stream, content.body]


def run_on_wire(seed: int, workload: Workload, largest: int = 30, **options: Any) -> Outcome:
    """Run a random scenario in which frames are bytes, of a format that each broker has for itself."""
    random = Random(f"wire {seed}")
    damage = random.choice((0.0, 0.002, 0.02))
    choices: dict[str, BodyFormat] = {}

    def make_wire(world: World, name: str) -> SimWire:
        format = choices.setdefault(name, random.choice(list(BodyFormat)))
        return SimWire(world, name, format, damage)

    return Scenario(seed, workload, largest=largest, make_wire=make_wire, **options).run()
