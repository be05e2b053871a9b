"""Messages in a state store elsewhere, in portable form, join as they do within a broker."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable, Iterator
from random import Random

import pytest

from sapwood import Broker, Delivery
from sapwood.broker.distributed_broker import DistributedBroker
from sapwood.engine.message.message_reader import Message
from sapwood.join.results import Meetings
from sapwood.join.state.message_state import RecordList, StoredMessage
from sapwood.join.state.portable_state import PortableMessage
from tests.support.generators.join_queries import NAMESPACES, written
from tests.support.generators.join_strategies import random_message, random_query

pytestmark = pytest.mark.slow

Result = tuple[Hashable, tuple[Hashable, ...], bytes]


class StateStore:
    """Stores messages in two partitions, and joins each new one with both, chain by chain."""

    def __init__(self, broker: Broker) -> None:
        self._broker = DistributedBroker(broker)
        self._partitions = [self._broker.open_partition(RecordList()) for _ in range(2)]
        self._stored = 0

    def publish(self, body: str, id: int, stream: str, time: float) -> Iterator[Result]:
        broker, message = self._broker, Message(body)
        values, alone = broker.extract(broker.find(message), stream)
        record = StoredMessage(id, stream, time, 0, message.data, message.encoding)
        yield from map(result_of, broker.deliveries(broker.match_single_blocks(alone, record), []))
        pending = [PortableMessage((record,), [values])]
        while pending:
            items = broker.restore(pickle.loads(pickle.dumps(pending.pop(0))))
            for partition in self._partitions:
                results = broker.join(partition, items)
                yield from map(result_of, broker.deliveries(results, []))
                pending += broker.partial_matches(results)
            self._stored += 1
            broker.insert(self._partitions[self._stored % 2], items)


def result_of(delivery: Delivery) -> Result:
    assert delivery.meeting is not None
    return delivery.subscription, delivery.meeting.messages, delivery.body


def test_stored_messages_join_as_they_do_in_a_broker() -> None:
    found: Counter[int] = Counter()
    for seed in range(25):
        rng = Random(seed)
        broker = Broker(NAMESPACES)
        for number in range(12):
            broker.subscribe(number, written(random_query(rng)))
        store = StateStore(Broker.unpack(broker.pack()))
        for id in range(10):
            body, stream = random_message(rng), rng.choice("ST")
            expected = Counter(map(result_of, broker.publish(body, id, stream=stream, time=id / 4)))
            assert Counter(store.publish(body, id, stream, id / 4)) == expected
            found.update(len(messages) for _, messages, _ in expected)
    assert min(found[1], found[2], found[3]) > 10, found


def restored(distributed: DistributedBroker, body: str, time: float = 1, version: int = 0) -> PortableMessage:
    message = Message(body)
    values, _ = distributed.extract(distributed.find(message), "S")
    record = StoredMessage("id", "S", time, version, message.data, message.encoding)
    return PortableMessage((record,), [values])


def joined(
    distributed: DistributedBroker, current: PortableMessage, earlier: list[PortableMessage]
) -> Meetings:
    partition = distributed.open_partition(RecordList())
    for message in earlier:
        distributed.insert(partition, distributed.restore(message))
    return distributed.join(partition, distributed.restore(current))


def test_a_query_sees_messages_from_its_version_on() -> None:
    distributed = DistributedBroker(Broker())
    distributed.subscribe_from(3, [("q", "S/a->x JOIN{x = y, INF} S/b->y")])
    earlier = [restored(distributed, "<a>1</a>", version=version) for version in (2, 3, 4)]
    results = list(joined(distributed, restored(distributed, "<b>1</b>", version=4), earlier))
    assert [[record.visible_from for record in result.records] for result in results] == [[3, 4], [4, 4]]
    assert not distributed.has_feedback


def test_published_messages_have_one_order_whatever_order_they_are_stored_in() -> None:
    distributed = DistributedBroker(Broker())
    query = "SELECT <r>{$x}</r> FROM S/a->x JOIN{x = y, INF} S/b->y PUBLISH P"
    distributed.subscribe_from(0, [("q", query)])
    first, second, third = (restored(distributed, f"<a n='{n}'>1</a>", n) for n in range(3))
    current = restored(distributed, "<b>1</b>", 5)
    orders = [[first, second, third], [third, second, first], [second, third, first]]
    results = [joined(distributed, current, order) for order in orders]
    published = [[made.message.data for made in distributed.published(each)] for each in results]
    assert published[0] == published[1] == published[2]
    assert len(published[0]) == 3


def test_partitions_drop_what_only_removed_queries_needed() -> None:
    broker = Broker()
    distributed = DistributedBroker(broker)
    query = "S/a->x JOIN{x = y, INF} S/b->y"
    distributed.subscribe_from(0, [("q", query), ("other", "S/a->x JOIN{x = y, 5 s} S/c->y")])
    partition = distributed.open_partition(RecordList())
    for time in range(20):
        distributed.insert(partition, distributed.restore(restored(distributed, f"<a>{time}</a>", time)))
    distributed.evict(partition, 10)
    assert len(partition.state) == len(partition.state.records) == 20
    broker.unsubscribe("q")
    distributed.evict(partition, 10)
    assert int(partition.state.live.sum()) == 15  # those that the other still reaches
    broker.unsubscribe("other")
    assert len(partition.state) == len(partition.state.records) == 0
    distributed.subscribe_from(1, [("again", query)])  # with numbers that were others' before
    for message in (restored(distributed, "<a>1</a>", 30, 1), restored(distributed, "<b>1</b>", 31, 1)):
        items = distributed.restore(message)
        results = distributed.join(partition, items)
        distributed.insert(partition, items)
    assert len(results) == 1
    distributed.close_partition(partition)
