"""Filters and transformations together, in one process."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.explain import Explanation
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.loading import OnError, add_all
from sapwood.engine.matcher import Matcher, Source
from sapwood.engine.matches import Matches
from sapwood.engine.pack import pack, unpack
from sapwood.engine.reader import Message
from sapwood.lang.flwor import is_flwor
from sapwood.lang.fwr import compile_transformation
from sapwood.transform.conditions import ElementGraph
from sapwood.transform.explain import PlanExplanation, explain
from sapwood.transform.network import Network
from sapwood.transform.unshared import PlanPerQuery

_NUMBER = itemgetter(0)


class Delivery(NamedTuple):
    """What a subscription gets of a message.

    `message` is the id that the message was published with, or else its number, counted from 1. `body` is the
    message itself for a filter, and for a transformation what it makes of it: XML in UTF-8.
    """

    subscription: Hashable
    message: Hashable
    body: bytes


class Answer(NamedTuple):
    """What a message is to all subscriptions: the filters it matches, and what others make of it."""

    matches: Matches
    made: list[tuple[int, bytes]]
    """by the subscription's number, in any order"""


@dataclass(frozen=True, slots=True)
class _Transforming:
    """A subscription to a transformation: its place in the order, the network's entry, and its query."""

    number: int
    entry: int
    text: str


