"""Messages a second of `sapwood.spark.match`, against the matcher alone and against Spark's xpath_boolean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sapwood import Matcher, Matches
from sapwood.bench.harness import Bench, at_least, experiment, run_isolated, scale
from sapwood.bench.harness.benchmark_report import Detail
from sapwood.bench.harness.engines import by_engine, kernel_missing
from sapwood.bench.harness.timer import wall_seconds
from sapwood.bench.spark.spark_inputs import MESSAGES, ROUNDS, prepare_inputs
from sapwood.spark import match, session

Shape = Literal["messages", "pairs"]

_READERS: dict[str, Callable[[Matches], object]] = {
    "lists numbers": attrgetter("numbers"),
    "counts": len,
    "lists ids": list,
}


@experiment("throughput", "messages a second, against the matcher alone")
def measure_throughput(
    bench: Bench,
    case_count: int = scale(3, 3, 1),
    masters: tuple[str, ...] = scale(("local[1]", "local[2]"), ("local[1]", "local[2]"), ("local[1]",)),
) -> Iterator[str]:
    """Measure the matcher alone, local[1] and local[2] on the same messages."""
    inputs = yield from prepare_inputs(bench)
    messages, rounds, log = bench.select(MESSAGES), bench.select(ROUNDS), bench.folder / "spark.log"
    cases: tuple[tuple[str, str, Shape, bool], ...] = (
        ("an array of numbers", inputs.index, "messages", True),
        ("an array of strings", inputs.named_index, "messages", False),
        ("rows of numbers", inputs.index, "pairs", False),
    )
    for label, index, shape, promised in cases[:case_count]:
        found: list[TableRates] = []
        for master in masters:
            yield f"{label} at {master}"
            # where nothing is promised, once: a pass takes minutes
            given = master, index, inputs.messages, rounds if promised else 1, shape, log
            found.append((yield from run_isolated(match_table, *given)))
        workload = f"{messages:,} messages, {inputs.paths}; {label}"
        _report_one_core(bench, workload, found[0], promised)
        if len(found) > 1:
            one, two = (each.best for each in found)
            bar = at_least(1.7) if promised else None
            measure = "local[2] against local[1]"
            bench.ratio(measure, workload, bar, messages_per_second=two, one_core_per_second=one)


def _report_one_core(bench: Bench, workload: str, found: TableRates, promised: bool) -> None:
    """Report local[1] against each way to read: the kernel promises some of listing, Python of counting."""
    in_python = bool(kernel_missing())
    bars = {"lists numbers": at_least(0.8, not in_python), "counts": at_least(0.5, in_python)}
    for reading, alone in found.alone.items():
        bench.ratio(
            f"local[1] against the matcher alone that {reading}",
            workload,
            bars.get(reading) if promised else None,
            messages_per_second=found.best,
            alone_per_second=alone,
            first_pass_per_second=found.first,
        )


class TableRates(NamedTuple):
    """Messages a second on Spark, of the best and the first pass, and of the matcher alone by reading."""

    best: float
    first: float
    alone: dict[str, float]


def match_table(
    master: str, index: str, messages: str, rounds: int, shape: Shape, log: Path
) -> Iterator[str | TableRates]:
    """Match a table on Spark and drop the results, in alternation with the matcher alone, by wall time.

    The matcher alone takes its turns at local[1], with a quarter of as many messages: short passes would be
    undisturbed more often than long ones.
    """
    spark = session(master, log=log)
    table = spark.read.parquet(messages)
    count = table.count()
    matcher = Matcher.load(index)
    matched = match(table, matcher, shape=shape)
    distinct = pq.read_table(messages, columns=["body"]).column("body").unique().to_pylist()
    _match_alone(matcher, distinct, len)
    bodies = list(islice(cycle(distinct), max(1, count // 4)))
    readers = _READERS if master == "local[1]" else {}
    passes = {reading: partial(_match_alone, matcher, bodies, read) for reading, read in readers.items()}
    first = wall_seconds(partial(drop_rows, matched))
    on_spark: list[float] = []
    alone: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        on_spark.append(wall_seconds(partial(drop_rows, matched)))
        for reading, own_pass in passes.items():
            alone[reading].append(wall_seconds(own_pass))
    rates = {reading: len(bodies) / min(seconds) for reading, seconds in alone.items()}
    yield TableRates(count / min(on_spark), count / first, rates)


def _match_alone(matcher: Matcher, bodies: Sequence[bytes], read: Callable[[Matches], object]) -> None:
    for body in bodies:
        read(matcher.match(body))


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
    bar = at_least(by_engine(300, 100))
    bench.ratio("against xpath_boolean, a column for each query", workload, bar, **found)


def compare_columns(
    queries: list[str], messages: str, rounds: int, limit: int, log: Path
) -> Iterator[str | dict[str, Detail]]:
    """Match some messages with xpath_boolean, and all of them with `match`, in alternation.

    A job takes longer to start than `match` takes for a few messages.
    """
    spark = session("local[2]", log=log)
    every = spark.read.parquet(messages)
    table = every.limit(limit).repartition(2).cache()
    count, count_all = table.count(), every.count()
    text = F.col("body").cast("string")
    columns = [F.xpath_boolean(text, F.lit(query)).alias(f"q{i}") for i, query in enumerate(queries)]
    theirs = table.select("message_id", *columns)
    ours = match(every, enumerate(queries), shape="messages")
    our_seconds: list[float] = []
    their_seconds: list[float] = []
    drop_rows(ours)  # starts the workers
    for _ in range(rounds):
        our_seconds.append(wall_seconds(partial(drop_rows, ours)))
        their_seconds.append(wall_seconds(partial(drop_rows, theirs)))
    yield {
        "ours_per_second": count_all / min(our_seconds),
        "theirs_per_second": count / min(their_seconds),
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
