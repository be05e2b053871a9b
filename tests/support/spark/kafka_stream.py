"""A pipeline from Kafka, to Kafka or to files, and what to expect of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from sapwood import Broker, MessageError
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.store import NewSubscription, SubscriptionStore
from tests.support.kafka import Kafka, Record

QUERIES = {
    "all": "//*",
    "orders": "/order[@total > 50]",
    "urgent": "//item[@urgent]",
    "made": "for $i in //item return <picked>{$i}</picked>",
    "slow": "count(//item) > 2",
}
"""Filters, one of which lxml decides, and a transformation."""
SUBSCRIBERS = {"all": "archive", "orders": "sales", "urgent": "sales", "made": "ware house"}


def order(number: int) -> bytes:
    """A message; every seventh is broken."""
    if number % 7 == 6:
        return b"<order>%d" % number
    items = b"".join(
        b'<item n="%d"%b/>' % (item, b' urgent=""' if (number + item) % 3 == 0 else b"")
        for item in range(number % 5)
    )
    return b'<?xml version="1.0"?>\n<order id="%d" total="%d">%b</order>' % (number, number * 13 % 100, items)


class Delivered(NamedTuple):
    """A delivery, wherever it was delivered to."""

    message: str
    subscription: str
    body: str | None


class KafkaStream:
    """A folder with a pipeline file and a store, and the topics."""

    def __init__(
        self,
        folder: Path,
        kafka: Kafka,
        source: str,
        *,
        options: str = "",
        more: str = "",
        trigger: str = "available-now",
        deliveries: str = 'path = "deliveries"',
        rejects: str = 'path = "rejects"\nformat = "json"',
        rest: str = "",
    ) -> None:
        """`source` is its topic, or its whole table; `options` are further ones of it, and `more` its other
        keys; `deliveries` and `rejects` are the contents of these tables."""
        folder.mkdir(exist_ok=True)
        self.folder, self.kafka, self.topic = folder, kafka, source
        servers = f'"kafka.bootstrap.servers" = "{kafka.address}"'
        self.sink_options = f"options = {{ {servers} }}"
        table = (
            source
            if "\n" in source
            else (
                f'[source]\nformat = "kafka"\n{more}\n[source.options]\n{servers}\nsubscribe = "{source}"\n'
                f'startingOffsets = "earliest"\n{options}\n'
            )
        )
        self.settings = folder / "pipeline.toml"
        self.settings.write_text(
            f"""
name = "test"
{table.replace("SERVERS", servers)}
[subscriptions]
store = "subscriptions.db"
[deliveries]
{deliveries.replace("OPTIONS", self.sink_options)}
[rejects]
{rejects.replace("OPTIONS", self.sink_options)}
[run]
checkpoint = "checkpoint"
trigger = "{trigger}"
{rest}
"""
        )
        self.subscribe(QUERIES, SUBSCRIBERS)

    def subscribe(self, queries: dict[str, str], subscribers: dict[str, str]) -> None:
        with SubscriptionStore(str(self.folder / "subscriptions.db")) as store:
            new = (NewSubscription(id, query, subscribers.get(id, "")) for id, query in queries.items())
            store.import_many(new)

    def run(self, spark: SparkSession, on_batch: Callable[[Outcome], None] | None = None) -> Pipeline:
        pipeline = Pipeline(spark, read_config(self.settings), on_batch)
        pipeline.run()
        return pipeline

    # -- what it ought to deliver ----------------------------------------------------------------------

    def broker(self) -> Broker:
        with SubscriptionStore(str(self.folder / "subscriptions.db")) as store:
            broker = Broker(store.namespaces)
            broker.subscribe_many(store.at(store.version))
        return broker

    def expected(self, records: Iterable[Record], bodies: bool) -> tuple[Counter[Delivered], Counter[str]]:
        """Every delivery, and every reject, by a broker in this process; with `bodies`, filters have one."""
        broker = self.broker()
        deliveries: Counter[Delivered] = Counter()
        rejects: Counter[str] = Counter()
        for record in records:
            try:
                answer = broker.publish(record.value) if record.value is not None else None
            except MessageError:
                answer = None
            if answer is None:
                rejects[record.id] += 1
                continue
            assert record.value is not None
            itself = record.value.decode().removeprefix('<?xml version="1.0"?>\n') if bodies else None
            for id, _, body, _ in answer:
                made = itself if id in broker.filters else body.decode()
                deliveries[Delivered(record.id, str(id), made)] += 1
        return deliveries, rejects

    # -- what it delivers ------------------------------------------------------------------------------

    def delivered(self, spark: SparkSession) -> Counter[Delivered]:
        rows = spark.read.parquet(str(self.folder / "deliveries")).collect()
        return Counter(Delivered(row["message_id"], row["subscription"], row["body"]) for row in rows)

    def rejected(self) -> list[dict[str, Any]]:
        paths = sorted((self.folder / "rejects").rglob("*.json"))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def assert_exact(self, spark: SparkSession, topics: Sequence[str] = ()) -> None:
        """Files have each delivery and reject exactly once."""
        records = [record for topic in topics or [self.topic] for record in self.kafka.consume(topic)]
        deliveries, rejects = self.expected(records, bodies=False)
        assert len(deliveries) > len(records) / 2
        assert self.delivered(spark) == deliveries
        assert Counter(row["message_id"] for row in self.rejected()) == rejects


def read_deliveries(records: Iterable[Record]) -> Counter[Delivered]:
    """The deliveries in records, without those that repeat the id of another; these must be equal to it."""
    by_id: dict[str, Record] = {}
    for record in records:
        id = record.header("delivery_id")
        assert id is not None and record.value is not None
        first = by_id.setdefault(id, record)
        assert (first.topic, first.key, first.value) == (record.topic, record.key, record.value)
        assert first.headers == record.headers
    return Counter(
        Delivered(
            record.header("message_id") or "",
            record.header("subscription") or "",
            (record.value or b"").decode(),
        )
        for record in by_id.values()
    )
