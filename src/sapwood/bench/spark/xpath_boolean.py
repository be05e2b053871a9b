"""`sapwood.spark.match` against Spark's function xpath_boolean, with a column for each query."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sapwood.bench.harness import Bench, at_least, experiment, run_isolated
from sapwood.bench.harness.benchmark_report import Detail
from sapwood.bench.spark.match_throughput import drop_rows
from sapwood.bench.spark.spark_inputs import INPUTS, prepare_inputs, time_repeated
from sapwood.spark import match, session


@experiment(
    "xpath_boolean",
    "against Spark's own function, a column for each query",
    query_count=(100, 20, 5),
    message_count=(500, 50, 10),
)
def measure_xpath_boolean(bench: Bench, query_count: int, message_count: int) -> Iterator[str]:
    inputs = yield from prepare_inputs(bench)
    queries = inputs.queries[:: max(1, len(inputs.queries) // query_count)][:query_count]
    yield f"{query_count:,} queries"
    rounds, log = bench.select(INPUTS).rounds, bench.folder / "spark.log"
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