class Broker:
    """Delivers messages to subscriptions: XPath filters, and for-where-return queries that reshape messages.

    Subscriptions may come and go between messages at any time. Not for use by several threads at once.
    """

    def __init__(
        self,
        namespaces: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        tuning: Tuning | None = None,
        dtd: ElementGraph | None = None,
    ) -> None:
        """A DTD tells `explain`, and plans that are not shared, which elements never nest. Messages need not
        conform to it."""
        self._matcher = Matcher(namespaces, limits, tuning)
        self._graph = dtd
        index = self._matcher.index
        shared = tuning is None or tuning.share_plans
        self._network: Network | PlanPerQuery = (
            Network(index, self._matcher.namespaces) if shared else PlanPerQuery(index, dtd)
        )
        self._transforming: dict[Hashable, _Transforming] = {}
        self._numbers_of: dict[int, list[int]] = {}  # the subscriptions of an entry of the network
        self._by_number: dict[int, Hashable] = {}
        self._published = 0

    @classmethod
    def around(cls, matcher: Matcher) -> Broker:
        """A broker whose filters are those of a matcher, which is from then on the broker's to change."""
        broker = cls()
        broker._matcher = matcher
        broker._network = Network(matcher.index, matcher.namespaces)
        return broker

    # -- subscriptions ---------------------------------------------------------------------------------

    def declare(self, namespaces: Mapping[str, str]) -> None:
        """Declares further prefixes for queries to come; ValueError for one that is bound already."""
        self._matcher.declare(namespaces)

    def subscribe(self, id: Hashable, query: str) -> None:
        """Subscribes `id` to a filter or a transformation. QueryError says where and why it is neither."""
        if id in self:
            raise ValueError(f"{id!r} is subscribed already; replace() changes its query")
        if is_flwor(query):
            transformation = compile_transformation(query, self._matcher.namespaces)
            self._matcher.freeze_unread()
            self._enrol(id, query, self._network.add(transformation), self._matcher.new_number())
        else:
            self._matcher.add(id, query)

    def subscribe_many(
        self,
        pairs: Iterable[tuple[Hashable, str]],
        on_error: OnError | None = None,
    ) -> None:
        """Subscribes many at once, in order.

        What cannot be subscribed is told to `on_error`, and the rest go in; without it, the error is raised
        with a note that names the subscription, and those before it stay.
        """
        add_all(pairs, self.subscribe, on_error, self._matcher.index.machine)

    def unsubscribe(self, id: Hashable) -> None:
        """Ends a subscription; KeyError if there is none."""
        if id in self._transforming:
            self._withdraw(id)
        else:
            self._matcher.remove(id)

    def replace(self, id: Hashable, query: str) -> None:
        """Changes the query of a subscription, which keeps its place in the order."""
        number = self._number(id)
        transformation = compile_transformation(query, self._matcher.namespaces) if is_flwor(query) else None
        if transformation is None and id in self._matcher:
            self._matcher.replace(id, query)
            return
        if transformation is None:
            self._matcher.add_numbered(id, query, number)
            self._withdraw(id)
            return
        self._matcher.freeze_unread()
        entry = self._network.add(transformation)  # which may fail, and then nothing has changed
        self.unsubscribe(id)
        self._enrol(id, query, entry, number)

    def query(self, id: Hashable) -> str:
        """The query that `id` is subscribed to."""
        transforming = self._transforming.get(id)
        return transforming.text if transforming is not None else self._matcher.query(id)

    def _enrol(self, id: Hashable, query: str, entry: int, number: int) -> None:
        self._transforming[id] = _Transforming(number, entry, query)
        self._numbers_of.setdefault(entry, []).append(number)
        self._by_number[number] = id

    def _withdraw(self, id: Hashable) -> None:
        self._matcher.freeze_unread()
        transforming = self._transforming.pop(id)
        del self._by_number[transforming.number]
        numbers = self._numbers_of[transforming.entry]
        numbers.remove(transforming.number)
        if not numbers:
            del self._numbers_of[transforming.entry]
        self._network.remove(transforming.entry)

    def _number(self, id: Hashable) -> int:
        transforming = self._transforming.get(id)
        return transforming.number if transforming is not None else self._matcher.number(id)

    def numbered(self) -> tuple[list[Hashable], NDArray[np.int64]]:
        """All ids, in any order, and the numbers by which an `Answer` calls them."""
        ids, numbers = self._matcher.numbered()
        transforming = np.fromiter(self._by_number, np.int64, len(self._by_number))
        return [*ids, *self._by_number.values()], np.concatenate((numbers, transforming))

    def __contains__(self, id: Hashable) -> bool:
        return id in self._transforming or id in self._matcher

    def __len__(self) -> int:
        return len(self._transforming) + len(self._matcher)

    def __iter__(self) -> Iterator[Hashable]:
        """The ids, in the order subscribed."""
        return iter(sorted([*self._matcher, *self._transforming], key=self._number))

    @property
    def filters(self) -> Matcher:
        """The subscriptions that are filters; to be changed by way of the broker only."""
        return self._matcher

    @property
    def transformations(self) -> int:
        """How many subscriptions are transformations."""
        return len(self._transforming)

    # -- messages --------------------------------------------------------------------------------------

    def publish(self, message: Source, id: Hashable = None) -> list[Delivery]:
        """Delivers a message to all it concerns, in the order subscribed.

        MessageError says where and why a message is refused; then nobody gets it.
        """
        source = Message(message)
        answer = self._answer(source)
        self._published += 1
        name = self._published if id is None else id
        ids, new = self._by_number, tuple.__new__  # which takes half of what the class itself does
        made = [new(Delivery, (ids[number], name, body)) for number, body in sorted(answer.made, key=_NUMBER)]
        if not len(self._matcher):
            return made
        passed = [Delivery(subscriber, name, source.data) for subscriber in answer.matches]
        if made and passed:
            return sorted(made + passed, key=lambda delivery: self._number(delivery.subscription))
        return made or passed

    def answer(self, message: Source) -> Answer:
        """The filters that a message matches and what transformations make of it, in no order and as lazy
        as can be: for those who pass on many at once."""
        return self._answer(Message(message))

    def _answer(self, message: Message) -> Answer:
        found = self._matcher.index.find(message)
        if not self._transforming:
            return Answer(self._matcher.matches(found.places, found.slots), [])
        numbers_of = self._numbers_of
        made = [
            (number, body)
            for entry, body in self._network.bodies(message, found)
            for number in numbers_of[entry]
        ]
        slots = found.slots
        if not len(slots):
            return Answer(Matches(self._matcher, None, slots), made)
        return Answer(self._matcher.matches(None, slots[~self._network.claimed(slots)]), made)

    def take_costs(self) -> dict[Hashable, float]:
        """Seconds spent on each subscription that is evaluated on its own, since this was last asked."""
        costs = self._matcher.index.costs
        alone = {slot: spent for slot, spent in costs.items() if slot in self._network.alone}
        for slot in alone:
            del costs[slot]
        spent = {self._first_subscriber(slot): ns / 1e9 for slot, ns in alone.items() if ns}
        return self._matcher.take_costs() | spent

    def _first_subscriber(self, slot: int) -> Hashable:
        return self._by_number[min(self._numbers_of[self._network.alone[slot]])]

    # -- explanations ----------------------------------------------------------------------------------

    def explain(self, id: Hashable) -> Explanation | PlanExplanation:
        """How a subscription is evaluated: what it is found by, its plan, what is shared and what removed."""
        transforming = self._transforming.get(id)
        if transforming is None:
            return self._matcher.explain(id)
        if not isinstance(self._network, Network):
            raise ValueError("only shared plans are explained")
        transformation = compile_transformation(transforming.text, self._matcher.namespaces)
        return explain(self._network, transforming.entry, transformation, self._graph)

    # -- packed ----------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        """The compiled subscriptions as bytes, for another process or another day."""
        return pack(self)

    @staticmethod
    def unpack(data: bytes) -> Broker:
        """The broker that was packed, in a fraction of the time it takes to compile its queries.

        Like any pickle, the bytes must come from someone you trust. PackError if another version made them.
        """
        return unpack(data, Broker)

    def __getstate__(self) -> dict[str, object]:
        """Without the DTD, which only explains."""
        if not isinstance(self._network, Network):
            raise ValueError("only shared plans can be packed")
        self._matcher.freeze_unread()
        return self.__dict__ | {"_graph": None}

    # -- the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the thread that evaluates with lxml, if there is one."""
        self._matcher.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
