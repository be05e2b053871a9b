"""Items of feeds on Spark: the pipeline against one process, and how its state spreads over partitions."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sapwood.bench.join_setting import JoinSetting
from sapwood.bench.join_spark_run import measure
from sapwood.bench.report import Listing
from sapwood.bench.setting import Experiment
from sapwood.bench.sources import BenchError

_BATCHES = 3


def feed_spark(setting: JoinSetting) -> Iterator[str]:
    """A few thousand items through a pipeline at local[2], and through a broker."""
    items, queries = setting.scale.feed_spark_items, setting.scale.feed_spark_queries
    if not items:
        return
    if find_spec("pyspark") is None:
        yield "left out: Spark is missing, in a clone of Sapwood, pip install '.[spark]'"
        return
    with TemporaryDirectory(prefix="sapwood-bench-") as folder:
        yield f"{items:,} items for {queries:,} queries in one process"
        alone = measure("in_process", Path(folder), queries, items, _BATCHES)
        yield f"{items:,} items for {queries:,} queries on Spark"
        spark = measure("on_spark", Path(folder), queries, items, _BATCHES)
    if spark["deliveries"] != alone["deliveries"]:
        found = f"{spark['deliveries']:,} deliveries, one process to {alone['deliveries']:,}"
        raise BenchError(f"on Spark the same items come to {found}")
    _report(setting, f"feed, {queries:,} queries, {items:,} items", items, alone, spark)


def _report(
    setting: JoinSetting, workload: str, items: int, alone: dict[str, Any], spark: dict[str, Any]
) -> None:
    rate = items / alone["seconds"]
    first, *later = spark["batches"]
    after_first = items * len(later) / _BATCHES / max(sum(later), 1e-9)
    setting.figure(
        "items a second on Spark at local[2], against one process",
        workload,
        items / spark["seconds"] / rate,
        "times",
        spark_per_second=round(items / spark["seconds"]),
        process_per_second=round(rate),
        deliveries=spark["deliveries"],
    )
    setting.figure(
        "items a second on Spark at local[2] after the first batch, against one process",
        workload,
        after_first / rate,
        "times",
        spark_per_second=round(after_first),
        first_batch_seconds=round(first, 1),
    )
    spread = setting.listing(
        Listing(
            "feed-spark-state",
            "Rows that joins keep on Spark, by partition",
            ("rows", "fewest in a partition", "most in a partition", "most against even"),
            note=workload,
        )
    )
    for name, rows in spark["rows"].items():
        spread.add(name, sum(rows), min(rows), max(rows), max(rows) * len(rows) / max(sum(rows), 1))
        setting.figure(
            f"rows of {name} in the fullest partition, against an even spread",
            workload,
            max(rows) * len(rows) / max(sum(rows), 1),
            "times",
            rows=[float(count) for count in rows],
        )


EXPERIMENTS = (Experiment("feed-spark", "items of feeds on Spark, and how their state spreads", feed_spark),)
