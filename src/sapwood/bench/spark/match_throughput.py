"""Messages a second of `sapwood.spark.match` against the matcher alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame

from sapwood import Matcher
from sapwood.bench.harness import Bench, at_least, experiment, run_isolated
from sapwood.bench.spark.spark_inputs import INPUTS, InputScale, prepare_inputs, time_repeated
from sapwood.spark import match, session

Shape = Literal["messages", "pairs"]


@experiment("throughput", "messages a second, against the matcher alone", scale=INPUTS)
def measure_throughput(bench: Bench, scale: InputScale) -> Iterator[str]:
    """Measure the matcher alone, local[1] and local[2] on the same messages."""
    inputs = yield from prepare_inputs(bench)
    yield "the matcher alone"
    alone = yield from run_isolated(match_alone, inputs.index, inputs.messages, scale.rounds)
    cases: tuple[tuple[str, str, Shape, bool], ...] = (
        ("an array of numbers", inputs.index, "messages", True),
        ("an array of strings", inputs.named_index, "messages", False),
        ("rows of numbers", inputs.index, "pairs", False),
    )
    for label, index, shape, promised in cases:
        rates: list[tuple[float, float]] = []
        for master in ("local[1]", "local[2]"):
            yield f"{label} at {master}"
            given = master, index, inputs.messages, scale.rounds, shape, bench.folder / "spark.log"
            rates.append((yield from run_isolated(match_table, *given)))
        (one, first), (two, _) = rates
        workload = f"{scale.messages:,} messages, {inputs.paths}; {label}"
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
