"""The sites of a planned mesh that want a message, for several placements in one matching pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sapwood.broker import Broker
from sapwood.engine.matcher import Matcher
from sapwood.engine.message.message_reader import Message
from sapwood.engine.registration import Owner
from sapwood.mesh.planning.placement import Placement
from sapwood.mesh.planning.planned_subscription import PlannedSubscription
from sapwood.mesh.routing.route import Route
from sapwood.mesh.routing.route_index import MOST_LINKS, RouteIndex


class Wanted(NamedTuple):
    """The sites that a message goes to under one placement, as bits."""

    by_routes: int
    by_matches: int
    """those where something is delivered, or a join may need the message: nobody could send to fewer"""


class WantedSites:
    """Finds the sites that want a message.

    Each placement has a bit for every site, and all bits are links of one index (of several, if there are
    too many), in which each distinct condition is registered once. Subscriptions that routes do not decide
    are evaluated by a broker as well.
    """

    def __init__(
        self,
        subscriptions: Sequence[PlannedSubscription],
        placements: Sequence[Placement],
        sites: int,
        stream: str = "",
    ) -> None:
        self._placements = placements
        self._sites = sites
        self._stream = stream
        self._matcher = Matcher()
        self._by_routes = self._index(subscriptions, lambda _: True)
        self._decided = self._by_routes
        self._evaluations: list[_Evaluation] = []
        if any(not each.is_decided_by_routes for each in subscriptions):
            self._decided = self._index(subscriptions, lambda each: each.is_decided_by_routes)
            self._evaluations = _open_evaluations(subscriptions, stream)

    def close(self) -> None:
        """Release the processes that evaluate queries with lxml."""
        self._matcher.close()
        for evaluation in self._evaluations:
            evaluation.broker.close()

    def find(self, body: bytes) -> list[Wanted]:
        """Return, by placement, the sites that want a message; MessageError if it cannot be read."""
        slots = self._matcher.index.find(Message(body), owner=Owner.LINK).slots
        routed = _join_bits([index.find_links(slots, self._stream) for index in self._by_routes])
        if not self._evaluations:
            return [Wanted(bits, bits) for bits in map(self._cut(routed), range(len(self._placements)))]
        decided = _join_bits([index.find_links(slots, self._stream) for index in self._decided])
        matched = [number for evaluation in self._evaluations for number in evaluation.find(body)]
        found = []
        for number, placement in enumerate(self._placements):
            hosts = self._cut(decided)(number)
            for subscription in matched:
                hosts |= 1 << placement.sites[subscription]
            found.append(Wanted(self._cut(routed)(number), hosts))
        return found

    def _cut(self, bits: int) -> Callable[[int], int]:
        """Return a function that takes the bits of one placement out of those of all."""
        sites = self._sites
        return lambda placement: bits >> placement * sites & (1 << sites) - 1

    def _index(
        self,
        subscriptions: Sequence[PlannedSubscription],
        is_meant: Callable[[PlannedSubscription], bool],
    ) -> list[RouteIndex]:
        columns: list[dict[Route, None]] = [{} for _ in range(len(self._placements) * self._sites)]
        for number, subscription in enumerate(subscriptions):
            if is_meant(subscription):
                for order, placement in enumerate(self._placements):
                    column = columns[order * self._sites + placement.sites[number]]
                    column.update(dict.fromkeys(subscription.routes))
        indexes = [RouteIndex(self._matcher) for _ in range(0, len(columns), MOST_LINKS)]
        for number, routes in enumerate(columns):
            indexes[number // MOST_LINKS].set(number % MOST_LINKS, routes, ())
        return indexes


def _join_bits(parts: Sequence[int]) -> int:
    return sum(bits << number * MOST_LINKS for number, bits in enumerate(parts))


class _Evaluation:
    """A broker with the subscriptions of one set of prefixes that routes do not decide."""

    def __init__(self) -> None:
        self.broker = Broker()
        self._subscriptions: dict[int, int] = {}
        """by number in the broker"""

    def add(self, number: int, query: str) -> None:
        """Subscribe a query under the number that it has among all."""
        self.broker.subscribe(number, query)
        self._subscriptions[self.broker.number(number)] = number

    def find(self, body: bytes) -> list[int]:
        """Return the subscriptions that a message is delivered to."""
        answer = self.broker.answer_alone(body)
        numbers = [*answer.matches.numbers.tolist(), *[number for number, _ in answer.made]]
        return [self._subscriptions[number] for number in numbers]


def _open_evaluations(subscriptions: Sequence[PlannedSubscription], stream: str) -> list[_Evaluation]:
    """Return brokers with what routes do not decide; sites may declare one prefix for different namespaces,
    so that each set of prefixes has a broker of its own."""
    evaluations: dict[frozenset[tuple[str, str]], _Evaluation] = {}
    for number, each in enumerate(subscriptions):
        if each.is_decided_by_routes or (each.streams and stream not in each.streams):
            continue
        prefixes = frozenset(each.namespaces.items())
        evaluation = evaluations.get(prefixes)
        if evaluation is None:
            evaluation = evaluations[prefixes] = _Evaluation()
            evaluation.broker.declare(each.namespaces)
        evaluation.add(number, each.query)
    return list(evaluations.values())
