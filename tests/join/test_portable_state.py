"""Messages kept by others, in a form that all processes understand, meet as they do within a broker."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable, Iterator
from random import Random

from sapwood import Broker, Delivery
from sapwood.broker.distributed import DistributedBroker
from sapwood.engine.message.message_reader import Message
from sapwood.join.state.message_state import StoredMessage
from sapwood.join.state.portable_state import PortableMessage
from tests.support.join_queries import NAMESPACES, written
from tests.support.join_strategies import random_message, random_query

Told = tuple[Hashable, tuple[Hashable, ...], bytes]


class Keeper:
    """Keeps all that messages had to say, and brings it together with what comes in, chain by chain."""

    def __init__(self, broker: Broker) -> None:
        self._broker = DistributedBroker(broker)
        self._kept: list[bytes] = []

    def publish(self, body: str, id: int, stream: str, time: float) -> Iterator[Told]:
        broker, message = self._broker, Message(body)
        values, alone = broker.extract(broker.find(message), stream)
        record = StoredMessage(id, stream, time, 0, message.data, message.encoding)
        yield from map(told, broker.deliveries(broker.match_single_blocks(alone, record), []))
        arrived = [PortableMessage((record,), [values])]
        while arrived:
            now = arrived.pop(0)
            results = broker.join(now, [pickle.loads(kept) for kept in self._kept])
            yield from map(told, broker.deliveries(results, []))
            arrived += broker.partial_matches(results)
            self._kept.append(pickle.dumps(now))


def told(delivery: Delivery) -> Told:
    assert delivery.meeting is not None
    return delivery.subscription, delivery.meeting.messages, delivery.body


def test_messages_meet_as_they_do_in_a_broker() -> None:
    found: Counter[int] = Counter()
    for seed in range(25):
        rng = Random(seed)
        broker = Broker(NAMESPACES)
        for number in range(12):
            broker.subscribe(number, written(random_query(rng)))
        keeper = Keeper(Broker.unpack(broker.pack()))
        for id in range(10):
            body, stream = random_message(rng), rng.choice("ST")
            expected = Counter(map(told, broker.publish(body, id, stream=stream, time=id / 4)))
            assert Counter(keeper.publish(body, id, stream, id / 4)) == expected
            found.update(len(messages) for _, messages, _ in expected)
    assert min(found[1], found[2], found[3]) > 10, found
