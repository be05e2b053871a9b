"""Deliveries and rejects are records of Kafka, with ids by which repeated ones are recognised."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession

from sapwood.spark.kafka.kafka_failures import KafkaError
from sapwood.spark.kafka.kafka_sink import KafkaSink, identify
from sapwood.spark.kafka.topic_template import TopicTemplate
from sapwood.spark.pipeline.batch import BatchProcessor, Outcome
from sapwood.spark.pipeline.batch_log import BatchLog
from tests.support.crashes import Crash, after
from tests.support.kafka import Kafka
from tests.support.spark.kafka_stream import KafkaStream, order, read_deliveries

pytestmark = pytest.mark.server


def _sink(topic: str, more: str = "") -> str:
    return f'format = "kafka"\nOPTIONS\ntopic = "{topic}"\n{more}'


def _while_writing(batch: int) -> Any:
    """Crashes when some of a batch's deliveries are written."""
    original = KafkaSink.write

    def write(self: KafkaSink, rows: DataFrame, number: int) -> DataFrame | None:
        result = original(self, rows.limit(7) if number == batch else rows, number)
        if number == batch:
            raise Crash
        return result

    return mock.patch.object(KafkaSink, "write", write)


STEPS: list[Callable[[int], Any]] = [
    lambda n: after(BatchLog, "plan", lambda batch, plan: batch, n),
    _while_writing,
    lambda n: after(BatchProcessor, "process", lambda *arguments: arguments[3], n),
    lambda n: after(BatchLog, "commit", lambda batch, outcome: batch, n),
]


