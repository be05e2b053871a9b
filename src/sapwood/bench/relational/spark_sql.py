"""Spark against DuckDB on the same tables.

Spark's workers parse and shred messages, and Spark SQL, or DuckDB on the driver, matches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from sapwood.bench.harness import Bench, collect_isolated, experiment, scale, stream_isolated
from sapwood.bench.harness.memory_usage import peak_megabytes
from sapwood.bench.relational.database_runs import COMPARED, MEMORY, match_by_plans
from sapwood.bench.relational.stock_databases import STOCKS, open_database
from sapwood.bench.relational.table_measurements import PlanRounds, check_agreement, digest_answers
from sapwood.relational import Plan, RelationalMatcher

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Backend = Literal["spark", "duckdb"]
_LABELS: dict[Backend, str] = {
    "spark": "Spark SQL at local[2]",
    "duckdb": "read on Spark at local[2], matched in DuckDB",
}


@experiment("spark", "Spark SQL against DuckDB on the same tables", "pyspark")
def measure_spark(bench: Bench, size: int = scale(100_000, 5_000, 0)) -> Iterator[str]:
    """Measure all messages matched by DuckDB in one process, and on Spark; no subscriptions skip it."""
    if not size:
        return
    stocks = bench.select(STOCKS)
    workload = f"stocks, {size:,} subscriptions, {stocks.messages:,} messages"
    quotes = stocks.quotes(size)
    loaded = yield from open_database(bench, quotes)
    bodies, plans = quotes.messages(stocks.messages), [(Plan.UNROLLED.value, stocks.messages)]
    (alone,) = yield from collect_isolated(match_by_plans, [loaded.file], plans, bodies, stocks.rounds)
    folder = bench.folder / "spark-sql"
    folder.mkdir()
    for item in stream_isolated(match_on_spark, folder, loaded.file, bodies, stocks.rounds):
        if isinstance(item, str):
            yield item
            continue
        first, found = item
        check_agreement(f"{workload}, {found.plan}", alone, found)
        bench.ratio(
            f"{found.plan}, against DuckDB in one process",
            workload,
            seconds=found.best,
            duckdb_seconds=alone.best,
            first_seconds=first,
            notifications=found.notifications,
            peak_megabytes=found.peak,
            duckdb_peak_megabytes=alone.peak,
        )


def match_on_spark(
    folder: Path, file: str, bodies: Sequence[bytes], rounds: int
) -> Iterator[str | tuple[float, PlanRounds]]:
    """Match messages with a database at local[2]; yield the seconds of the first pass and the other rounds.

    The peak memory is that of the driver's Python alone.
    """
    from sapwood.bench.spark.spark_inputs import write_messages
    from sapwood.spark import session
    from sapwood.spark.relational.table_match import match_relational

    yield "starting Spark"
    spark = session("local[2]", log=folder / "spark.log")
    table = spark.read.parquet(write_messages(folder / "messages", list(enumerate(bodies))))
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        for backend, label in _LABELS.items():
            copies = folder / backend
            copies.mkdir()
            seconds = []
            for number in range(rounds + 1):
                yield f"{backend} on Spark, {f'pass {number}' if number else 'a pass to warm up'}"
                start = perf_counter()
                matched = match_relational(table, matcher, on=backend, folder=str(copies))
                seconds.append(perf_counter() - start)
            first, *others = seconds
            yield (
                first,
                PlanRounds(
                    file=file,
                    plan=label,
                    batch=len(bodies),
                    seconds=others,
                    reading=0.0,
                    notifications=matched.count(),
                    digest=_digest_matches(matched, min(COMPARED, len(bodies))),
                    peak=peak_megabytes(),
                ),
            )


def _digest_matches(matched: DataFrame, messages: int) -> int:
    answers: list[list[str]] = [[] for _ in range(messages)]
    for row in matched.filter(f"message_id < {messages}").select("message_id", "subscription").collect():
        answers[row["message_id"]].append(row["subscription"])
    return digest_answers(answers)
