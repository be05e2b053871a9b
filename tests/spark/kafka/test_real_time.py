"""With the real-time trigger, deliveries follow messages at once, and a crash loses none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from pyspark.sql import SparkSession

from sapwood.config_file import ConfigError
from sapwood.spark.kafka.kafka_failures import KafkaError, is_of_producer
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.factory import open_subscriptions
from sapwood.spark.pipeline.real_time import RealTimePipeline
from tests.support.kafka import Kafka, Record
from tests.support.spark.connector_jars import connector_settings
from tests.support.spark.kafka_stream import KafkaStream, order, read_deliveries

pytestmark = [pytest.mark.server, pytest.mark.slow]
_SECONDS = 240.0
"""A session starts within this time, on a machine that has much else to do."""


@contextmanager
def _running(stream: KafkaStream) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the command in a process of its own, which is killed in the end."""
    log = stream.folder / "run.log"
    with log.open("ab") as output:
        command = [sys.executable, "-m", "sapwood.cli", "run", str(stream.settings), "--json"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class RealTimeStream(KafkaStream):
    """A pipeline with the real-time trigger from a topic of two partitions."""

    def __init__(self, folder: Path, kafka: Kafka, master: str = "local[2]") -> None:
        topic, self.to, self.dead = (kafka.topic(name) for name in ("orders", "deliveries", "dead"))
        sink = 'format = "kafka"\nOPTIONS\ntopic = "{}"'
        jars = connector_settings()["spark.jars"]
        super().__init__(
            folder,
            kafka,
            topic,
            more='keep = ["key", "headers"]',
            trigger="real-time",
            deliveries=sink.format(self.to),
            rejects=sink.format(self.dead),
            rest=f'master = "{master}"\n[spark]\n"spark.jars" = "{jars}"',
        )

    def await_delivered(self, process: subprocess.Popen[bytes], done: Callable[[list[Record]], bool]) -> None:
        """Waits for the records of deliveries."""
        limit = monotonic() + _SECONDS
        while not done(self.kafka.consume(self.to)):
            assert process.poll() is None, (self.folder / "run.log").read_text()
            assert monotonic() < limit, (self.folder / "run.log").read_text()
            sleep(0.2)

    def is_complete(self, delivered: list[Record]) -> bool:
        deliveries, rejects = self.expected(self.kafka.consume(self.topic), bodies=True)
        dead = {record.header("message_id") for record in self.kafka.consume(self.dead)}
        return read_deliveries(delivered) == deliveries and dead == set(rejects)


@pytest.mark.long
def test_deliveries_are_those_of_a_broker_across_a_crash_and_a_change(
    tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    stream = RealTimeStream(tmp_path / "pipeline", kafka)
    kafka.produce(stream.topic, [order(n) for n in range(30)], key=b"k", headers=[("trace", b"t")])
    with _running(stream) as process:
        stream.await_delivered(process, stream.is_complete)
        # a single message, which no other follows
        kafka.produce(stream.topic, [order(31)])
        stream.await_delivered(process, stream.is_complete)
    first = kafka.consume(stream.to)
    assert {record.header("version") for record in first} == {"1"}
    [trace] = {record.headers[0] for record in first if record.header("message_id") != f"{stream.topic}/0/15"}
    assert trace == ("trace", b"t")

    kafka.produce(stream.topic, [order(n) for n in range(40, 50)])  # while it is down
    with _running(stream) as process:
        # batches of five minutes: what the first run has not committed is repeated, with the same ids
        stream.await_delivered(process, stream.is_complete)
        assert len(kafka.consume(stream.to)) > len(first)

        stream.subscribe({"late": "/order[@late]"}, {"late": "Lee"})
        begun = monotonic()
        for number in range(50):
            kafka.produce(stream.topic, [b'<order late="%d"/>' % number])
            sleep(0.2)
            if late := [each for each in kafka.consume(stream.to) if each.key == b"late"]:
                break
        assert late and monotonic() - begun < 10
        assert (late[0].header("version"), late[0].header("subscriber")) == ("2", "Lee")
        process.terminate()
        assert process.wait(120) == 0
    assert "repeats what was delivered since then" in (stream.folder / "run.log").read_text()
    # it has started without joins: one that was added since then is left out, as of the next run, too
    stream.subscribe({"joined": "S/a->x JOIN{x = y, 5 s} S/b->y"}, {})
    config = read_config(stream.settings)
    subscriptions, joins = open_subscriptions(config, BatchLog(spark, f"{config.run.checkpoint}/sapwood"))
    subscriptions.close()
    assert joins is None


def test_a_session_that_does_not_fit_is_refused(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    stream = RealTimeStream(tmp_path / "pipeline", kafka)
    with pytest.raises(ConfigError, match=r"needs a session with the setting spark\.python\.udf\.pipelined"):
        RealTimePipeline(spark, read_config(stream.settings)).run()


def test_an_error_at_the_start_is_reported(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    stream = RealTimeStream(tmp_path / "pipeline", kafka)
    text = stream.settings.read_text()
    stream.settings.write_text(text.replace("[deliveries]", '[deliveries]\nkey = "nothing"'))
    pipeline = RealTimePipeline(spark, read_config(stream.settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sapwood.spark.pipeline.real_time.SESSION_SETTINGS", {})
        with pytest.raises(KafkaError, match=r"deliveries\.key: 'nothing' cannot be evaluated"):
            pipeline.run()


@pytest.mark.parametrize(
    ("trace", "producer"),
    [
        ("TimeoutException: Topic deliveries-bob not present in metadata after 60000 ms.", True),
        ("TopicAuthorizationException: Not authorized\n at org.apache.kafka.clients.producer.KafkaP", True),
        ("TimeoutException: Timed out waiting for a node assignment. Call: listTopics", False),
    ],
)
def test_failures_of_writing_are_told_from_those_of_reading(trace: str, producer: bool) -> None:
    assert is_of_producer(Exception(f"org.apache.kafka.common.errors.{trace}")) == producer


def test_fewer_cores_than_partitions_are_refused(tmp_path: Path, spark: SparkSession, kafka: Kafka) -> None:
    stream = RealTimeStream(tmp_path / "pipeline", kafka)
    kafka.add_partitions(stream.topic, 3)
    pipeline = RealTimePipeline(spark, read_config(stream.settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sapwood.spark.pipeline.real_time.SESSION_SETTINGS", {})
        with pytest.raises(
            ConfigError, match=r'there are 3 partitions, and local\[2\] has 2 cores. Set .*"local'
        ):
            pipeline.run()