def test_records_that_a_crash_repeats_have_the_same_ids(
    tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.topic("orders")
    to = kafka.topic("deliveries")
    dead = kafka.topic("dead")
    kafka.produce(topic, [order(number) for number in range(60)], key=b"k", headers=[("trace", b"t")])
    stream = KafkaStream(
        tmp_path,
        kafka,
        topic,
        options="maxOffsetsPerTrigger = 12",
        more='stream = "orders"\nkeep = ["key", "headers"]',
        deliveries=_sink(to),
        rejects=_sink(dead),
    )
    for batch, crash in enumerate(STEPS):
        with crash(batch), pytest.raises(Crash):
            stream.run(spark)
    outcomes = stream.run(spark).outcomes()
    source = kafka.consume(topic)
    expected, rejects = stream.expected(source, bodies=True)
    records = kafka.consume(to)
    assert read_deliveries(records) == expected
    assert len(records) > sum(expected.values())  # some were repeated
    assert sum(outcome.deliveries for outcome in outcomes) == sum(expected.values())
    for record in records:
        assert record.key == str(record.header("subscription")).encode()
        assert record.headers[0] == ("trace", b"t")
        assert record.header("stream") == "orders"
        assert record.header("version") == "1"
        assert int(str(record.header("batch"))) in range(5)
        subscriber = {"all": "archive", "made": "ware house", "slow": None}.get(record.key.decode(), "sales")
        assert record.header("subscriber") == subscriber
    by_id = {record.id: record for record in source}
    found = {record.header("delivery_id"): record for record in kafka.consume(dead)}
    assert Counter(str(record.header("message_id")) for record in found.values()) == rejects
    for record in found.values():
        of = by_id[str(record.header("message_id"))]
        assert (record.value, record.key) == (of.value, of.id.encode())
        assert record.header("reason") and record.header("line") == "1"


def test_each_subscriber_has_a_topic(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic("orders")
    kafka.produce(topic, [order(number) for number in range(20)])
    stream = KafkaStream(
        tmp_path,
        kafka,
        topic,
        more='keep = ["partition", "offset"]',
        deliveries=_sink(
            f"to-{topic}.{{subscriber}}", 'value = "json"\nkey = "concat(partition, \':\', offset)"'
        ),
    )
    stream.run(spark)
    topics = {name.partition(".")[2]: kafka.consume(name) for name in kafka.topics(f"to-{topic}.")}
    assert set(topics) == {"", "archive", "sales", "ware_20house"}
    found: Counter[tuple[str, str, str | None]] = Counter()
    for subscriber, records in topics.items():
        for record in records:
            row = json.loads(record.text)
            assert row.get("subscriber", "") == subscriber.replace("_20", " ")
            assert record.key == f"{row['partition']}:{row['offset']}".encode()
            assert row["delivery_id"] == record.header("delivery_id")
            assert (row["batch"], row["version"]) == (0, 1)
            found[row["message_id"], row["subscription"], row.get("body")] += 1
    assert found == stream.expected(kafka.consume(topic), bodies=False)[0]


def test_deliveries_that_are_too_large_are_rejects(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic("orders", 1, max_message_bytes="20000000")
    to, dead = kafka.topic("deliveries"), kafka.topic("dead")
    large = b"<order><item>%b</item></order>" % (b"x" * 1_100_000)
    edges = [b"<order>%b</order>" % (b"y" * (1_048_576 - spare)) for spare in (700, 300, 100)]
    kafka.produce(topic, [order(1), large, b"<order>" + large, *edges])
    stream = KafkaStream(tmp_path, kafka, topic, deliveries=_sink(to), rejects=_sink(dead))
    outcomes: list[Outcome] = []
    stream.run(spark, outcomes.append)
    expected, _ = stream.expected(kafka.consume(topic), bodies=True)
    records = kafka.consume(to)
    delivered = read_deliveries(records)
    refused = [record for record in kafka.consume(dead) if record.header("subscription")]
    missing = expected - delivered
    assert delivered - expected == Counter()
    assert Counter((row.message, row.subscription) for row in missing) == Counter(
        (record.header("message_id"), record.header("subscription")) for record in refused
    )
    assert {row.message.rpartition("/")[2] for row in missing} == {"1", "4", "5"}
    assert {row.message.rpartition("/")[2] for row in delivered} == {"0", "3"}
    assert all("too large for Kafka" in str(record.header("reason")) for record in refused)
    assert all(record.value == b"" for record in refused)  # null would be a tombstone
    [broken] = [record for record in kafka.consume(dead) if not record.header("subscription")]
    assert broken.value is not None and 1_040_000 < len(broken.value) < 1_048_576
    assert (outcomes[0].deliveries, outcomes[0].failures) == (len(records), len(refused))
    assert sum(outcomes[0].by_subscription.values()) == len(records)
    assert outcomes[0].rejects == 1
    assert any("too large for Kafka" in reason for reason in outcomes[0].failed)


def test_a_topic_that_takes_less_than_the_producer_sends(
    tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    topic, to = kafka.topic("orders", 1), kafka.topic("deliveries", 1, max_message_bytes="100000")
    kafka.produce(topic, [order(1), b"<order>%b</order>" % (b"x" * 150_000)])
    stream = KafkaStream(tmp_path, kafka, topic, deliveries=_sink(to))
    with pytest.raises(KafkaError) as caught:
        stream.run(spark)
    told = str(caught.value)
    assert told.startswith("deliveries: a topic takes only smaller records")
    assert f"that of '{topic}/0/1' for 'all', 150," in told
    assert "max.message.bytes" in told
    settings = stream.settings.read_text()
    stream.settings.write_text(
        settings.replace("options = { ", 'options = { "kafka.max.request.size" = 100000, ')
    )
    stream.run(spark)  # which repeats the batch
    assert {row.message for row in read_deliveries(kafka.consume(to))} == {f"{topic}/0/0"}
    [reject] = stream.rejected()
    assert (reject["message_id"], reject["subscription"]) == (f"{topic}/0/1", "all")


def test_a_key_that_cannot_be_evaluated(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic("orders", 1)
    kafka.produce(topic, [order(1)])
    stream = KafkaStream(tmp_path, kafka, topic, deliveries=_sink("unused", 'key = "customer"'))
    with pytest.raises(KafkaError, match=r"deliveries\.key: 'customer' cannot be evaluated.*message_id, "):
        stream.run(spark)


# -- without a server ---------------------------------------------------------------------------------------


def _topics(spark: SparkSession, template: str, values: list[str | None]) -> list[str]:
    rows = spark.createDataFrame([(value,) for value in values], "subscriber STRING")
    selected = rows.select(TopicTemplate(template, ["subscriber", "stream"]).select(rows).alias("topic"))
    return [row["topic"] for row in selected.collect()]


def test_different_values_have_different_topics(spark: SparkSession) -> None:
    values: list[str | None] = [
        "a",
        "a b",
        "a_20b",
        "a_b",
        "ä",
        "_C3_A4",
        "_",
        "__",
        "_ ",
        "a/b",
        "a.b",
        "𝄞",
        "",
        "_5F20",
        "_20",
    ]
    found = _topics(spark, "to-{subscriber}{stream}", values)
    assert len(set(found)) == len(values)
    assert found[:6] == ["to-a", "to-a_20b", "to-a_5F20b", "to-a_b", "to-_C3_A4", "to-_5FC3_5FA4"]
    assert found[11] == "to-_F0_9D_84_9E"
    assert _topics(spark, "to-{subscriber}", [None]) == ["to-"]


def test_long_names_end_in_a_digest(spark: SparkSession) -> None:
    exact, one, other = _topics(spark, "to-{subscriber}", ["x" * 246, "x" * 247, "x" * 247 + "y"])
    assert exact == "to-" + "x" * 246
    assert len(one) == len(other) == 249
    assert one != other


def test_ids_depend_on_what_is_delivered_to_whom(spark: SparkSession) -> None:
    at = [datetime(2024, 1, day) for day in (1, 2, 3)]
    values = [
        ("m", at[0], "s", None),
        ("m", at[0], "t", None),
        ("n", at[0], "s", None),
        ("m", at[1], "s", None),
        ("m", at[0], "s", ["a", "b"]),
        ("m", at[0], "s", ["b", "a"]),
        ("other", at[2], "s", ["a", "b"]),
    ]
    schema = "message_id STRING, published_at TIMESTAMP, subscription STRING, messages ARRAY<STRING>"
    rows = spark.createDataFrame(values, schema)
    ids = [row["id"] for row in rows.select(identify(rows, "p").alias("id")).collect()]
    assert all(len(id) == 32 for id in ids)
    assert len(set(ids[:6])) == 6
    assert ids[6] == ids[4]  # of a chain, any of the newest messages is in the row
    again = [row["id"] for row in rows.select(identify(rows, "q").alias("id")).collect()]
    assert not set(ids) & set(again)
