"""What Kafka lacks, or has lost, stops a pipeline with an error that says so; a restart of it does not."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.kafka.kafka_failures import KafkaError
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.kafka import Kafka
from tests.support.spark.kafka_stream import KafkaStream, order, read_deliveries

pytestmark = pytest.mark.server


def _recreate(kafka: Kafka, topic: str, values: list[bytes]) -> None:
    """Deletes a topic, and creates it again with other records."""
    kafka.delete(topic)
    for _ in range(100):
        if topic not in kafka.topics(topic):
            break
        time.sleep(0.1)
    kafka.create(topic)
    kafka.produce(topic, values)


@pytest.mark.parametrize(
    "records",
    [pytest.param(4, id="fewer records", marks=pytest.mark.long), pytest.param(40, id="more records")],
)
def test_a_topic_that_was_created_again(
    records: int, tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.topic("orders")
    kafka.produce(topic, [order(number) for number in range(10)])
    stream = KafkaStream(tmp_path, kafka, topic)
    stream.run(spark)
    before = stream.delivered(spark)
    _recreate(kafka, topic, [order(100 + number) for number in range(records)])
    for _ in range(2):  # it does not get used to it
        with pytest.raises(KafkaError, match=f"the topic {topic} is not the one .* another run.checkpoint"):
            stream.run(spark)
        assert stream.delivered(spark) == before
    anew = KafkaStream(tmp_path / "anew", kafka, topic)
    anew.run(spark)
    anew.assert_exact(spark)


def test_a_topic_that_is_created_again_while_it_runs(
    tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.topic("orders")
    kafka.produce(topic, [order(number) for number in range(10)])
    stream = KafkaStream(tmp_path, kafka, topic, trigger="100 milliseconds")
    first = kafka.consume(topic)

    def recreate(outcome: Outcome) -> None:
        assert outcome.batch == 0  # no other is processed
        _recreate(kafka, topic, [order(100 + number) for number in range(40)])

    with pytest.raises(KafkaError, match=topic):
        stream.run(spark, recreate)
    assert stream.delivered(spark) == stream.expected(first, bodies=False)[0]


def test_records_that_retention_has_removed(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic("orders")
    kafka.produce(topic, [order(number) for number in range(10)])
    stream = KafkaStream(tmp_path, kafka, topic)
    stream.run(spark)
    first = kafka.consume(topic)
    kafka.produce(topic, [order(number) for number in range(10, 20)])
    kafka.forget(topic)
    kafka.produce(topic, [order(number) for number in range(20, 30)])
    with pytest.raises(KafkaError, match=r"no longer has records .*\.failOnDataLoss = false"):
        stream.run(spark)
    assert stream.delivered(spark) == stream.expected(first, bodies=False)[0]
    settings = stream.settings.read_text()
    stream.settings.write_text(settings.replace("subscribe =", "failOnDataLoss = false\nsubscribe ="))
    stream.run(spark)
    assert stream.delivered(spark) == stream.expected(first + kafka.consume(topic), bodies=False)[0]


def test_a_topic_that_does_not_exist(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    with pytest.raises(KafkaError, match="source: the topic nowhere does not exist"):
        KafkaStream(tmp_path, kafka, "nowhere").run(spark)


def test_a_pattern_that_is_none(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    source = '[source]\nformat = "kafka"\n[source.options]\nSERVERS\nsubscribePattern = "orders-("\n'
    with pytest.raises(
        KafkaError, match=r"subscribePattern: 'orders-\(' is not a regular expression of Java"
    ):
        KafkaStream(tmp_path, kafka, source).run(spark)


@pytest.mark.long
def test_a_server_that_is_restarted(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    topic, to = kafka.topic("orders"), kafka.topic("deliveries")
    kafka.produce(topic, [order(number) for number in range(20)])
    stream = KafkaStream(
        tmp_path,
        kafka,
        topic,
        trigger="100 milliseconds",
        deliveries=f'format = "kafka"\nOPTIONS\ntopic = "{to}"',
    )
    seen: list[Outcome] = []

    def restart(outcome: Outcome) -> None:
        seen.append(outcome)
        if len(seen) == 1:
            kafka.server.kill()
            kafka.server.start()
            kafka.produce(topic, [order(number) for number in range(20, 40)])
        if sum(each.messages for each in seen) >= 40:
            pipeline.stop()

    pipeline = Pipeline(spark, read_config(stream.settings), restart)
    pipeline.run()
    expected, rejects = stream.expected(kafka.consume(topic), bodies=True)
    assert read_deliveries(kafka.consume(to)) == expected
    assert Counter(row["message_id"] for row in stream.rejected()) == rejects
