"""Memory of a stream over its batches, while subscriptions change before each batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import isnan, nan
from pathlib import Path
from statistics import mean
from typing import Any

from pyspark.sql import SparkSession

from sapwood.bench.harness import Bench, ChartAxis, Role, at_most, experiment, run_isolated, scale
from sapwood.bench.harness.datasets import open_dataset
from sapwood.bench.harness.memory_usage import largest_child_megabytes, resident_megabytes
from sapwood.spark import session
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.config import parse_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.spark.spark_session import check_java
from sapwood.store import NewSubscription, SubscriptionStore
from sapwood.workload import MessageGenerator, load_dtd

_MESSAGES = 50
"""in a batch"""
_COLLECTED = 10
"""batches from one collection of the JVM's heap to the next"""
_CURVES = {
    "driver": ("driver, Python", Role.SAPWOOD),
    "worker": ("largest worker, Python", Role.OTHER),
    "heap": ("driver, JVM heap after collection", Role.BASELINE),
}
_GROWTH = 1.1
"""the most memory of the last quarter of the batches against the second, in times"""


@experiment("memory", "memory of a stream over its batches", "psutil")
def measure_memory(
    bench: Bench,
    batches: int = scale(200, 20, 4),
    subscriptions: int = scale(10_000, 500, 50),
    changes: int = scale(10, 5, 2),
) -> Iterator[str]:
    """Measure the memory of driver, workers and JVM after each batch, with `changes` before it."""
    check_java()
    folder = bench.folder / "stream"
    yield f"{batches:,} batches"
    (folder / "inbox").mkdir(parents=True)
    generator = MessageGenerator(load_dtd("news"), seed=7)
    for number in range(batches):
        lines = b"".join(body + b"\n" for body in generator.take(_MESSAGES))
        (folder / f"inbox/{number:05}.xmll").write_bytes(lines)
    queries = open_dataset().queries("predicates", subscriptions)
    with SubscriptionStore(str(folder / "subscriptions.db")) as store:
        store.import_many(NewSubscription(f"s{number}", query) for number, query in enumerate(queries))
    found = yield from run_isolated(run_changing_stream, folder, changes)
    title = "Memory over the batches of a stream, subscriptions changing before each"
    chart = bench.chart("memory", title, "batch", ChartAxis("megabytes", " MB"))
    for key, (label, role) in _CURVES.items():
        curve = chart.curve(label, role)
        for number in range(_COLLECTED - 1, len(found), _COLLECTED):  # batches where the heap is known
            curve.add(number, found[number][key])
        points = [batch[key] for batch in found if not isnan(batch[key])]
        early, late = points[len(points) // 4 : len(points) // 2], points[-len(points) // 4 :]
        if early and late:
            workload = f"{len(found)} batches: last quarter against second"
            ratio, megabytes = mean(late) / mean(early), mean(late)
            bench.figure(f"memory, {label}", workload, ratio, "times", at_most(_GROWTH), megabytes=megabytes)


def run_changing_stream(folder: Path, changes: int) -> Iterator[str | list[dict[str, float]]]:
    """Run a pipeline over small batches, change subscriptions after each, and measure megabytes."""
    spark = session("local[2]", log=folder / "spark.log", config={"spark.driver.memory": "1g"})
    given = parse_config(
        {
            "source": {"path": "inbox", "files_per_batch": 1},
            "subscriptions": {"store": "subscriptions.db"},
            "deliveries": {"path": "deliveries", "shape": "messages"},
            "rejects": {"path": "rejects"},
            "run": {"checkpoint": "checkpoint", "partitions": 2},
        },
        folder=folder,
    )
    memory: list[dict[str, float]] = []
    with SubscriptionStore(str(folder / "subscriptions.db")) as store:
        oldest_first = deque(store.subscriptions())

        def change_subscriptions(outcome: Outcome) -> None:
            for i in range(changes):
                oldest = oldest_first.popleft()
                store.remove(oldest.id)
                store.add(f"batch-{outcome.batch}-{i}", oldest.query)
            memory.append(_measure_megabytes(spark, outcome.batch % _COLLECTED == _COLLECTED - 1))

        Pipeline(spark, given, change_subscriptions).run()
    yield memory


def _measure_megabytes(spark: SparkSession, collect: bool) -> dict[str, float]:
    """Return megabytes of the driver's Python, its JVM's heap if collected, and the largest worker."""
    heap = nan
    if collect:
        jvm: Any = spark._jvm
        jvm.System.gc()
        runtime = jvm.Runtime.getRuntime()
        heap = (runtime.totalMemory() - runtime.freeMemory()) / 1e6
    return {"driver": resident_megabytes(), "heap": heap, "worker": largest_child_megabytes("spark_daemon")}
