"""The bodies of messages as they go over each link: format, dictionary and skeleton.

A body that came over a link is forwarded as it is, where the next neighbour can read it. Others are encoded
once for all links that have the same format and dictionary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from time import perf_counter

from sapwood.engine.kernel import KERNEL
from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.mesh.projection.pruning_plan import PruningPlan
from sapwood.mesh.wire.bodies.body_format import BodyFormat, EncodedBody, encode_body
from sapwood.mesh.wire.bodies.dictionary_controls import DictionaryControl
from sapwood.mesh.wire.bodies.dictionary_exchange import DictionaryExchange, LinkControl
from sapwood.mesh.wire.bodies.dictionary_trainer import SAMPLES, DictionaryTrainer, StreamName
from sapwood.mesh.wire.bodies.format_choice import FALLBACKS, FormatChoice
from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary
from sapwood.mesh.wire.message_content import MessageContent
from sapwood.mesh.wire.skeletons.message_skeleton import read_skeleton
from sapwood.mesh.wire.skeletons.skeleton import Skeleton
from sapwood.mesh.wire.skeletons.skeleton_router import SkeletonRouter

MANY_ROUTES = 5_000
"""of a neighbour, from which on the compiled kernel takes longer for a message than a skeleton does"""
_DECIDE = 5.0
"""seconds between decisions on the format"""


class LinkCodec:
    """Encodes bodies for links, and knows the dictionaries by which those that come are decoded."""

    def __init__(
        self,
        configured: BodyFormat | None,
        router: SkeletonRouter | None,
        limits: Limits,
        samples: int = SAMPLES,
        executor: Executor | None = None,
        always_skeletons: bool = False,
    ) -> None:
        """Without `configured`, the format is chosen; without a router, there are no skeletons, and with one
        they are made where that pays, or always.

        Dictionaries are trained by the executor, or in a thread.
        """
        self._configured = configured
        self._router = router
        self._always_skeletons = always_skeletons
        self._least_routes = 0 if always_skeletons or KERNEL is None else MANY_ROUTES
        self._limits = limits
        self._exchange = DictionaryExchange()
        of_elements = configured is BodyFormat.NAMED_ELEMENTS_ZSTD_TRAINED
        self._trainer = DictionaryTrainer(limits, of_elements, samples, executor)
        self._current: dict[StreamName, WireDictionary] = {}
        """the newest dictionary of each stream whose messages are published here"""
        self._choices: dict[str, FormatChoice] = {}
        self._inner: frozenset[str] = frozenset()
        self._decided = 0.0
        self._counters: Counter[str] = Counter()

    @property
    def dictionaries(self) -> Mapping[bytes, WireDictionary]:
        """The dictionaries that are here, by identity."""
        return self._exchange.dictionaries

    @property
    def plans(self) -> Mapping[bytes, PruningPlan]:
        """The plans of projection that are here, by identity."""
        return self._exchange.plans

    def set_neighbours(self, names: Iterable[str], inner: Iterable[str]) -> None:
        """Take over who the neighbours are, and which of them forward messages to others."""
        found = list(names)
        self._exchange.set_neighbours(found)
        self._choices = {name: self._choices.get(name) or FormatChoice(self._configured) for name in found}
        self._inner = frozenset(inner)

    # -- bodies ----------------------------------------------------------------------------------------

    def learn(self, content: MessageContent) -> None:
        """Learn from a message that was published here."""
        self._trainer.add((content.tenant, content.stream), content.body)

    def encode(self, link: str, content: MessageContent) -> MessageContent:
        """Return a message as it goes over a link."""
        if content.projection is not None:
            self._exchange.add_plan(content.projection.plan)
        encoded = self._encode_body(link, content)
        skeleton = self._choose_skeleton(link, content)
        if encoded is content.encoded and skeleton is content.skeleton:
            return content
        return content._replace(encoded=encoded, skeleton=skeleton)

    def _encode_body(self, link: str, content: MessageContent) -> EncodedBody | None:
        choice, encoded = self._choices[link], content.encoded
        if encoded is not None and self._can_forward(link, choice, encoded):
            return encoded
        name = content.tenant, content.stream
        format = choice.choose()
        dictionary = self._current.get(name) if format.needs_dictionary else None
        if format.needs_dictionary and (
            dictionary is None or not self._exchange.is_shared(link, dictionary.identity)
        ):
            format, dictionary = FALLBACKS[format], None
        if format is BodyFormat.TEXT:
            return None
        began = perf_counter()
        made = encode_body(content.body, format, dictionary)
        self._counters["bodies encoded"] += 1
        choice.measure(format, len(content.body), len(made.data), perf_counter() - began)
        if dictionary is not None and content.body:
            self._trainer.measure(name, len(made.data) / len(content.body))
        return made if len(made.data) < len(content.body) else None

    def _can_forward(self, link: str, choice: FormatChoice, encoded: EncodedBody) -> bool:
        """Return whether a body may go over a link as it is."""
        if choice.configured not in (None, encoded.format):
            return False
        return encoded.dictionary is None or self._exchange.is_shared(link, encoded.dictionary)

    def _choose_skeleton(self, link: str, content: MessageContent) -> Skeleton | None:
        """Return the skeleton of a message, if the neighbour forwards messages to others, and needs it."""
        if self._router is None or link not in self._inner:
            return None
        if content.hits is not None and not self._always_skeletons:  # which decide more
            return None
        skeleton = content.skeleton
        if skeleton is not None:
            return skeleton if self._exchange.is_shared(link, skeleton.dictionary) else None
        if self._router.count(link) < self._least_routes:
            return None
        dictionary = self._current.get((content.tenant, content.stream))
        if dictionary is None or not self._exchange.is_shared(link, dictionary.identity):
            return None
        tested = self._router.find_tested(content.tenant, link)
        if tested is None:
            return None
        self._counters["skeletons made"] += 1
        return read_skeleton(Message(content.body), self._limits, dictionary, tested)

    def shares_plan(self, link: str, identity: bytes) -> bool:
        """Return whether a neighbour has a plan of projection."""
        return identity in self._exchange.plans and self._exchange.is_shared(link, identity)

    # -- links -----------------------------------------------------------------------------------------

    def seconds_per_byte(self, link: str) -> float | None:
        """Return how long a link takes for a byte of text; None if that is not known."""
        return self._choices[link].seconds_per_byte if link in self._choices else None

    def sent(self, link: str, number: int, size: int, now: float) -> None:
        """Note that a payload is on its way."""
        if link in self._choices:
            self._choices[link].bandwidth.sent(number, size, now)

    def accepted(self, link: str, number: int, now: float) -> None:
        """Note that payloads up to a number have arrived."""
        if link in self._choices:
            self._choices[link].bandwidth.accepted(number, now)

    def failed(self, link: str) -> None:
        """Note that payloads on their way are lost."""
        if link in self._choices:
            self._choices[link].bandwidth.clear()

    def receive(self, link: str, control: DictionaryControl) -> Iterator[LinkControl]:
        """Handle what a neighbour tells about dictionaries, and yield the answers; raises DictionaryError."""
        return self._exchange.receive(link, control)

    def ask(self, link: str, identities: Iterable[bytes]) -> Iterator[LinkControl]:
        """Yield what asks a neighbour for dictionaries."""
        return self._exchange.ask(link, identities)

    def tick(self, now: float) -> Iterator[LinkControl]:
        """Decide what is due, and yield the offers of dictionaries."""
        self._trainer.take(now, self._use)
        if now - self._decided >= _DECIDE:
            self._decided = now
            for choice in self._choices.values():
                choice.decide()
        return self._exchange.tick(now)

    def _use(self, name: StreamName, dictionary: WireDictionary) -> None:
        self._current[name] = dictionary
        self._exchange.pin(each.identity for each in self._current.values())
        self._exchange.add(dictionary)
        self._counters["dictionaries trained"] += 1

    def describe(self, link: str) -> dict[str, object]:
        """Return what is known of a link."""
        return self._choices[link].describe() if link in self._choices else {}

    def take_counters(self) -> Counter[str]:
        """Return what was counted since the last call."""
        counters, self._counters = self._counters, Counter()
        return counters

    def close(self) -> None:
        """End the training of dictionaries."""
        self._trainer.close()
