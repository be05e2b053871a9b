"""Two topics that are joined, from Kafka to Kafka, and what to expect of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

from sapwood import Broker, Delivery
from sapwood.store import NewSubscription, SubscriptionStore
from tests.support.generators.join_queries import NAMESPACES
from tests.support.generators.join_strategies import random_message
from tests.support.kafka import Kafka, Record
from tests.support.oracles.saxon import canonical
from tests.support.spark.connector_jars import connector_settings
from tests.support.spark.spark_joins import START, STREAMS, DeliveryRow, Message

_SOURCE = """
[[source]]
format = "kafka"
stream = "{stream}"
keep = ["key", "headers"]
[source.options]
"kafka.bootstrap.servers" = "{servers}"
subscribe = "{topic}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = {per_batch}
"""
_SETTINGS = """
name = "joined"
{sources}
[subscriptions]
store = "subscriptions.db"
[deliveries]
format = "kafka"
topic = "{to}"
options = {{ "kafka.bootstrap.servers" = "{servers}" }}
[rejects]
path = "rejects"
format = "json"
[run]
checkpoint = "checkpoint"
[joins]
lateness = "1 h"
buckets = 4
[spark]
"spark.sql.shuffle.partitions" = 2
"spark.default.parallelism" = 1
"spark.jars" = "{jars}"
"""


class JoinedTopics:
    """A folder with a pipeline file and a store, and three topics."""

    def __init__(self, folder: Path, kafka: Kafka, queries: dict[str, str], per_batch: int) -> None:
        self.folder, self.kafka = folder, kafka
        folder.mkdir()
        # the times of its records are long ago, and retention counts from there
        self.topics = {stream: kafka.topic(f"joined-{stream}", retention_ms="-1") for stream in STREAMS}
        self.to = kafka.topic("joined-deliveries")
        sources = "".join(
            _SOURCE.format(stream=stream, topic=topic, servers=kafka.address, per_batch=per_batch)
            for stream, topic in self.topics.items()
        )
        self.settings = folder / "pipeline.toml"
        self.settings.write_text(
            _SETTINGS.format(
                sources=sources, servers=kafka.address, to=self.to, jars=connector_settings()["spark.jars"]
            )
        )
        with SubscriptionStore(str(folder / "subscriptions.db")) as store:
            store.declare(NAMESPACES)
            store.import_many(NewSubscription(id, query) for id, query in queries.items())
        self._queries = queries
        self._times: dict[str, int] = {}

    def publish(self, rng: Random, each: int, first: int = 0) -> None:
        """Writes messages to both topics, one a second in each; `first` is the number of the first."""
        for stream, topic in self.topics.items():
            for number in range(first, first + each):
                at = round((START + number + rng.uniform(0, 1)) * 1000)
                headers = [("number", b"%d" % number)]
                message = random_message(rng).encode()
                self.kafka.produce(
                    topic, [message], key=stream.encode(), headers=[*headers], partition=number % 2, at=at
                )
                self._times[f"{topic}/{number % 2}/{number // 2}"] = at

    def batches(self) -> list[list[Message]]:
        """The messages of each batch, as Spark has it on record."""
        offsets = self.folder / "checkpoint/spark/offsets"
        found = []
        before: dict[tuple[str, str], int] = {}
        records = {topic: self.kafka.consume(topic) for topic in self.topics.values()}
        for number in sorted(int(path.name) for path in offsets.iterdir() if path.name.isdigit()):
            lines = (offsets / str(number)).read_text().splitlines()[2:][: len(STREAMS)]
            batch: list[Message] = []
            for (stream, topic), line in zip(self.topics.items(), lines, strict=True):
                ends = (json.loads(line) or {}).get(topic, {}) if line != "-" else {}
                for partition, end in ends.items():
                    start = before.get((topic, partition), 0)
                    before[topic, partition] = end
                    batch += [
                        Message(self._times[record.id], stream, record.id, record.text)
                        for record in records[topic]
                        if record.partition == int(partition) and start <= record.offset < end
                    ]
            found.append(sorted(batch))
        return found

    def expected(self) -> Counter[DeliveryRow]:
        """Every delivery, by a broker in this process."""
        broker = Broker(NAMESPACES, lateness=1e12)
        broker.subscribe_many(self._queries.items())
        deliveries: Counter[DeliveryRow] = Counter()
        for batch, messages in enumerate(self.batches()):
            for ms, stream, id, body in messages:
                for made in broker.publish(body.encode(), id, stream=stream, time=ms / 1000):
                    deliveries[_to_row(made, batch)] += 1
        return deliveries

    def delivered(self, records: list[Record]) -> Counter[DeliveryRow]:
        """The deliveries in records, each id once."""
        by_id = {record.header("delivery_id"): record for record in records}
        found: Counter[DeliveryRow] = Counter()
        for record in by_id.values():
            messages = record.header("messages")
            row = DeliveryRow(
                str(record.header("subscription")),
                str(record.header("message_id")),
                tuple(json.loads(messages)) if messages is not None else None,
                canonical(record.text),
                1,
                int(str(record.header("batch"))),
            )
            found[row.normalized] += 1
        return found


def _to_row(made: Delivery, batch: int) -> DeliveryRow:
    id, message, body, meeting = made
    messages = tuple(map(str, meeting.messages)) if meeting is not None else None
    return DeliveryRow(str(id), str(message), messages, canonical(body), 1, batch).normalized
