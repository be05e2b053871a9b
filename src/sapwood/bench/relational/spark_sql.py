"""Spark against DuckDB on the same tables.

Spark's workers parse and shred messages, and Spark SQL, or DuckDB on the driver, matches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sapwood.bench.harness import Bench, at_most, collect_isolated, experiment, scale, stream_isolated
from sapwood.bench.harness.memory_usage import largest_child_megabytes, peak_megabytes
from sapwood.bench.harness.timer import wall_seconds
from sapwood.bench.relational.database_runs import COMPARED, MEMORY, match_by_plans
from sapwood.bench.relational.stock_databases import STOCKS, drop_database, open_database
from sapwood.bench.relational.table_measurements import WALL, PlanRounds, check_agreement, digest_answers
from sapwood.relational import Plan, RelationalMatcher

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sapwood.spark.relational.table_match import RelationalMatching

Backend = Literal["spark", "duckdb"]
_LABELS: dict[Backend, str] = {
    "spark": "Spark SQL at local[2]",
    "duckdb": "read on Spark at local[2], matched in DuckDB",
}
_AGAINST_DUCKDB = 3.0
"""the most that Spark SQL may take, in times of DuckDB in one process"""
_EXECUTOR_MEMORY = "2g"
"""of the Java process, which has the driver and the executor at local[2]"""


@dataclass(frozen=True, slots=True)
class SparkRounds:
    """Messages matched on Spark, batch by batch with the same messages."""

    first: float
    """seconds of the first batch, with copying the tables if Spark SQL reads them"""
    rounds: PlanRounds
    """the later batches; its peak memory is that of the driver's Python"""
    java: float
    """megabytes of the Java process at the end"""


@experiment("spark", "Spark SQL against DuckDB on the same tables", "pyspark")
def measure_spark(
    bench: Bench, size: int = scale(100_000, 5_000, 0), rounds: int = scale(20, 2, 1)
) -> Iterator[str]:
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
    for item in stream_isolated(match_on_spark, folder, loaded.file, bodies, rounds, list(_LABELS)):
        if isinstance(item, str):
            yield item
            continue
        found = item.rounds
        check_agreement(f"{workload}, {found.plan}", alone, found)
        bench.ratio(
            f"{found.plan}, against DuckDB in one process",
            workload,
            at_most(_AGAINST_DUCKDB) if found.plan == _LABELS["spark"] else None,
            seconds=found.best,
            duckdb_seconds=alone.best,
            first_seconds=item.first,
            notifications=found.notifications,
            peak_megabytes=found.peak,
            duckdb_peak_megabytes=alone.peak,
        )


@experiment("spark-large", "Spark SQL with more subscriptions than fit into its memory", "pyspark")
def measure_large_on_spark(
    bench: Bench, size: int = scale(5_000_000, 20_000, 0), rounds: int = scale(2, 1, 1)
) -> Iterator[str]:
    """Measure Spark SQL with many subscriptions and little memory; no subscriptions skip it."""
    if not size:
        return
    stocks = bench.select(STOCKS)
    quotes = stocks.quotes(size)
    loaded = yield from open_database(bench, quotes)
    bodies, plans = quotes.messages(stocks.messages), [(Plan.UNROLLED.value, stocks.messages)]
    (alone,) = yield from collect_isolated(match_by_plans, [loaded.file], plans, bodies, 1)
    folder = bench.folder / "spark-sql-large"
    folder.mkdir()
    (found,) = yield from collect_isolated(match_on_spark, folder, loaded.file, bodies, rounds, ["spark"])
    check_agreement(f"stocks, {size:,} subscriptions on Spark SQL", alone, found.rounds)
    listing = bench.listing(
        "spark-large",
        f"Stock quotes on Spark SQL: {size:,} subscriptions, {_EXECUTOR_MEMORY} of memory for Java",
        ("",),
        f"{WALL}; megabytes of resident memory",
    )
    for label, value in {
        "loading the tables, seconds": loaded.seconds,
        "loading the tables, peak MB": loaded.peak,
        f"the first batch of {len(bodies):,}, with copying the tables, seconds": found.first,
        "a later batch, seconds": found.rounds.best,
        "the same batch in DuckDB, seconds": alone.best,
        "notifications": found.rounds.notifications,
        "Java, MB": found.java,
        "Python on the driver, peak MB": found.rounds.peak,
        "DuckDB in one process, peak MB": alone.peak,
    }.items():
        listing.add(label, value)
    drop_database(bench, quotes)


def match_on_spark(
    folder: Path, file: str, bodies: Sequence[bytes], rounds: int, backends: Sequence[Backend]
) -> Iterator[str | SparkRounds]:
    """Match messages with a database at local[2], in batches as a pipeline does."""
    from sapwood.bench.spark.spark_inputs import write_messages
    from sapwood.spark import session
    from sapwood.spark.dataframe_match import to_pairs
    from sapwood.spark.relational.table_match import RelationalMatching

    yield "starting Spark"
    config = {"spark.driver.memory": _EXECUTOR_MEMORY}
    spark = session("local[2]", config=config, log=folder / "spark.log")
    table = spark.read.parquet(write_messages(folder / "messages", list(enumerate(bodies))))
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        for backend in backends:
            copies = folder / backend
            copies.mkdir()
            matching = RelationalMatching(matcher, backend, str(copies))
            seconds = []
            for number in range(rounds + 1):
                yield f"{backend} on Spark, {f'batch {number}' if number else 'the first batch'}"
                seconds.append(wall_seconds(partial(_match_batch, matching, table)))
            first, *others = seconds
            with matching(table) as matched:
                pairs = to_pairs(matched).localCheckpoint()
            found = PlanRounds(
                file=file,
                plan=_LABELS[backend],
                batch=len(bodies),
                seconds=others,
                reading=0.0,
                notifications=pairs.count(),
                digest=_digest_matches(pairs, min(COMPARED, len(bodies))),
                peak=peak_megabytes(),
            )
            matching.close()
            yield SparkRounds(first, found, largest_child_megabytes("java"))


def _match_batch(matching: RelationalMatching, messages: DataFrame) -> None:
    with matching(messages) as matched:
        matched.localCheckpoint()


def _digest_matches(matched: DataFrame, messages: int) -> int:
    answers: list[list[str]] = [[] for _ in range(messages)]
    for row in matched.filter(f"message_id < {messages}").select("message_id", "subscription").collect():
        answers[row["message_id"]].append(row["subscription"])
    return digest_answers(answers)
