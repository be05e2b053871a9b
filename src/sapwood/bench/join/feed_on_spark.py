"""Items of feeds on Spark: the pipeline against a broker, the spread of its state, and small batches.

Both write a body for every delivery and never evict state. The pipeline also writes deliveries to files, and
messages to the log in its checkpoint. Each runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

from sapwood import Broker
from sapwood.bench.harness import Bench, BenchError, at_least, at_most, experiment, run_isolated, scale
from sapwood.bench.join.join_workload import STREAM
from sapwood.workload import FeedGenerator, JoinGenerator, feed_schema

_BATCHES = 3
_TIME = re.compile(rb"<timestamp>(.*?)</timestamp>")
RATE = 0.7
"""the least rate at local[2] after the first batch, against one process"""
SPREAD = 1.2
"""the most messages in a bucket of the state, against an even spread"""
LATENCY = 1.0
"""the most seconds of a batch of a few messages"""
_SMALL, _SMALL_BATCHES, _FIRST_SMALL = 10, 12, 4
"""messages of a small batch, such batches, and those that are not counted"""


@dataclass(frozen=True, slots=True)
class FeedOutcome:
    """Seconds and deliveries of all items, seconds of each batch, and on Spark messages by bucket."""

    seconds: float
    deliveries: int
    batches: list[float]
    buckets: list[int] = field(default_factory=list)


@experiment("feed-spark", "items of feeds on Spark, how their state spreads, and small batches", "pyspark")
def measure_spark(
    bench: Bench,
    items: int = scale(4_000, 800, 0),
    queries: int = scale(300, 100, 0),
    subscriptions: int = scale(10_000, 1_000, 0),
) -> Iterator[str]:
    """Measure a few thousand items through a pipeline at local[2], and through a broker, then batches of ten
    items, with as many subscriptions of which a tenth are joins; 0 skips it."""
    if not items:
        return
    folder = bench.folder / "feed-spark"
    folder.mkdir()
    yield f"{items:,} items for {queries:,} queries in one process"
    broker = yield from run_isolated(publish_in_process, queries, _split(items))
    yield f"{items:,} items for {queries:,} queries on Spark"
    spark = yield from run_isolated(publish_on_spark, folder, generate_queries(queries), _split(items))
    if spark.deliveries != broker.deliveries:
        raise BenchError(
            f"the pipeline makes {spark.deliveries:,} deliveries of the same items, "
            f"the broker {broker.deliveries:,}"
        )
    _report(bench, f"feed, {queries:,} queries, {items:,} items", items, broker, spark)
    folder = bench.folder / "feed-spark-small"
    folder.mkdir()
    yield f"batches of {_SMALL} items for {subscriptions:,} subscriptions on Spark"
    mixed = generate_queries(subscriptions // 10) + _generate_filters(subscriptions - subscriptions // 10)
    small = yield from run_isolated(publish_on_spark, folder, mixed, [_SMALL] * _SMALL_BATCHES)
    counted = small.batches[_FIRST_SMALL:]
    workload = f"feed, {subscriptions:,} subscriptions, a tenth of them joins, {_SMALL} items a batch"
    measure = "seconds of a small batch at local[2]"
    bench.figure(measure, workload, median(counted), "s", at_most(LATENCY), most=max(counted))


def _report(bench: Bench, workload: str, items: int, broker: FeedOutcome, spark: FeedOutcome) -> None:
    measure = "items a second on Spark at local[2], against one process"
    rates = {"spark_per_second": items / spark.seconds, "process_per_second": items / broker.seconds}
    bench.ratio(measure, workload, **rates, deliveries=spark.deliveries)
    # the same items on both sides: later ones are joined with more, and take longer
    later = items - _split(items)[0]
    measure = "items a second on Spark at local[2] after the first batch, against one process"
    rates = {
        "spark_per_second": later / max(sum(spark.batches[1:]), 1e-9),
        "process_per_second": later / max(sum(broker.batches[1:]), 1e-9),
    }
    bench.ratio(measure, workload, at_least(RATE), **rates, first_batch_seconds=spark.batches[0])
    uneven = max(spark.buckets) * len(spark.buckets) / max(sum(spark.buckets), 1)
    measure = "messages in the fullest bucket of the state, against an even spread"
    counts = [float(count) for count in spark.buckets]
    bench.figure(measure, workload, uneven, "times", at_most(SPREAD), messages=counts)


def publish_in_process(queries: int, sizes: list[int]) -> Iterator[str | FeedOutcome]:
    """Publish items to a broker, in as many parts as there are batches on Spark."""
    with Broker() as broker:
        broker.subscribe_many(enumerate(generate_queries(queries)))
        generator = FeedGenerator(seed=1)
        deliveries = 0
        seconds = []
        for size in sizes:
            feed = generator.take(size)
            times = [datetime.fromisoformat(_TIME.findall(item)[0].decode()) for item in feed]
            started = perf_counter()
            for item, time in zip(feed, times, strict=True):
                deliveries += len(broker.publish(item, stream=STREAM, time=time))
            seconds.append(perf_counter() - started)
        yield FeedOutcome(sum(seconds), deliveries, seconds)


def publish_on_spark(folder: Path, queries: list[str], sizes: list[int]) -> Iterator[str | FeedOutcome]:
    """Run a pipeline at local[2] over batches of items."""
    from sapwood.spark import session
    from sapwood.spark.pipeline.config import parse_config
    from sapwood.spark.pipeline.pipeline import Pipeline

    _write_inputs(folder, queries, sizes)
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
    ends = [perf_counter()]
    pipeline = Pipeline(spark, given, lambda outcome: ends.append(perf_counter()))
    pipeline.run()
    yield FeedOutcome(
        ends[-1] - ends[0],
        sum(outcome.deliveries for outcome in pipeline.outcomes()),
        [end - start for start, end in pairwise(ends)],
        [messages for _, (messages, _) in sorted(pipeline.bucket_sizes.items())],
    )


def _split(items: int) -> list[int]:
    return [items * (number + 1) // _BATCHES - items * number // _BATCHES for number in range(_BATCHES)]


def generate_queries(count: int) -> list[str]:
    """Return queries that join the items of feeds."""
    return JoinGenerator(feed_schema(), seed=1, stream=STREAM).take(count)


def _generate_filters(count: int) -> list[str]:
    """Return filters of items, each for a channel of its own, one of which an item may be from."""
    return [f"/item[channel_url='http://feeds.example/{number}/']/title" for number in range(count)]


def _write_inputs(folder: Path, queries: list[str], sizes: list[int]) -> None:
    lines = [json.dumps({"id": str(number), "query": query}) for number, query in enumerate(queries)]
    (folder / "queries.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "inbox").mkdir()
    feed = FeedGenerator(seed=1)
    for number, size in enumerate(sizes):
        file = folder / "inbox" / f"{number:04}.xmll"
        file.write_bytes(b"".join(item + b"\n" for item in feed.take(size)))
        os.utime(file, (number + 1, number + 1))  # Spark takes the oldest first
