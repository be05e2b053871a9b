"""Spark against DuckDB on the same tables.

Spark's workers parse and shred messages, and Spark SQL, or DuckDB on the driver, matches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from sapwood.bench.harness.experiment import Bench, experiment
from sapwood.bench.harness.isolation import stream_isolated
from sapwood.bench.harness.memory_usage import peak_megabytes, resident_megabytes
from sapwood.bench.join.feed_on_spark import SPARK_MISSING
from sapwood.bench.relational.database_runs import COMPARED, MEMORY, match_by_plans
from sapwood.bench.relational.stock_databases import STOCKS, open_database
from sapwood.bench.relational.table_measurements import WALL, PlanRounds, check_agreement, digest_answers
from sapwood.relational import Plan, RelationalMatcher

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Backend = Literal["spark", "duckdb"]
_LABELS: dict[Backend, str] = {
    "spark": "Spark SQL at local[2]",
    "duckdb": "read on Spark at local[2], matched in DuckDB",
}


@experiment("spark", "Spark SQL against DuckDB on the same tables", size=(100_000, 5_000, 0))
def measure_spark(bench: Bench, size: int) -> Iterator[str]:
    """Measure all messages matched by DuckDB in one process, and on Spark; no subscriptions skip it."""
    stocks = bench.select(STOCKS)
    if not size:
        return
    if find_spec("pyspark") is None:
        bench.skip("spark", SPARK_MISSING)
        return
    workload = f"stocks, {size:,} subscriptions, {stocks.messages:,} messages"
    listing = bench.listing(
        "spark",
        f"Spark against DuckDB: {workload}",
        ("first pass s", "seconds", "notifications", "peak MB"),
        f"{WALL}; the memory of Spark is that of the driver's Python alone",
    )
    quotes = stocks.quotes(size)
    loaded = yield from open_database(bench, quotes)
    bodies, plans = quotes.messages(stocks.messages), [(Plan.UNROLLED.value, stocks.messages)]
    for item in stream_isolated(match_by_plans, [loaded.file], plans, bodies, stocks.rounds):
        if isinstance(item, str):
            yield f"DuckDB: {item}"
        else:
            alone = item
            listing.add("DuckDB in one process", None, item.best, item.notifications, item.peak)
    folder = bench.folder / "spark-sql"
    folder.mkdir()
    for item in stream_isolated(match_on_spark, folder, loaded.file, list(_LABELS), bodies, stocks.rounds):
        if isinstance(item, str):
            yield item
            continue
        check_agreement(f"{workload}, {item.plan} on Spark", alone, item)
        label = _LABELS["spark" if item.plan == "spark" else "duckdb"]
        listing.add(label, item.indexing, item.best, item.notifications, item.peak)
        bench.figure(
            f"{label}, against DuckDB in one process",
            workload,
            item.best / alone.best,
            seconds=item.best,
            duckdb_seconds=alone.best,
            first_seconds=item.indexing,
            notifications=item.notifications,
        )


def match_on_spark(
    folder: Path, file: str, backends: Sequence[Backend], bodies: Sequence[bytes], rounds: int
) -> Iterator[str | PlanRounds]:
    """Match messages with a database at local[2]; the first pass of each backend counts as `indexing`."""
    from sapwood.bench.spark.spark_inputs import write_messages
    from sapwood.spark import session
    from sapwood.spark.relational.table_match import match_relational

    yield "starting Spark"
    spark = session("local[2]", log=folder / "spark.log")
    table = spark.read.parquet(write_messages(folder / "messages", list(enumerate(bodies))))
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        for backend in backends:
            copies = folder / backend
            copies.mkdir()
            seconds = []
            for number in range(rounds + 1):
                yield f"{backend} on Spark, {f'pass {number}' if number else 'a pass to warm up'}"
                start = perf_counter()
                matched = match_relational(table, matcher, on=backend, folder=str(copies))
                seconds.append(perf_counter() - start)
            yield PlanRounds(
                file=file,
                plan=backend,
                batch=len(bodies),
                indexing=seconds[0],
                seconds=seconds[1:],
                reading=0.0,
                notifications=matched.count(),
                digest=_digest_matches(matched, min(COMPARED, len(bodies))),
                resident=resident_megabytes(),
                peak=peak_megabytes(),
            )


def _digest_matches(matched: DataFrame, messages: int) -> int:
    answers: list[list[str]] = [[] for _ in range(messages)]
    for row in matched.filter(f"message_id < {messages}").select("message_id", "subscription").collect():
        answers[row["message_id"]].append(row["subscription"])
    return digest_answers(answers)
