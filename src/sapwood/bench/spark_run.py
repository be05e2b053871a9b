"""One measurement on Spark, in a process of its own, so that no master profits from another's warm JVM.

    python -m sapwood.bench.spark_run < SPECIFICATION

The specification and the result are JSON objects; see `measure`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sapwood import Matcher
from sapwood.bench.memory import resident
from sapwood.spark import match, session
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.config import parse_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.store import SubscriptionStore


def measure(kind: str, **specification: Any) -> dict[str, Any]:
    """Runs one of the functions below in a fresh process."""
    run = subprocess.run(
        [sys.executable, "-m", "sapwood.bench.spark_run"],
        input=json.dumps({"kind": kind, **specification}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def _rounds(work: Callable[[], Any], rounds: int) -> list[float]:
    seconds = []
    for _ in range(rounds):
        started = perf_counter()
        work()
        seconds.append(perf_counter() - started)
    return seconds


def single(index: str, messages: str, rounds: int) -> dict[str, Any]:
    """The matcher alone, in this process: counting matches, and listing their ids."""
    import pyarrow.parquet as pq

    matcher = Matcher.load(index)
    bodies = pq.read_table(messages, columns=["body"]).column("body").to_pylist()
    sample = bodies[: max(1, len(bodies) // 4)]
    for body in sample:
        matcher.match(body)
    counting = _rounds(lambda: [len(matcher.match(body)) for body in sample], rounds)
    listing = _rounds(lambda: [len(list(matcher.match(body))) for body in sample], rounds)
    return {"counting": len(sample) / min(counting), "listing": len(sample) / min(listing)}


def matching(master: str, index: str, messages: str, rounds: int, shape: str, log: str) -> dict[str, Any]:
    """`sapwood.spark.match` on a table of messages, everything that it finds read and dropped."""
    spark = session(master, log=log)
    table = spark.read.parquet(messages)
    count = table.count()
    matched = match(table, Matcher.load(index), shape="pairs" if shape == "pairs" else "messages")
    seconds = _rounds(lambda: _drop(matched), rounds + 1)
    return {"rate": count / min(seconds[1:]), "first": count / seconds[0], "messages": count}


def xpath_boolean(
    master: str, queries: list[str], messages: str, rounds: int, limit: int, log: str
) -> dict[str, Any]:
    """Spark's own function, a column for each query, on some messages, beside `match` on all of them.

    On a few, `match` would take longer to start than to match.
    """
    spark = session(master, log=log)
    every = spark.read.parquet(messages)
    table = every.limit(limit).repartition(2).cache()
    count, all_of_them = table.count(), every.count()
    text = F.col("body").cast("string")
    columns = [F.xpath_boolean(text, F.lit(query)).alias(f"q{i}") for i, query in enumerate(queries)]
    theirs_frame = table.select("message_id", *columns)
    theirs = _rounds(lambda: _drop(theirs_frame), rounds)
    ours_frame = match(every, enumerate(queries), shape="messages")
    ours = _rounds(lambda: _drop(ours_frame), rounds + 2)
    agreed = _agreed(theirs_frame, ours_frame)
    return {"theirs": count / min(theirs), "ours": all_of_them / min(ours[1:]), "agreed": agreed}


def _drop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _agreed(theirs: DataFrame, ours: DataFrame) -> bool:
    """Whether both say the same of some messages."""
    rows = theirs.limit(50).collect()
    some = ours.filter(F.col("message_id").isin([row["message_id"] for row in rows])).collect()
    found = {row["message_id"]: {f"q{number}" for number in row["subscriptions"]} for row in some}
    return all(
        found[row["message_id"]] == {name for name, true in row.asDict().items() if true is True}
        for row in rows
    )


def churn(folder: str, changes: int) -> dict[str, Any]:
    """A stream of small batches, with subscriptions that come and go before each: the memory after each."""
    spark = session("local[2]", log=f"{folder}/spark.log", config={"spark.driver.memory": "1g"})
    given = parse_config(
        {
            "source": {"path": f"{folder}/inbox", "files_per_batch": 1},
            "subscriptions": {"store": f"{folder}/subscriptions.db"},
            "deliveries": {"path": f"{folder}/deliveries", "shape": "messages"},
            "rejects": {"path": f"{folder}/rejects"},
            "run": {"checkpoint": f"{folder}/checkpoint", "partitions": 2},
        }
    )
    memory: list[dict[str, float]] = []
    with SubscriptionStore(f"{folder}/subscriptions.db") as store:
        waiting = deque(store.subscriptions())

        def after(outcome: Outcome) -> None:
            for i in range(changes):
                oldest = waiting.popleft()
                store.remove(oldest.id)
                store.add(f"batch-{outcome.batch}-{i}", oldest.query)
            memory.append(_memory(spark, outcome.batch % 10 == 9))

        pipeline = Pipeline(spark, given, after)
        pipeline.run()
    return {"batches": len(memory), "memory": memory}


def _memory(spark: SparkSession, collect: bool) -> dict[str, float]:
    """Megabytes: the driver's Python, its JVM's heap (collected now and then), the largest worker."""
    jvm: Any = spark._jvm
    if collect:
        jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    heap = (runtime.totalMemory() - runtime.freeMemory()) / 1e6
    return {"driver": resident(), "heap": heap if collect else float("nan"), "worker": _largest_worker()}


def _largest_worker() -> float:
    """Megabytes of the largest of this driver's Python workers, where the system tells."""
    largest = float("nan")
    pages = os.sysconf("SC_PAGE_SIZE") / 1e6
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (entry / "cmdline").read_bytes() and _belongs(entry):
                size = int((entry / "statm").read_text().split()[1]) * pages
                largest = size if largest != largest else max(largest, size)
        except OSError:
            continue
    return largest


def _belongs(entry: Path) -> bool:
    """Whether a process descends from this one."""
    pid = int(entry.name)
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


_KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "single": single,
    "matching": matching,
    "xpath_boolean": xpath_boolean,
    "churn": churn,
}


def main() -> int:
    specification = json.loads(sys.stdin.read())
    try:
        result = _KINDS[specification.pop("kind")](**specification)
    except KeyboardInterrupt:  # the parent has it too, and says so
        return 130
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
