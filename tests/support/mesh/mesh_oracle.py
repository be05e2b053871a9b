"""What the brokers of a mesh have to deliver, by one Broker in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from sapwood import Broker
from sapwood.errors import MessageError
from tests.support.mesh.mesh_load import LATENESS, HostedRow, SourcedMessage
from tests.support.service.listeners import Received
from tests.support.service.random_load import NAMESPACES

_BESIDE = " (becoming)"


class Made(NamedTuple):
    """A delivery: of a subscription, because of a message."""

    subscription: str
    message: str
    body: bytes


@dataclass(slots=True)
class HostDeliveries:
    """The deliveries at one host."""

    made: list[Made] = field(default_factory=list)
    """in the order of the oracle, which has that of each source"""
    optional: set[Made] = field(default_factory=set)
    """that may come: of subscriptions that change at the time of the message"""


class MeshOracle:
    """Evaluates all messages with the subscriptions of all hosts in one Broker."""

    def __init__(self) -> None:
        self.broker = Broker(NAMESPACES, lateness=LATENESS)
        self.hosts: dict[str, HostDeliveries] = {}
        self.sources: dict[str, str] = {}
        """by message, the broker that it was published at"""
        self.rejects: dict[str, str] = {}
        """by message that is refused, the broker that it was published at"""
        self.joins: set[str] = set()
        """subscriptions whose deliveries may come with any of the messages that they join"""
        self._rows: dict[str, HostedRow] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()

    def put(self, hosted: HostedRow) -> None:
        """Add a subscription, or change it."""
        row = hosted.row
        if row.id in self._rows:
            self.remove(row.id)
        before = self.broker.joins
        self.broker.subscribe(row.id, row.query)
        if self.broker.joins > before:
            self.joins.add(row.id)
        self.broker.restrict(row.id, row.streams or None)
        self._rows[row.id] = hosted

    def put_beside(self, hosted: HostedRow) -> None:
        """Add what a subscription becomes, beside what it is, until it is put or removed."""
        row = hosted.row
        self.broker.subscribe(row.id + _BESIDE, row.query)
        self.broker.restrict(row.id + _BESIDE, row.streams or None)

    def remove(self, id: str) -> None:
        """Remove a subscription."""
        del self._rows[id]
        self.broker.unsubscribe(id)
        if id + _BESIDE in self.broker:
            self.broker.unsubscribe(id + _BESIDE)

    def publish(self, sent: SourcedMessage, changing: Collection[str] = ()) -> None:
        """Note what a message has to be delivered to; subscriptions that are changing may get it, or not."""
        message = sent.message
        self.sources[message.id] = sent.source
        try:
            deliveries = self.broker.publish(
                message.body, message.id, stream=message.stream, time=message.time
            )
        except MessageError:
            self.rejects[message.id] = sent.source
            return
        for delivery in deliveries:
            id = str(delivery.subscription).removesuffix(_BESIDE)
            made = Made(id, str(delivery.message), delivery.body)
            host = self.hosts.setdefault(self._rows[id].host, HostDeliveries())
            if id in changing:
                host.optional.add(made)
            else:
                host.made.append(made)

    def check(self, host: str, received: Iterable[Received]) -> int:
        """Compare what came at a host with what has to come; return how many deliveries there are.

        Nothing is missing, nothing is there twice or in excess, and what a subscription gets of a source is
        in the order of that source. A delivery of a join has the content that it has to have, and the id of
        any message that it is made of.
        """
        deliveries = list(received)
        assert len({each.id for each in deliveries}) == len(deliveries), (
            f"{host}: a delivery id is there twice"
        )
        found = [Made(each.subscriptions[0], each.message, each.body) for each in deliveries]
        expected = self.hosts.get(host, HostDeliveries())
        wanted, got = Counter(map(self._name, expected.made)), Counter(map(self._name, found))
        missing, extra = wanted - got, got - wanted
        allowed = Counter({self._name(made): 1 for made in expected.optional})
        extra -= allowed
        assert not missing, f"{host}: {missing.total()} of {wanted.total()} are missing, as {_first(missing)}"
        assert not extra, f"{host}: {extra.total()} beside {wanted.total()} are too many, as {_first(extra)}"
        want_order = self._order(expected.made)
        optional = {self._name(made) for made in expected.optional}
        got_order = self._order(made for made in found if self._name(made) not in optional)
        for key, ids in want_order.items():
            assert got_order.get(key) == ids, f"{host}: {key} is out of order"
        return len(deliveries)

    def _name(self, made: Made) -> tuple[str, ...]:
        message = "" if made.subscription in self.joins else made.message
        return made.subscription, message, made.body.decode("latin-1")

    def _order(self, deliveries: Iterable[Made]) -> Mapping[tuple[str, str], list[str]]:
        """By subscription and source the ids, without joins and what these publish."""
        found: dict[tuple[str, str], list[str]] = {}
        for made in deliveries:
            source = self.sources.get(made.message)
            if source is not None and made.subscription not in self.joins:
                found.setdefault((made.subscription, source), []).append(made.message)
        return found


def _first(counted: Counter[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [tuple(part[:80] for part in name) for name in list(counted)[:3]]
