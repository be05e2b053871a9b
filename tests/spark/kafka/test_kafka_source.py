"""Records of Kafka are messages, each of them once, however the pipeline runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.kafka.kafka_source import TOMBSTONE
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.kafka import Headers, Kafka
from tests.support.spark.kafka_stream import KafkaStream, order

pytestmark = pytest.mark.server


def _orders(first: int, count: int) -> list[bytes]:
    return [order(number) for number in range(first, first + count)]


def _run_until(spark: SparkSession, stream: KafkaStream, messages: int) -> list[Outcome]:
    """Runs a stream until it has processed so many messages."""
    seen: list[Outcome] = []

    def stop(outcome: Outcome) -> None:
        seen.append(outcome)
        if sum(each.messages for each in seen) >= messages:
            pipeline.stop()

    pipeline = Pipeline(spark, read_config(stream.settings), stop)
    pipeline.run()
    return seen


@pytest.mark.parametrize("trigger", ["batch", "available-now", "0 seconds"])
def test_a_topic_is_delivered_once_with_every_trigger(
    trigger: str, tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.topic("orders")
    kafka.produce(topic, _orders(0, 60))
    limit = "maxOffsetsPerTrigger = 25" if trigger != "batch" else ""
    stream = KafkaStream(tmp_path, kafka, topic, options=limit, trigger=trigger)
    if trigger == "0 seconds":
        outcomes = _run_until(spark, stream, 60)
    else:
        outcomes = []
        stream.run(spark, outcomes.append)
    assert sum(outcome.messages for outcome in outcomes) == 60
    assert len(outcomes) == (1 if trigger == "batch" else 3)
    stream.assert_exact(spark)


def test_the_next_run_continues_at_the_offsets(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic("orders")
    stream = KafkaStream(tmp_path, kafka, topic)
    for first in (0, 20):
        kafka.produce(topic, _orders(first, 20))
        stream.run(spark)
        stream.assert_exact(spark)
    stream.run(spark)
    stream.assert_exact(spark)


def test_keys_headers_tombstones_and_sizes(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic("orders", 1, max_message_bytes="20000000")
    headers: Headers = [("trace", b"\x00a"), ("trace", b"b"), ("none", None)]
    kafka.produce(topic, [order(1)], key=b"k\xff1", headers=headers)
    kafka.produce(topic, [None], key=b"gone")
    large = b"<order>%b</order>" % (b"x" * 3_000_000)
    kafka.produce(topic, [large, b"<order>%b</order>" % (b"y" * 6_000_000)])
    keep = 'keep = ["key", "headers", "timestampType AS kind"]'
    stream = KafkaStream(tmp_path, kafka, topic, more=keep, rest="[limits]\nbytes = 4_000_000")
    outcomes: list[Outcome] = []
    stream.run(spark, outcomes.append)
    [outcome] = outcomes
    rows = spark.read.parquet(str(tmp_path / "deliveries"))
    types = dict(rows.dtypes)
    assert (types["key"], types["headers"]) == ("binary", "array<struct<key:string,value:binary>>")
    by_id = {row["message_id"]: row for row in rows.filter("subscription = 'all'").collect()}
    assert sorted(by_id) == [f"{topic}/0/0", f"{topic}/0/2"]
    first = by_id[f"{topic}/0/0"]
    assert bytes(first["key"]) == b"k\xff1"
    assert [(h["key"], h["value"] and bytes(h["value"])) for h in first["headers"]] == headers
    assert by_id[f"{topic}/0/2"]["headers"] is None
    rejects = {row["message_id"]: row for row in stream.rejected()}
    assert sorted(rejects) == [f"{topic}/0/1", f"{topic}/0/3"]
    assert rejects[f"{topic}/0/1"]["reason"] == TOMBSTONE
    assert rejects[f"{topic}/0/1"]["key"] == "gone"
    assert "bytes" in rejects[f"{topic}/0/3"]["reason"]
    assert len(rejects[f"{topic}/0/3"]["body"]) == 4_000_001
    assert (outcome.messages, outcome.rejects) == (4, 2)
    assert outcome.reasons[TOMBSTONE] == 1


def test_tombstones_can_be_skipped(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic("orders")
    kafka.produce(topic, [order(1), None, order(2), None], key=b"k")
    stream = KafkaStream(tmp_path, kafka, topic, more='tombstones = "skip"')
    outcomes: list[Outcome] = []
    stream.run(spark, outcomes.append)
    assert (outcomes[0].messages, outcomes[0].rejects) == (2, 0)
    assert {row.message for row in stream.delivered(spark)} == {
        record.id for record in kafka.consume(topic) if record.value is not None
    }


@pytest.mark.parametrize("select", ["subscribe", "subscribePattern", "assign"])
def test_topics_are_listed_matched_or_assigned(
    select: str, tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    topics = [kafka.topic(f"{select.lower()}-orders", 1) for _ in range(2)]
    for first, topic in enumerate(topics):
        kafka.produce(topic, _orders(10 * first, 10))
    value = {
        "subscribe": ", ".join(topics),
        "subscribePattern": f"{select.lower()}-orders-.*",
        "assign": json.dumps({topic: [0] for topic in topics}),
    }[select]
    options = f"{select} = '{value}'\nstartingOffsets = 'earliest'"
    table = f'[source]\nformat = "kafka"\n[source.options]\nSERVERS\n{options}\n'
    stream = KafkaStream(tmp_path, kafka, table)
    stream.run(spark)
    stream.assert_exact(spark, topics)


def test_partitions_that_are_added_while_it_runs(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic("orders", 1)
    kafka.produce(topic, _orders(0, 10))
    stream = KafkaStream(
        tmp_path, kafka, topic, options='"kafka.metadata.max.age.ms" = 200', trigger="200 milliseconds"
    )
    seen: list[Outcome] = []

    def add(outcome: Outcome) -> None:
        seen.append(outcome)
        if len(seen) == 1:
            kafka.add_partitions(topic, 3)
            kafka.produce(topic, _orders(10, 30))
        if sum(each.messages for each in seen) >= 40:
            pipeline.stop()

    pipeline = Pipeline(spark, read_config(stream.settings), add)
    pipeline.run()
    assert {record.partition for record in kafka.consume(topic)} == {0, 1, 2}
    stream.assert_exact(spark)
