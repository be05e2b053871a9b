"""Messages a second of `sapwood.spark.match` against the matcher alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pyspark.sql import DataFrame

from sapwood import Matcher
from sapwood.bench.harness.experiment import Bench, at_least, experiment
from sapwood.bench.harness.isolation import run_isolated
from sapwood.bench.spark.spark_inputs import INPUTS, InputScale, prepare_inputs, time_repeated
from sapwood.spark import match, session

Shape = Literal["messages", "pairs"]


@dataclass(frozen=True, slots=True)
class MatcherRates:
    """Messages a second of the matcher alone: matches counted, and their ids listed."""

    counting: float
    listing: float


@dataclass(frozen=True, slots=True)
class SparkRates:
    """Messages a second on Spark: the best pass, and the first."""

    best: float
    first: float


@experiment("throughput", "messages a second, against the matcher alone", scale=INPUTS)
def measure_throughput(bench: Bench, scale: InputScale) -> Iterator[str]:
    """Measure the matcher alone, local[1] and local[2] on the same messages."""
    yield "writing messages and indexes"
    inputs = prepare_inputs(bench)
    yield "the matcher alone"
    alone = yield from run_isolated(match_alone, inputs.index, inputs.messages, scale.rounds)
    cases: tuple[tuple[str, str, Shape, bool], ...] = (
        ("an array of numbers", inputs.index, "messages", True),
        ("an array of strings", inputs.named_index, "messages", False),
        ("rows of numbers", inputs.index, "pairs", False),
    )
    log = str(bench.folder / "spark.log")
    for label, index, shape, promised in cases:
        rates: list[SparkRates] = []
        for master in ("local[1]", "local[2]"):
            yield f"{label} at {master}"
            rates.append(
                (
                    yield from run_isolated(
                        match_table, master, index, inputs.messages, scale.rounds, shape, log
                    )
                )
            )
        one, two = rates
        workload = f"{scale.messages:,} messages, {inputs.paths}; {label}"
        bench.figure(
            "local[1] against the matcher alone",
            workload,
            one.best / alone.counting,
            "times",
            at_least(0.5) if promised else None,
            messages_per_second=one.best,
            alone_per_second=alone.counting,
            alone_listing_ids_per_second=alone.listing,
            first_pass_per_second=one.first,
        )
        bar = at_least(1.6) if promised else None
        ratio = two.best / one.best
        bench.figure("local[2] against local[1]", workload, ratio, "times", bar, messages_per_second=two.best)


def match_alone(index: str, messages: str, rounds: int) -> Iterator[str | MatcherRates]:
    """Match a quarter of the messages without Spark."""
    import pyarrow.parquet as pq

    matcher = Matcher.load(index)
    bodies = pq.read_table(messages, columns=["body"]).column("body").to_pylist()
    sample = bodies[: max(1, len(bodies) // 4)]
    for body in sample:
        matcher.match(body)
    counting = time_repeated(lambda: [len(matcher.match(body)) for body in sample], rounds)
    listing = time_repeated(lambda: [len(list(matcher.match(body))) for body in sample], rounds)
    yield MatcherRates(len(sample) / min(counting), len(sample) / min(listing))


def match_table(
    master: str, index: str, messages: str, rounds: int, shape: Shape, log: str
) -> Iterator[str | SparkRates]:
    """Match a table of messages on Spark, and drop the results."""
    spark = session(master, log=log)
    table = spark.read.parquet(messages)
    count = table.count()
    matched = match(table, Matcher.load(index), shape=shape)
    first, *others = time_repeated(partial(drop_rows, matched), rounds + 1)
    yield SparkRates(count / min(others), count / first)


def drop_rows(rows: DataFrame) -> None:
    """Compute all rows without writing them."""
    rows.write.format("noop").mode("overwrite").save()
