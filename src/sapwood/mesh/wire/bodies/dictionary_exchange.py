"""Which dictionaries and plans of projection a broker has, and which of them its neighbours have.

Both never change, and are named by their content. A dictionary is offered to all neighbours, who say that
they have it, and offer it to theirs: so a body can be forwarded as it is. It is used on a link only when the
neighbour has said so. One that has forgotten it, because it was started anew, asks for it, and what it cannot
read waits there meanwhile. If the neighbour has forgotten it, too, it says so, and sends its frames again
without. So it is with plans, but that one which the neighbour does not have goes along with the messages that
were cut by it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from sapwood.mesh.projection.pruning_plan import PruningPlan, decode_plan
from sapwood.mesh.wire.bodies.dictionary_controls import (
    DictionaryControl,
    HaveDictionary,
    LackDictionary,
    NeedDictionary,
    OfferDictionary,
    OfferPlan,
)
from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary, decode_dictionary

MOST_DICTIONARIES = 64
MOST_PLANS = 256
"""that are kept; the one that was used longest ago goes first"""
OFFER_AGAIN = 5.0
"""seconds after which an offer is repeated that was not answered"""

LinkControl = tuple[str, DictionaryControl]


class _Neighbour:
    """What is known of a neighbour."""

    def __init__(self) -> None:
        self.has: set[bytes] = set()
        self.offered: dict[bytes, float] = {}
        """dictionaries that it was offered and has not answered, with the time of the last offer"""


class DictionaryExchange:
    """The dictionaries of a broker, and what it tells its neighbours about them."""

    def __init__(self) -> None:
        self._dictionaries: OrderedDict[bytes, WireDictionary] = OrderedDict()
        self._plans: OrderedDict[bytes, PruningPlan] = OrderedDict()
        self._neighbours: dict[str, _Neighbour] = {}
        self._pinned: frozenset[bytes] = frozenset()
        self._now = 0.0

    def pin(self, identities: Iterable[bytes]) -> None:
        """Keep some dictionaries, whether they are used or not: those of streams that are published here."""
        self._pinned = frozenset(identities)

    @property
    def dictionaries(self) -> Mapping[bytes, WireDictionary]:
        """All dictionaries that are here, by identity."""
        return self._dictionaries

    @property
    def plans(self) -> Mapping[bytes, PruningPlan]:
        """All plans that are here, by identity."""
        return self._plans

    def set_neighbours(self, names: Iterable[str]) -> None:
        """Forget neighbours that are none any more, and offer what is here to new ones."""
        wanted = list(names)
        for gone in self._neighbours.keys() - set(wanted):
            del self._neighbours[gone]
        for name in wanted:
            if name in self._neighbours:
                continue
            made = self._neighbours[name] = _Neighbour()
            made.offered = dict.fromkeys([*self._dictionaries, *self._plans], float("-inf"))

    def add(self, dictionary: WireDictionary, source: str | None = None) -> bool:
        """Keep a dictionary, which came from a neighbour or was trained here; return whether it is new."""
        identity = dictionary.identity
        is_new = identity not in self._dictionaries
        if is_new:
            self._dictionaries[identity] = dictionary
            self._offer(identity, source)
            unpinned = [identity for identity in self._dictionaries if identity not in self._pinned]
            for oldest in unpinned[: max(0, len(self._dictionaries) - MOST_DICTIONARIES)]:
                del self._dictionaries[oldest]
                self._forget(oldest)
        return is_new

    def add_plan(self, plan: PruningPlan, source: str | None = None) -> None:
        """Keep a plan, which came from a neighbour or was made here."""
        if plan.identity in self._plans:
            return
        self._plans[plan.identity] = plan
        self._offer(plan.identity, source)
        if len(self._plans) > MOST_PLANS:
            oldest, _ = self._plans.popitem(last=False)
            self._forget(oldest)

    def _offer(self, identity: bytes, source: str | None) -> None:
        for name, neighbour in self._neighbours.items():
            if name != source and identity not in neighbour.has:
                neighbour.offered[identity] = float("-inf")

    def _forget(self, identity: bytes) -> None:
        for neighbour in self._neighbours.values():
            neighbour.offered.pop(identity, None)
            neighbour.has.discard(identity)

    def _has(self, identity: bytes) -> bool:
        return identity in self._dictionaries or identity in self._plans

    def is_shared(self, link: str, identity: bytes) -> bool:
        """Return whether a neighbour has said that it has a dictionary or plan, which is in use then."""
        neighbour = self._neighbours.get(link)
        if neighbour is None or identity not in neighbour.has:
            return False
        if identity in self._dictionaries:
            self._dictionaries.move_to_end(identity)
        elif identity in self._plans:
            self._plans.move_to_end(identity)
        return True

    def receive(self, link: str, control: DictionaryControl) -> Iterator[LinkControl]:
        """Handle what a neighbour tells, and yield the answers; raises DictionaryError or RouteError."""
        neighbour = self._neighbours.get(link)
        if neighbour is None:
            return
        if isinstance(control, OfferDictionary):
            dictionary = decode_dictionary(control.data)
            self.add(dictionary, link)
            yield from self._accept(link, neighbour, dictionary.identity)
        elif isinstance(control, OfferPlan):
            plan = decode_plan(control.data)
            self.add_plan(plan, link)
            yield from self._accept(link, neighbour, plan.identity)
        elif isinstance(control, HaveDictionary):
            if self._has(control.identity):
                neighbour.has.add(control.identity)
                neighbour.offered.pop(control.identity, None)
        else:
            neighbour.has.discard(control.identity)
            if self._has(control.identity):
                neighbour.offered[control.identity] = float("-inf")
            elif isinstance(control, NeedDictionary):
                yield link, LackDictionary(control.identity)
        yield from self.tick(self._now)

    def _accept(self, link: str, neighbour: _Neighbour, identity: bytes) -> Iterator[LinkControl]:
        neighbour.has.add(identity)
        neighbour.offered.pop(identity, None)
        yield link, HaveDictionary(identity)

    def ask(self, link: str, identities: Iterable[bytes]) -> Iterator[LinkControl]:
        """Yield what asks a neighbour for dictionaries."""
        for identity in identities:
            yield link, NeedDictionary(identity)

    def tick(self, now: float) -> Iterator[LinkControl]:
        """Yield the offers that are due."""
        self._now = now
        for name, neighbour in self._neighbours.items():
            for identity, offered in neighbour.offered.items():
                if now - offered >= OFFER_AGAIN:
                    neighbour.offered[identity] = now
                    plan = self._plans.get(identity)
                    if plan is not None:
                        yield name, OfferPlan(plan.encoded)
                    else:
                        yield name, OfferDictionary(self._dictionaries[identity].encoded)
