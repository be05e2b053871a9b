"""Seconds of small micro-batches, against a stream of Spark that does nothing but copy its messages.

A batch lasts from the commit of the one before to its own commit: what Spark does between two batches is part
of it. The first batches, in which workers start and code is compiled, are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from sapwood.bench.harness import Bench, at_most, experiment, run_isolated, scale
from sapwood.bench.harness.datasets import open_dataset
from sapwood.bench.harness.experiments import INSTALL_HINT
from sapwood.bench.harness.maven_jars import KAFKA_CONNECTOR, KAFKA_SERVER, JarError
from sapwood.bench.spark.kafka_server import run_kafka
from sapwood.spark import session
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.config import parse_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.spark.spark_session import check_java
from sapwood.store import NewSubscription, SubscriptionStore
from sapwood.workload import MessageGenerator, load_dtd

_MESSAGES = 10
"""in a batch"""
_WARM_UP = 0.4
"""the share of the batches that is not counted"""
_TOPIC = "news"
_JOIN = (
    "news/news->a[@id->i][head/title->t] FOLLOWED BY{{i = j AND t = u, {minutes} min}}"
    " news/news->b[@id->j][head/title->u]"
)
Origin = Literal["files", "Kafka"]


class BatchSeconds(NamedTuple):
    """Seconds of a batch, those of the copying stream, and deliveries in a batch."""

    pipeline: float
    copying: float
    deliveries: float


@experiment("latency", "seconds of a batch of ten messages, from files and from Kafka", "pyspark")
def measure_latency(
    bench: Bench,
    batches: int = scale(40, 12, 3),
    subscriptions: int = scale(10_000, 2_000, 50),
    joins: int = scale(100, 20, 2),
) -> Iterator[str]:
    """Measure filters, and filters with joins, each from files and from Kafka."""
    check_java()
    origins: tuple[Origin, ...] = "files", "Kafka"
    cases = [(origin, count, limit) for count, limit in ((0, 0.4), (joins, 1.0)) for origin in origins]
    for number, (origin, join_count, limit) in enumerate(cases):
        if origin == "Kafka" and (missing := _find_missing()):
            bench.report.skipped.append(f"latency from Kafka: {missing}")
            continue
        kind = f"{subscriptions:,} subscriptions" + (f", {join_count:,} of them joins" if join_count else "")
        yield f"{kind}, from {origin}"
        folder = bench.folder / f"latency-{number}"
        found = yield from run_isolated(run_small_batches, folder, origin, batches, subscriptions, join_count)
        workload = f"{_MESSAGES} messages, {kind}, from {origin}, local[2]"
        details = {"copying_seconds": found.copying, "deliveries": found.deliveries}
        bench.figure("seconds of a batch", workload, found.pipeline, "s", at_most(limit), **details)
        bench.ratio(
            "a batch against one that copies messages",
            workload,
            None,
            "times",
            seconds=found.pipeline,
            copying_seconds=found.copying,
        )


def _find_missing() -> str | None:
    """Return the reason why there is no Kafka server to measure with, or None."""
    if find_spec("confluent_kafka") is None:
        return f"confluent-kafka is missing: {INSTALL_HINT}"
    try:
        KAFKA_CONNECTOR.fetch()
        KAFKA_SERVER.fetch()
    except JarError as error:
        return str(error)
    return None


def run_small_batches(
    folder: Path, origin: Origin, batches: int, subscriptions: int, joins: int
) -> Iterator[str | BatchSeconds]:
    """Run a pipeline over small batches, and a stream that copies the same messages."""
    folder.mkdir(parents=True)
    bodies = MessageGenerator(load_dtd("news"), seed=7).take(batches * _MESSAGES)
    _write_store(folder, subscriptions, joins)
    with ExitStack() as stack:
        config: dict[str, str] = {}
        if origin == "files":
            source = _write_files(folder, bodies)
        else:
            config["spark.jars"] = ",".join(map(str, KAFKA_CONNECTOR.fetch()))
            server = stack.enter_context(run_kafka(folder / "kafka"))
            source = _write_topic(server.address, bodies)
        spark = session("local[2]", log=folder / "spark.log", config=config)
        stack.callback(spark.stop)
        yield f"{batches} batches"
        seconds, deliveries = _time_pipeline(spark, folder, source)
        yield "copying"
        yield BatchSeconds(seconds, _time_copying(spark, folder, source), deliveries)


def _write_store(folder: Path, subscriptions: int, joins: int) -> None:
    queries = open_dataset().queries("predicates", subscriptions - joins)
    queries += [_JOIN.format(minutes=number + 1) for number in range(joins)]
    with SubscriptionStore(str(folder / "subscriptions.db")) as store:
        store.import_many(NewSubscription(f"s{number}", query) for number, query in enumerate(queries))


def _write_files(folder: Path, bodies: Sequence[bytes]) -> dict[str, Any]:
    inbox = folder / "inbox"
    inbox.mkdir()
    for start in range(0, len(bodies), _MESSAGES):
        lines = b"".join(body + b"\n" for body in bodies[start : start + _MESSAGES])
        (inbox / f"{start:07}.xmll").write_bytes(lines)
    return {"path": str(inbox), "files_per_batch": 1}


def _write_topic(address: str, bodies: Sequence[bytes]) -> dict[str, Any]:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": address}
    admin = AdminClient(servers)  # which has to live until the topic is there
    for created in admin.create_topics([NewTopic(_TOPIC, 1)]).values():
        created.result(60)
    producer = Producer(servers)
    for body in bodies:
        producer.produce(_TOPIC, body)
    producer.flush(60)
    return {
        "format": "kafka",
        "options": {
            "kafka.bootstrap.servers": address,
            "subscribe": _TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": _MESSAGES,
        },
    }


def _time_pipeline(spark: SparkSession, folder: Path, source: dict[str, Any]) -> tuple[float, float]:
    """Return the median seconds of a batch, and the mean of its deliveries."""
    given = parse_config(
        {
            "source": source | {"stream": "news"},
            "subscriptions": {"store": "subscriptions.db"},
            "deliveries": {"path": "deliveries"},
            "rejects": {"path": "rejects"},
            "run": {"checkpoint": "checkpoint"},
        },
        folder=folder,
    )
    commits: list[float] = []
    outcomes: list[Outcome] = []

    def note(outcome: Outcome) -> None:
        commits.append(time.perf_counter())
        outcomes.append(outcome)

    Pipeline(spark, given, note).run()
    return _median_step(commits), sum(each.deliveries for each in outcomes) / len(outcomes)


def _time_copying(spark: SparkSession, folder: Path, source: dict[str, Any]) -> float:
    """Return the median seconds of a batch that is only read and written."""
    reader = spark.readStream
    if "format" in source:
        options = {key: str(value) for key, value in source["options"].items()}
        messages = reader.format("kafka").options(**options).load().select("value")
    else:
        messages = reader.option("maxFilesPerTrigger", 1).text(source["path"])
    commits: list[float] = []

    def copy(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/copies/batch={number}")
        commits.append(time.perf_counter())

    writer = messages.writeStream.foreachBatch(copy).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{folder}/copying").start().awaitTermination()
    return _median_step(commits)


def _median_step(times: Sequence[float]) -> float:
    steps = [later - earlier for earlier, later in pairwise(times)]
    return median(steps[int(_WARM_UP * len(steps)) :])
