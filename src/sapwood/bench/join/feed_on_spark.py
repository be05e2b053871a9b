"""Items of feeds on Spark: the pipeline against a broker, and the spread of its state over partitions.

Both write a body for every delivery and never evict state. The pipeline also writes deliveries to files, and
its state to a checkpoint. Each runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from sapwood import Broker
from sapwood.bench.harness import Bench, BenchError, experiment, run_isolated, scale
from sapwood.bench.join.join_workload import STREAM
from sapwood.workload import FeedGenerator, JoinGenerator, feed_schema

_BATCHES = 3
_TIME = re.compile(rb"<timestamp>(.*?)</timestamp>")
_OPERATORS = {"values": 1, "messages": 0}  # Spark numbers them from the end


@dataclass(frozen=True, slots=True)
class FeedOutcome:
    """Seconds and deliveries of all items; on Spark also seconds of each batch, and rows of state."""

    seconds: float
    deliveries: int
    batches: list[float] = field(default_factory=list)
    rows: dict[str, list[int]] = field(default_factory=dict)
    """by operator and partition"""


@experiment("feed-spark", "items of feeds on Spark, and how their state spreads", "pyspark")
def measure_spark(
    bench: Bench, items: int = scale(4_000, 800, 0), queries: int = scale(300, 100, 0)
) -> Iterator[str]:
    """Measure a few thousand items through a pipeline at local[2], and through a broker; 0 skips it."""
    if not items:
        return
    folder = bench.folder / "feed-spark"
    folder.mkdir()
    yield f"{items:,} items for {queries:,} queries in one process"
    broker = yield from run_isolated(publish_in_process, queries, items)
    yield f"{items:,} items for {queries:,} queries on Spark"
    spark = yield from run_isolated(publish_on_spark, folder, queries, items)
    if spark.deliveries != broker.deliveries:
        raise BenchError(
            f"the pipeline makes {spark.deliveries:,} deliveries of the same items, "
            f"the broker {broker.deliveries:,}"
        )
    _report(bench, f"feed, {queries:,} queries, {items:,} items", items, broker, spark)


def _report(bench: Bench, workload: str, items: int, broker: FeedOutcome, spark: FeedOutcome) -> None:
    rate = items / broker.seconds
    measure = "items a second on Spark at local[2], against one process"
    rates = {"spark_per_second": items / spark.seconds, "process_per_second": rate}
    bench.ratio(measure, workload, **rates, deliveries=spark.deliveries)
    first, *later = spark.batches
    measure = "items a second on Spark at local[2] after the first batch, against one process"
    after_first = items * len(later) / _BATCHES / max(sum(later), 1e-9)
    rates = {"spark_per_second": after_first, "process_per_second": rate}
    bench.ratio(measure, workload, **rates, first_batch_seconds=first)
    for name, rows in spark.rows.items():
        uneven = max(rows) * len(rows) / max(sum(rows), 1)
        measure = f"rows of {name} in the fullest partition, against an even spread"
        bench.figure(measure, workload, uneven, rows=[float(count) for count in rows])


def publish_in_process(queries: int, items: int) -> Iterator[str | FeedOutcome]:
    """Publish all items to a broker."""
    with Broker() as broker:
        broker.subscribe_many(enumerate(_generate_queries(queries)))
        feed = FeedGenerator(seed=1).take(items)
        times = [datetime.fromisoformat(_TIME.findall(item)[0].decode()) for item in feed]
        deliveries, started = 0, perf_counter()
        for item, time in zip(feed, times, strict=True):
            deliveries += len(broker.publish(item, stream=STREAM, time=time))
        yield FeedOutcome(perf_counter() - started, deliveries)


def publish_on_spark(folder: Path, queries: int, items: int) -> Iterator[str | FeedOutcome]:
    """Run a pipeline at local[2] over all items."""
    from sapwood.spark import session
    from sapwood.spark.pipeline.config import parse_config
    from sapwood.spark.pipeline.pipeline import Pipeline

    _write_inputs(folder, queries, items)
    given = parse_config(
        {
            "source": {"path": "inbox", "stream": STREAM, "time": "/item/timestamp", "files_per_batch": 1},
            "subscriptions": {"file": "queries.jsonl"},
            "deliveries": {"path": "deliveries"},
            "rejects": {"path": "rejects"},
            "run": {"checkpoint": "checkpoint", "partitions": 2},
            "joins": {},
        },
        folder=folder,
    )
    spark = session("local[2]", log=folder / "spark.log")
    pipeline = Pipeline(spark, given)
    started = perf_counter()
    pipeline.run()
    seconds = perf_counter() - started
    outcomes = pipeline.outcomes()
    yield FeedOutcome(
        seconds,
        sum(outcome.deliveries for outcome in outcomes),
        [outcome.seconds for outcome in outcomes],
        {name: _count_rows(spark, folder, operator) for name, operator in _OPERATORS.items()},
    )


def _generate_queries(count: int) -> list[str]:
    return JoinGenerator(feed_schema(), seed=1, stream=STREAM).take(count)


def _write_inputs(folder: Path, queries: int, items: int) -> None:
    lines = [json.dumps({"id": str(i), "query": query}) for i, query in enumerate(_generate_queries(queries))]
    (folder / "queries.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "inbox").mkdir()
    feed = FeedGenerator(seed=1)
    for number in range(_BATCHES):
        batch = feed.take(items * (number + 1) // _BATCHES - items * number // _BATCHES)
        file = folder / "inbox" / f"{number:04}.xmll"
        file.write_bytes(b"".join(item + b"\n" for item in batch))
        os.utime(file, (number + 1, number + 1))  # Spark takes the oldest first


def _count_rows(spark: Any, folder: Path, operator: int) -> list[int]:
    """Return the rows of state of an operator by partition."""
    from sapwood.spark.joins.join_state import ENTRIES

    reader = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", ENTRIES)
    found = reader.load(str(folder / "checkpoint/spark")).groupBy("partition_id").count().collect()
    counts = {row["partition_id"]: row["count"] for row in found}
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
    return [counts.get(partition, 0) for partition in range(partitions)]
