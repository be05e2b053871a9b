"""The engine of one tenant: its subscriptions in a broker, and who gets what they match."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sapwood.broker import Broker
from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.protocol import MatchedSlots
from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.engine.registration import Owner
from sapwood.errors import MessageError, SapwoodError
from sapwood.mesh.routing.route_index import RouteIndex
from sapwood.serve.log.entries import MESSAGE
from sapwood.serve.log.inbox_table import NOBODY
from sapwood.serve.tenants.delivery_order import order_deliveries
from sapwood.serve.tenants.evaluation import Evaluation, Output, Publication

if TYPE_CHECKING:
    from sapwood.mesh.routing.route import Route

_log = logging.getLogger(__name__)
_AT_ONCE = 32
"""messages that are matched together"""


class TenantEngine:
    """Evaluates the messages of a tenant.

    The subscriptions of the broker are named by their places in the store. By their numbers in the broker,
    arrays have the place and the inbox of each, so that thousands of matches cost no work in Python.

    In a mesh, routes say which messages links to other brokers want: see `set_routes`. With
    `separate_results`, what join queries publish is not evaluated with the message that completed them, but
    returned in `Evaluation.published`, for the caller to publish in order, so that it is routed, too; then
    messages are replayed without it, because it is in the log by itself.
    """

    def __init__(
        self,
        limits: Limits,
        time_paths: Mapping[str, str] | None = None,
        lateness: float = 0.0,
        separate_results: bool = False,
    ) -> None:
        self.broker = Broker(None, limits, lateness=lateness)
        self._routes = RouteIndex(self.broker.filters)
        self._separate_results = separate_results
        self._namespaces: dict[str, str] = {}
        self._places: NDArray[np.int64] = np.zeros(64, np.int64)
        self._inboxes: NDArray[np.int64] = np.zeros(64, np.int64)
        self.refused: dict[int, str] = {}
        """by place, why a subscription cannot be evaluated"""
        self._set_time_paths(time_paths or {})

    def _set_time_paths(self, time_paths: Mapping[str, str]) -> None:
        self._timed = frozenset(time_paths)
        for stream, path in time_paths.items():
            self.broker.time_from(stream, path)

    # -- subscriptions ---------------------------------------------------------------------------------

    @property
    def namespaces(self) -> Mapping[str, str]:
        """The declared prefixes."""
        return self._namespaces

    def declare(self, namespaces: Mapping[str, str]) -> None:
        """Declare prefixes, of which some may be known."""
        new = {prefix: uri for prefix, uri in namespaces.items() if prefix not in self._namespaces}
        if new:
            self.broker.declare(new)
            self._namespaces |= new

    def put(self, place: int, query: str, inbox: int, streams: Sequence[str] = ()) -> None:
        """Add or change a subscription; one that cannot be evaluated is in `refused`, with the reason.

        One whose query stays keeps the messages that it may still join.
        """
        try:
            if place not in self.broker:
                self.broker.subscribe(place, query)
            elif self.broker.query(place) != query:
                self.broker.restrict(place, None)
                self.broker.replace(place, query)
            self.broker.restrict(place, streams or None)
        except SapwoodError as error:
            self.remove(place)
            self.refused[place] = str(error)
            _log.error("the subscription at place %d is not evaluated: %s", place, error)
            return
        self.refused.pop(place, None)
        number = self.broker.number(place)
        if number >= len(self._places):
            grown = max(number + 1, 2 * len(self._places))
            self._places, self._inboxes = _grow(self._places, grown), _grow(self._inboxes, grown)
        self._places[number] = place
        self._inboxes[number] = inbox

    def remove(self, place: int) -> None:
        """Remove a subscription, if it is there."""
        self.refused.pop(place, None)
        if place in self.broker:
            self._inboxes[self.broker.number(place)] = NOBODY
            self.broker.unsubscribe(place)

    def uses(self, inbox: int) -> bool:
        """Return whether any subscription has its deliveries in an inbox."""
        return bool((self._inboxes == inbox).any())

    # -- routes ----------------------------------------------------------------------------------------

    def set_routes(self, link: int, added: Iterable[Route], removed: Iterable[Route] = ()) -> None:
        """Change which messages a link wants; routes that it has already, or has not, make no difference.

        A link is a number below 62, the bit that stands for it in `Evaluation.links`. A route that is both
        added and removed is there afterwards. ArgumentError, with nothing changed, for another number, or for
        routes of several tenants.
        """
        self._routes.set(link, added, removed)

    def clear_routes(self, link: int) -> None:
        """Forget which messages a link wants."""
        self._routes.clear(link)

    def find_links(self, message: Publication) -> int:
        """Return the links that want a message that was evaluated before, as bits; MessageError if it cannot
        be read. Joins do not receive it."""
        return self.evaluate_links(message).links

    def evaluate_links(self, message: Publication) -> Evaluation:
        """Return only what links make of a message; MessageError if it cannot be read."""
        matcher = self.broker.filters
        with matcher.lock:
            found = matcher.index.find(Message(message.body), owner=Owner.LINK)
            links = self._routes.find_links(found.slots, message.stream)
            return Evaluation(message.time, links=links, slots=found.slots)

    def find_hits(
        self, slots: Ints, stream: str, link: int, most: int, some: int
    ) -> tuple[list[Route], bool]:
        """Return the routes of a link that a message meets, and whether these are all, given the slots of its
        evaluation: `some` if there are more than `most`."""
        return self._routes.find_hits(slots, stream, link, most, some)

    def find_routes(self, message: Publication) -> list[tuple[Route, int]]:
        """Return the routes that a message meets, with the links that want each, as bits.

        For operators, since it looks at all routes. MessageError if the message cannot be read.
        """
        matcher = self.broker.filters
        with matcher.lock:
            found = matcher.index.find(Message(message.body), owner=Owner.LINK)
            return self._routes.find_routes(found.slots, message.stream)

    def _set_links(self, evaluation: Evaluation, matched: MatchedSlots | None, stream: str) -> None:
        if len(self._routes) and matched is not None:
            evaluation.slots = matched.read()
            evaluation.links = self._routes.find_links(evaluation.slots, stream)

    # -- messages --------------------------------------------------------------------------------------

    def evaluate(self, messages: Sequence[Publication]) -> Iterator[Evaluation | MessageError]:
        """Yield what becomes of each message, in order."""
        for start in range(0, len(messages), _AT_ONCE):
            some = messages[start : start + _AT_ONCE]
            yield from self._filter(some) or map(self._evaluate_one, some)

    def replay(self, message: Publication) -> None:
        """Give joins a message that was evaluated before."""
        if self.broker.joins:
            try:
                self.broker.evaluate(
                    message.body,
                    message.id,
                    stream=message.stream,
                    time=message.time,
                    feedback=not self._separate_results,
                )
            except MessageError as error:
                _log.debug("message %s is refused again: %s", message.id, error)

    def observe_time(self, time: float | None) -> None:
        """Let the time of joins go on with a message that they do not receive."""
        if time is not None:
            self.broker.network_of_joins.observe_time(time)

    def _filter(self, messages: Sequence[Publication]) -> list[Evaluation] | None:
        """Evaluate messages together, if there are only filters, and all messages are plain."""
        found = self.broker.list_filters([message.body for message in messages])
        if found is None:
            return None
        start, evaluations = 0, []
        ends = found.ends.tolist()
        for message, end, matched in zip(messages, ends, found.matched, strict=True):
            evaluation = Evaluation(message.time)
            self._enter(evaluation, found.numbers[start:end], None, message.stream)
            self._set_links(evaluation, matched, message.stream)
            evaluations.append(evaluation)
            start = end
        return evaluations

    def _evaluate_one(self, message: Publication) -> Evaluation | MessageError:
        evaluation = Evaluation(message.time)
        try:
            if self.broker.joins and message.projection is None:
                self._publish(message, evaluation)
            else:
                self._transform(message, evaluation)
        except MessageError as error:
            return error
        return evaluation

    def _transform(self, message: Publication, evaluation: Evaluation) -> None:
        """Evaluate filters and transformations. Joins read whole messages: they ignore one that was cut."""
        if message.projection is not None:
            self.observe_time(message.time)
            answer = self.broker.answer_alone(message.body)
        else:
            answer = self.broker.answer(message.body, message.id, stream=message.stream, time=message.time)
        evaluation.failures += self.broker.failures(answer, message.id)
        self._set_links(evaluation, answer.slots, message.stream)
        numbers, outputs = answer.matches.numbers, None
        if answer.made:
            index: dict[bytes, int] = {}
            made = [(number, index.setdefault(body, len(index))) for number, body in answer.made]
            evaluation.made += [Output(message.id, body) for body in index]
            filters = np.full(len(numbers), MESSAGE)
            numbers = np.concatenate((numbers, [number for number, _ in made]))
            outputs = np.concatenate((filters, [output for _, output in made]))
            order = np.argsort(numbers, kind="stable")
            numbers, outputs = numbers[order], outputs[order]
        self._enter(evaluation, numbers, outputs, message.stream)

    def _publish(self, message: Publication, evaluation: Evaluation) -> None:
        """Evaluate all subscriptions, joins included, and all that queries publish because of the message,
        unless results are separate messages."""
        if evaluation.time is None and message.stream not in self._timed:
            joins = self.broker.network_of_joins
            if joins.reads(message.stream):  # the time that a replay needs
                evaluation.time = max(time.time(), joins.latest)
        found = self.broker.evaluate(
            message.body,
            message.id,
            stream=message.stream,
            time=evaluation.time,
            feedback=not self._separate_results,
        )
        deliveries = found.deliveries
        evaluation.failures += deliveries.failures
        evaluation.late = found.late
        evaluation.published += [
            Publication(message.tenant, made.stream, made.id, made.message.data, made.time)
            for made in found.published
        ]
        self._set_links(evaluation, found.slots, message.stream)
        index: dict[tuple[Any, bytes], int] = {(message.id, message.body): MESSAGE}
        numbers = np.empty(len(deliveries), np.int64)
        outputs = np.empty(len(deliveries), np.int64)
        for i, delivery in enumerate(deliveries):
            numbers[i] = self.broker.number(delivery.subscription)
            outputs[i] = index.setdefault((delivery.message, delivery.body), len(index) - 1)
        evaluation.made += [Output(str(name), body) for (name, body), number in index.items() if number >= 0]
        self._enter(evaluation, numbers, outputs, None)

    def _enter(
        self,
        evaluation: Evaluation,
        numbers: NDArray[np.int64],
        outputs: NDArray[np.int64] | None,
        stream: str | None,
    ) -> None:
        """Set the subscriptions of an evaluation, but those that nobody gets, or that exclude the stream."""
        inboxes = self._inboxes[numbers]
        wanted = inboxes != NOBODY
        if stream is not None and (excluded := self.broker.excluded(stream)) is not None:
            wanted &= ~excluded[numbers]
        if not wanted.all():
            numbers, inboxes = numbers[wanted], inboxes[wanted]
            outputs = outputs[wanted] if outputs is not None else None
        if outputs is not None:  # equal ones together, so that those of one inbox may be one delivery
            order = order_deliveries(numbers, outputs)
            numbers, inboxes, outputs = numbers[order], inboxes[order], outputs[order]
        evaluation.places = self._places[numbers]
        evaluation.inboxes = inboxes
        evaluation.outputs = outputs

    # -- snapshots -------------------------------------------------------------------------------------

    def pack(self) -> dict[str, object]:
        """Return the compiled subscriptions and the state of joins, to be pickled."""
        return {
            "broker": self.broker.pack(),
            "namespaces": self._namespaces,
            "places": self._places,
            "inboxes": self._inboxes,
            "refused": self.refused,
        }

    @classmethod
    def unpack(
        cls, packed: Mapping[str, Any], time_paths: Mapping[str, str], separate_results: bool = False
    ) -> TenantEngine:
        """Return an engine that was packed; raise PackError if another version of Sapwood did it.

        It has no routes: other brokers state them anew.
        """
        engine = cls.__new__(cls)
        engine.broker = Broker.unpack(packed["broker"])
        engine._routes = RouteIndex(engine.broker.filters)
        engine._separate_results = separate_results
        engine._namespaces = packed["namespaces"]
        engine._places = packed["places"]
        engine._inboxes = packed["inboxes"]
        engine.refused = packed["refused"]
        engine._set_time_paths(time_paths)
        return engine

    def close(self) -> None:
        """Release the processes that evaluate queries with lxml."""
        self.broker.close()


def _grow(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    larger = np.zeros(size, np.int64)
    larger[: len(values)] = values
    return larger
