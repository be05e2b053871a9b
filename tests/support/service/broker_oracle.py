"""What a server must deliver, by a Broker in this process that gets the same changes and messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Self

from sqlalchemy import create_engine, select

from sapwood import Broker
from sapwood.errors import LateMessage, MessageError
from sapwood.serve.log import log_schema
from sapwood.store import store_schema
from sapwood.store.store_location import locate
from tests.support.service.listeners import Received


@dataclass(frozen=True, slots=True)
class Row:
    """A subscription as the store has it."""

    id: str
    query: str
    subscriber: str
    active: bool = True
    streams: tuple[str, ...] = ()


class Expected(NamedTuple):
    """A delivery that has to come."""

    seq: int
    subscription: str
    message: str
    body: bytes


class BrokerOracle:
    """Evaluates messages in the order of the log, each with the subscriptions of its time."""

    def __init__(self, namespaces: Mapping[str, str] | None = None, lateness: float = 0) -> None:
        self.broker = Broker(namespaces, lateness=lateness)
        self._rows: dict[str, Row] = {}
        self.expected: dict[str, list[Expected]] = {}
        """by subscriber"""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()

    def put(self, row: Row) -> None:
        """Add or change a subscription."""
        broker = self.broker
        if row.active:
            if row.id not in broker:
                broker.subscribe(row.id, row.query)
            elif self._rows[row.id].query != row.query:
                broker.restrict(row.id, None)
                broker.replace(row.id, row.query)
            broker.restrict(row.id, row.streams or None)
        elif row.id in broker:
            broker.unsubscribe(row.id)
        self._rows[row.id] = row

    def remove(self, id: str) -> None:
        """Remove a subscription."""
        if self._rows.pop(id).active:
            self.broker.unsubscribe(id)

    def publish(self, seq: int, id: str, stream: str, body: bytes, time: float | None) -> int:
        """Note what a message has to be delivered to; returns how many there are. Raises MessageError."""
        try:
            deliveries: Sequence[Any] = self.broker.publish(body, id, stream=stream, time=time)
        except LateMessage as late:
            deliveries = late.deliveries
        count = 0
        for delivery in deliveries:
            subscriber = self._rows[str(delivery.subscription)].subscriber
            if subscriber:
                made = Expected(seq, str(delivery.subscription), str(delivery.message), delivery.body)
                self.expected.setdefault(subscriber, []).append(made)
                count += 1
        return count


def check_inbox(received: Iterable[Received], expected: Sequence[Expected], merged: bool = False) -> None:
    """Compare what a subscriber got with what it has to get: nothing missing, nothing twice, and in order.

    Subscriptions that get the same message may be in any order; the deliveries of one are in that of the
    broker.
    """
    deliveries = list(received)
    assert len({each.id for each in deliveries}) == len(deliveries)
    number = 0
    for each in deliveries:
        number += len(each.subscriptions)
        assert each.number == number, f"{each.id} comes where number {number} has to"
        assert merged or len(each.subscriptions) == 1
    found = [(name, each.message, each.body) for each in deliveries for name in each.subscriptions]
    start = 0
    for seq, group in groupby(expected, lambda each: each.seq):
        wanted = [tuple(each[1:]) for each in group]
        part = found[start : start + len(wanted)]
        assert Counter(part) == Counter(wanted), f"the deliveries of message {seq} differ"
        assert _by_subscription(part) == _by_subscription(wanted), f"message {seq} is out of order"
        start += len(wanted)
    assert len(found) == len(expected)
    if merged:
        _check_merged(deliveries, expected)


def _by_subscription(deliveries: Iterable[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name, *rest in deliveries:
        found.setdefault(name, []).append(tuple(rest))
    return found


def _check_merged(deliveries: Sequence[Received], expected: Sequence[Expected]) -> None:
    """Where subscriptions get equal deliveries in contrary orders, not all of them can be merged."""
    distinct = {(each.seq, each.message, each.body) for each in expected}
    assert len(deliveries) <= 1.02 * len(distinct), "equal deliveries of one message are not merged"


def replay_log(location: str, lateness: float = 0) -> tuple[BrokerOracle, list[Any]]:
    """Return an oracle that was given all messages in a log, with their versions, and the messages."""
    engine = create_engine(locate(location))
    rows, messages, names = store_schema.history, log_schema.messages, store_schema.namespaces
    with engine.connect() as connection:
        history = connection.execute(select(rows).order_by(rows.c.since, rows.c.place)).mappings().all()
        published = list(connection.execute(select(messages).order_by(messages.c.seq)).mappings())
        declared = {row.prefix: row.uri for row in connection.execute(select(names))}
    engine.dispose()
    oracle = BrokerOracle(declared, lateness)
    changes: dict[int, list[tuple[int, Any]]] = {}
    begun = {(row["place"], row["since"]) for row in history}
    for row in history:
        changes.setdefault(row["since"], []).append((1, row))
        ended = row["until"]
        if ended is not None and (row["place"], ended) not in begun:
            changes.setdefault(ended, []).append((0, row))
    pending = sorted(changes)
    for message in published:
        while pending and pending[0] <= message["version"]:
            _apply(oracle, changes[pending.pop(0)])
        time = message["time"] if message["has_time"] else None
        try:
            oracle.publish(message["seq"], message["id"], message["stream"], message["body"], time)
        except MessageError as error:
            raise AssertionError(f"message {message['seq']} of the log is refused: {error}") from error
    return oracle, published


def _apply(oracle: BrokerOracle, changes: Iterable[tuple[int, Any]]) -> None:
    for begins, row in sorted(changes, key=lambda change: (change[0], change[1]["place"])):
        if begins:
            streams = tuple(json.loads(row["streams"])) if row["streams"] else ()
            oracle.put(Row(row["id"], row["query"], row["subscriber"], row["active"], streams))
        else:
            oracle.remove(row["id"])
