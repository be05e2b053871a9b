"""Latency from Kafka to Kafka with the real-time trigger, against micro-batches that follow one another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sapwood.bench.harness import Bench, at_most, experiment, run_isolated, scale
from sapwood.bench.harness.datasets import generate_messages, generate_queries
from sapwood.bench.harness.experiments import BenchError
from sapwood.bench.harness.maven_jars import KAFKA_CONNECTOR, JarError
from sapwood.bench.spark.kafka_server import run_kafka
from sapwood.spark.spark_session import check_java
from sapwood.store import NewSubscription, SubscriptionStore
from sapwood.workload import load_dtd

if TYPE_CHECKING:
    from confluent_kafka import Producer

_PARTITIONS = 2
_PREDICATES = 4
"""of a query, so that some subscriptions in 10,000 match a message, not hundreds"""
_DISTINCT_MESSAGES = 500
_START_SECONDS = 300.0
_DRAIN_SECONDS = 30.0
_IN, _OUT, _REJECTS = "messages", "deliveries", "rejects"
REAL_TIME, MICRO_BATCHES = "real-time", "0 s"


class Latencies(NamedTuple):
    """Milliseconds from produce() to consume(), of each delivery, and the number of messages."""

    milliseconds: list[float]
    messages: int
    lost: int
    """messages that were to be delivered, and were not"""

    def within(self, percent: float) -> float:
        return float(np.percentile(self.milliseconds, percent))


@experiment("real-time", "latency from Kafka to Kafka with the real-time trigger", "confluent_kafka")
def measure_real_time(
    bench: Bench,
    subscriptions: int = scale(10_000, 2_000, 1_000),  # of fewer, hardly one matches a message
    rate: int = scale(100, 100, 20),
    seconds: int = scale(
        330, 30, 2
    ),  # at full scale longer than a batch, so that the pause after one is in it
    warm_up: int = scale(20, 10, 1),
    compared: int = scale(60, 20, 0),
) -> Iterator[str]:
    """Measure messages that come one by one, each with a few deliveries."""
    check_java()
    try:
        KAFKA_CONNECTOR.fetch()
    except JarError as error:
        bench.report.skipped.append(f"real-time: {error}")
        return
    yield "writing subscriptions"
    folder = bench.folder / "real-time"
    folder.mkdir()
    queries = generate_queries(load_dtd("news"), subscriptions, predicates=_PREDICATES)
    with SubscriptionStore(str(folder / "subscriptions.db")) as store:
        store.import_many(NewSubscription(f"s{number}", query) for number, query in enumerate(queries))
    given = rate, seconds, warm_up
    found = yield from run_isolated(measure_latencies, folder, REAL_TIME, *given)
    workload = (
        f"{len(queries):,} subscriptions, {rate} messages a second for {seconds} s, local[{_PARTITIONS}]"
    )
    details = {
        "deliveries_per_message": len(found.milliseconds) / found.messages,
        "longest_milliseconds": max(found.milliseconds),
        "messages_lost": found.lost,
    }
    bench.figure("Kafka to Kafka, median", workload, found.within(50), "ms", at_most(50), **details)
    bench.figure("Kafka to Kafka, 99 %", workload, found.within(99), "ms", at_most(300), **details)
    if compared:
        batches = yield from run_isolated(measure_latencies, folder, MICRO_BATCHES, rate, compared, warm_up)
        bench.ratio(
            "shorter than with micro-batches, median",
            f"{len(queries):,} subscriptions, {rate} messages a second",
            micro_batch_milliseconds=batches.within(50),
            real_time_milliseconds=found.within(50),
        )


def measure_latencies(
    folder: Path, trigger: str, rate: int, seconds: int, warm_up: int
) -> Iterator[str | Latencies]:
    """Run a Kafka server and a pipeline, and measure the time from produce() to consume() in this process."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    own = folder / trigger.replace(" ", "-")
    yield f"starting Kafka and a pipeline with the trigger {trigger!r}"
    with run_kafka(own / "kafka") as server:
        admin = AdminClient({"bootstrap.servers": server.address})
        for done in admin.create_topics(
            [NewTopic(name, _PARTITIONS) for name in (_IN, _OUT, _REJECTS)]
        ).values():
            done.result()
        pipeline = _start_pipeline(own, folder / "subscriptions.db", server.address, trigger)
        try:
            with _Traffic(server.address, pipeline) as traffic:
                traffic.start()
                yield f"{trigger}: warming up"
                traffic.produce(rate, warm_up)
                yield f"{trigger}: {rate} messages a second for {seconds} s"
                yield traffic.measure(rate, seconds)
        finally:
            pipeline.terminate()
            pipeline.wait()


