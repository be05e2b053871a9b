"""A Kafka server of our own, while the tests run, with a producer and a consumer without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from sapwood.bench.spark.kafka_server import KafkaServer

_FRESH = count(1)
_SECONDS = 30.0
Headers = list[tuple[str, str | bytes | None]]


class Record(NamedTuple):
    """A record in a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def id(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def text(self) -> str:
        return (self.value or b"").decode()

    def header(self, name: str) -> str | None:
        """The value of one of Sapwood's headers, of which there is at most one."""
        [found] = [value for key, value in self.headers if key == f"sapwood.{name}"] or [None]
        return found.decode() if isinstance(found, bytes) else None


class Kafka:
    """A running server, and what is in its topics."""

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        self.address = server.address
        self._client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.address,
            "log_level": 0,
            "message.max.bytes": 50_000_000,
        }
        self._admin = AdminClient(self._client)

    def topic(self, prefix: str = "topic", partitions: int = 2, **settings: str) -> str:
        """The name of a new topic."""
        name = f"{prefix}-{next(_FRESH)}"
        self.create(name, partitions, **settings)
        return name

    def create(self, name: str, partitions: int = 2, **settings: str) -> None:
        config = {key.replace("_", "."): value for key, value in settings.items()}
        for done in self._admin.create_topics([NewTopic(name, partitions, config=config)]).values():
            done.result(_SECONDS)

    def delete(self, name: str) -> None:
        for done in self._admin.delete_topics([name]).values():
            done.result(_SECONDS)

    def add_partitions(self, name: str, total: int) -> None:
        for done in self._admin.create_partitions([NewPartitions(name, total)]).values():
            done.result(_SECONDS)

    def forget(self, name: str) -> None:
        """Removes all records of a topic, as retention does."""
        ends = [TopicPartition(name, partition, -1) for partition in self._partitions(name)]
        for done in self._admin.delete_records(ends).values():
            done.result(_SECONDS)

    def topics(self, prefix: str) -> list[str]:
        return sorted(
            name for name in self._admin.list_topics(timeout=_SECONDS).topics if name.startswith(prefix)
        )

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        at: int | None = None,
    ) -> None:
        """Writes records, partition by partition in turn, and returns when the server has them."""
        failed: list[KafkaError] = []
        producer = Producer(self._client | {"linger.ms": 0})  # a new one knows partitions that were added
        total = len(self._partitions(topic))
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                key=key,
                headers=headers,
                partition=number % total if partition is None else partition,
                timestamp=at or 0,
                on_delivery=lambda error, _: failed.append(error) if error is not None else None,
            )
        assert producer.flush(_SECONDS) == 0
        assert not failed, failed

    def consume(self, topic: str) -> list[Record]:
        """All records of a topic that are there now."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "tests",
                "enable.auto.commit": False,
                "log_level": 0,
                "fetch.message.max.bytes": 50_000_000,
                "receive.message.max.bytes": 100_000_000,
            }
        )
        found: list[Record] = []
        try:
            ends = {}
            for partition in self._partitions(topic):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), _SECONDS)
                if high > low:
                    ends[partition] = high
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
            while ends:
                message = consumer.poll(_SECONDS)
                assert message is not None and message.error() is None, message and message.error()
                at, offset = message.partition(), message.offset()
                assert at is not None and offset is not None
                headers: Any = message.headers() or []
                found.append(Record(topic, at, offset, message.key(), message.value(), headers))
                if offset + 1 >= ends[at]:
                    del ends[at]
                    consumer.incremental_unassign([TopicPartition(topic, at)])
        finally:
            consumer.close()
        return sorted(found)

    def _partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, of which the server knows some moments after it is created."""
        limit = time.monotonic() + _SECONDS
        while time.monotonic() < limit:
            found = self._admin.list_topics(topic, _SECONDS).topics[topic].partitions
            if found:
                return sorted(found)
            time.sleep(0.05)
        raise AssertionError(f"there is no topic {topic}")
