"""Feed items, joined by a pipeline on Spark or by a broker, each in a process of its own.

    python -m sapwood.bench.join_spark_run < SPECIFICATION

The specification and the result are JSON objects: see `measure`. Both do the same: every delivery has a body,
and nothing is forgotten. The pipeline also writes them to files, and what it keeps to its checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from sapwood import Broker
from sapwood.bench.join_contenders import STREAM
from sapwood.workload import FeedGenerator, JoinGenerator, feed_schema

_TIME = re.compile(rb"<timestamp>(.*?)</timestamp>")
_OPERATORS = {"values": 1, "messages": 0}  # Spark numbers them from the end


def measure(kind: str, folder: Path, queries: int, items: int, batches: int) -> dict[str, Any]:
    """Runs one of the functions below in a fresh process; what Spark prints goes to a file."""
    given = {"kind": kind, "folder": str(folder), "queries": queries, "items": items, "batches": batches}
    run = subprocess.run(
        [sys.executable, "-m", "sapwood.bench.join_spark_run"],
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def in_process(folder: Path, queries: int, items: int, batches: int) -> dict[str, Any]:
    """The broker alone: seconds for all items, and deliveries."""
    with Broker() as broker:
        broker.subscribe_many(enumerate(_queries(queries)))
        feed = FeedGenerator(seed=1).take(items)
        times = [datetime.fromisoformat(_TIME.findall(item)[0].decode()) for item in feed]
        deliveries, started = 0, perf_counter()
        for item, time in zip(feed, times, strict=True):
            deliveries += len(broker.publish(item, stream=STREAM, time=time))
        return {"seconds": perf_counter() - started, "deliveries": deliveries}


def on_spark(folder: Path, queries: int, items: int, batches: int) -> dict[str, Any]:
    """A pipeline at local[2]: seconds of each batch, deliveries, and rows kept in each partition."""
    from sapwood.spark import session
    from sapwood.spark.pipeline.config import parse_config
    from sapwood.spark.pipeline.pipeline import Pipeline

    _write(folder, queries, items, batches)
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
    return {
        "seconds": seconds,
        "batches": [outcome.seconds for outcome in outcomes],
        "deliveries": sum(outcome.deliveries for outcome in outcomes),
        "rows": {name: _rows(spark, folder, number) for name, number in _OPERATORS.items()},
    }


def _queries(count: int) -> list[str]:
    return JoinGenerator(feed_schema(), seed=1, stream=STREAM).take(count)


def _write(folder: Path, queries: int, items: int, batches: int) -> None:
    lines = [json.dumps({"id": str(i), "query": query}) for i, query in enumerate(_queries(queries))]
    (folder / "queries.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "inbox").mkdir()
    feed = FeedGenerator(seed=1)
    for number in range(batches):
        some = feed.take(items * (number + 1) // batches - items * number // batches)
        file = folder / "inbox" / f"{number:04}.xmll"
        file.write_bytes(b"".join(item + b"\n" for item in some))
        os.utime(file, (number + 1, number + 1))  # Spark takes the oldest first


def _rows(spark: Any, folder: Path, operator: int) -> list[int]:
    """Rows of the state by partition."""
    reader = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", "entries")
    found = reader.load(str(folder / "checkpoint/spark")).groupBy("partition_id").count().collect()
    counts = {row["partition_id"]: row["count"] for row in found}
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
    return [counts.get(partition, 0) for partition in range(partitions)]


_KINDS = {"in_process": in_process, "on_spark": on_spark}


def main() -> int:
    given = json.load(sys.stdin)
    try:
        found = _KINDS[given.pop("kind")](folder=Path(given.pop("folder")), **given)
    except KeyboardInterrupt:  # the parent has it too, and says so
        return 130
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