def _start_pipeline(folder: Path, store: Path, address: str, trigger: str) -> subprocess.Popen[bytes]:
    jars = ",".join(map(str, KAFKA_CONNECTOR.fetch()))
    options = f'options = {{ "kafka.bootstrap.servers" = "{address}" }}'
    file = folder / "pipeline.toml"
    file.write_text(f"""
[source]
format = "kafka"
id = "CAST(key AS STRING)"
[source.options]
"kafka.bootstrap.servers" = "{address}"
subscribe = "{_IN}"
startingOffsets = "earliest"
[subscriptions]
store = "{store}"
[deliveries]
format = "kafka"
topic = "{_OUT}"
{options}
[rejects]
format = "kafka"
topic = "{_REJECTS}"
{options}
[run]
checkpoint = "checkpoint"
trigger = "{trigger}"
master = "local[{_PARTITIONS}]"
[spark]
"spark.jars" = "{jars}"
""")
    with (folder / "run.log").open("wb") as log:
        command = [sys.executable, "-m", "sapwood.cli", "run", str(file), "--json"]
        return subprocess.Popen(command, stdout=log, stderr=log)


class _Traffic:
    """A producer of messages, and a consumer of their deliveries in a thread of its own."""

    def __init__(self, address: str, pipeline: subprocess.Popen[bytes]) -> None:
        from confluent_kafka import Producer

        self._address = address
        self._pipeline = pipeline
        self._messages = generate_messages(load_dtd("news"), _DISTINCT_MESSAGES)
        self._producer: Producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
        self._sent: list[float] = []
        self._received: list[tuple[int, float]] = []
        self._stop = Event()
        self._thread = Thread(target=self._consume, daemon=True)

    def __enter__(self) -> _Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _consume(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": self._address, "group.id": "bench", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([_OUT])
        while not self._stop.is_set():
            record = consumer.poll(0.1)
            if record is None or record.error():
                continue
            now = monotonic()
            id = dict(record.headers() or [])["sapwood.message_id"]
            assert isinstance(id, bytes)
            self._received.append((int(id), now))
        consumer.close()

    def start(self) -> None:
        """Return when the first delivery is there."""
        limit = monotonic() + _START_SECONDS
        while not self._received:
            if self._pipeline.poll() is not None or monotonic() > limit:
                raise BenchError("the pipeline delivers nothing; its output is in run.log")
            self._send()
            sleep(1)

    def produce(self, rate: int, seconds: float) -> None:
        """Produce messages at a steady rate."""
        begun = monotonic()
        for number in range(round(rate * seconds)):
            delay = begun + number / rate - monotonic()
            if delay > 0:
                sleep(delay)
            self._send()
        self._producer.flush()

    def _send(self) -> None:
        number = len(self._sent)
        self._sent.append(monotonic())
        self._producer.produce(_IN, self._messages[number % len(self._messages)], str(number).encode())
        self._producer.poll(0)

    def measure(self, rate: int, seconds: float) -> Latencies:
        """Produce messages, and return the latencies of their deliveries."""
        first = len(self._sent)
        self.produce(rate, seconds)
        self._await_silence()
        known = {number % len(self._messages) for number, _ in self._received}
        latencies = [
            (at - self._sent[number]) * 1000 for number, at in self._received.copy() if number >= first
        ]
        delivered = {number for number, _ in self._received}
        expected = {n for n in range(first, len(self._sent)) if n % len(self._messages) in known}
        if not latencies:
            raise BenchError("no message was delivered; the output of the pipeline is in run.log")
        return Latencies(latencies, len(self._sent) - first, len(expected - delivered))

    def _await_silence(self) -> None:
        """Return when no more deliveries come."""
        limit = monotonic() + _DRAIN_SECONDS
        count = -1
        while count != len(self._received) and monotonic() < limit:
            count = len(self._received)
            sleep(3)
