"""Messages a second of `sapwood.spark.match`, against the matcher alone and against Spark's xpath_boolean."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sapwood import Matcher
from sapwood.bench.harness import Bench, at_least, experiment, run_isolated, scale
from sapwood.bench.harness.benchmark_report import Detail
from sapwood.bench.spark.spark_inputs import MESSAGES, ROUNDS, prepare_inputs, time_repeated
from sapwood.spark import match, session

Shape = Literal["messages", "pairs"]


@experiment("throughput", "messages a second, against the matcher alone")
def measure_throughput(bench: Bench) -> Iterator[str]:
    """Measure the matcher alone, local[1] and local[2] on the same messages."""
    inputs = yield from prepare_inputs(bench)
    messages, rounds = bench.select(MESSAGES), bench.select(ROUNDS)
    yield "the matcher alone"
    alone = yield from run_isolated(match_alone, inputs.index, inputs.messages, rounds)
    cases: tuple[tuple[str, str, Shape, bool], ...] = (
        ("an array of numbers", inputs.index, "messages", True),
        ("an array of strings", inputs.named_index, "messages", False),
        ("rows of numbers", inputs.index, "pairs", False),
    )
    for label, index, shape, promised in cases:
        rates: list[tuple[float, float]] = []
        for master in ("local[1]", "local[2]"):
            yield f"{label} at {master}"
            given = master, index, inputs.messages, rounds, shape, bench.folder / "spark.log"
            rates.append((yield from run_isolated(match_table, *given)))
        (one, first), (two, _) = rates
        workload = f"{messages:,} messages, {inputs.paths}; {label}"
        bench.ratio(
            "local[1] against the matcher alone",
            workload,
            at_least(0.5) if promised else None,
            messages_per_second=one,
            **alone,
            first_pass_per_second=first,
        )
        bar = at_least(1.6) if promised else None
        measure = "local[2] against local[1]"
        bench.ratio(measure, workload, bar, messages_per_second=two, one_core_per_second=one)


def match_alone(index: str, messages: str, rounds: int) -> Iterator[str | dict[str, float]]:
    """Match a quarter of the messages without Spark: matches counted, and their ids listed."""
    import pyarrow.parquet as pq

    matcher = Matcher.load(index)
    bodies = pq.read_table(messages, columns=["body"]).column("body").to_pylist()
    sample = bodies[: max(1, len(bodies) // 4)]
    for body in sample:
        matcher.match(body)
    counting = time_repeated(lambda: [len(matcher.match(body)) for body in sample], rounds)
    listing = time_repeated(lambda: [len(list(matcher.match(body))) for body in sample], rounds)
    yield {
        "alone_per_second": len(sample) / min(counting),
        "alone_listing_ids_per_second": len(sample) / min(listing),
    }


def match_table(
    master: str, index: str, messages: str, rounds: int, shape: Shape, log: Path
) -> Iterator[str | tuple[float, float]]:
    """Match a table on Spark and drop the results; yield messages a second of the best and the first pass."""
    spark = session(master, log=log)
    table = spark.read.parquet(messages)
    count = table.count()
    matched = match(table, Matcher.load(index), shape=shape)
    first, *others = time_repeated(partial(drop_rows, matched), rounds + 1)
    yield count / min(others), count / first


def drop_rows(rows: DataFrame) -> None:
    """Compute all rows without writing them."""
    rows.write.format("noop").mode("overwrite").save()


@experiment("xpath_boolean", "against Spark's own function, a column for each query")
def measure_xpath_boolean(
    bench: Bench, query_count: int = scale(100, 20, 5), message_count: int = scale(500, 50, 10)
) -> Iterator[str]:
    inputs = yield from prepare_inputs(bench)
    queries = inputs.queries[:: max(1, len(inputs.queries) // query_count)][:query_count]
    yield f"{query_count:,} queries"
    rounds, log = bench.select(ROUNDS), bench.folder / "spark.log"
    found = yield from run_isolated(compare_columns, queries, inputs.messages, rounds, message_count, log)
    workload = f"{message_count:,} messages, {query_count:,} paths, local[2]"
    bench.ratio("against xpath_boolean, a column for each query", workload, at_least(100), **found)


def compare_columns(
    queries: list[str], messages: str, rounds: int, limit: int, log: Path
) -> Iterator[str | dict[str, Detail]]:
    """Match some messages with xpath_boolean, and all of them with `match`.

    `match` would take longer to start than to match a few messages.
    """
    spark = session("local[2]", log=log)
    every = spark.read.parquet(messages)
    table = every.limit(limit).repartition(2).cache()
    count, count_all = table.count(), every.count()
    text = F.col("body").cast("string")
    columns = [F.xpath_boolean(text, F.lit(query)).alias(f"q{i}") for i, query in enumerate(queries)]
    theirs = table.select("message_id", *columns)
    their_seconds = min(time_repeated(partial(drop_rows, theirs), rounds))
    ours = match(every, enumerate(queries), shape="messages")
    _, *our_seconds = time_repeated(partial(drop_rows, ours), rounds + 2)
    yield {
        "ours_per_second": count_all / min(our_seconds),
        "theirs_per_second": count / their_seconds,
        "same_answers": "yes" if _have_same_answers(theirs, ours) else "no",
    }


def _have_same_answers(theirs: DataFrame, ours: DataFrame) -> bool:
    rows = theirs.limit(50).collect()
    same = ours.filter(F.col("message_id").isin([row["message_id"] for row in rows])).collect()
    found = {row["message_id"]: {f"q{number}" for number in row["subscriptions"]} for row in same}
    return all(
        found[row["message_id"]] == {name for name, true in row.asDict().items() if true is True}
        for row in rows
    )
