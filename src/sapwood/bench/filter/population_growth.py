"""Growth with the number of queries: experiments 1 (cost) and 5 (inserts) of the YFilter thesis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

from sapwood import Matcher
from sapwood.bench.filter.matching_contenders import (
    COST,
    add_baseline_point,
    add_matcher_points,
    compile_seconds,
)
from sapwood.bench.harness import Bench, ChartAxis, Role, experiment, scale
from sapwood.bench.harness.datasets import Kind
from sapwood.bench.harness.timer import clock, match_pass, raw_pass, time_once

_POPULATIONS: tuple[tuple[Kind, str], ...] = (
    ("distinct", ""),
    ("repeated", "Sapwood, queries with duplicates"),
)
_INSERT_COST = ChartAxis("cost of a query (× raw parsing a message)", "×")


@experiment("growth-queries", "cost against number of queries (experiment 1)")
def measure_populations(
    bench: Bench,
    message_count: int = scale(500, 300, 100, 4),
    distinct: tuple[int, ...] = scale(
        (1_000, 5_000, 20_000, 50_000, 100_000, 153_928),
        (1_000, 2_000, 5_000, 10_000, 20_000, 50_000),
        (1_000, 3_000, 10_000, 20_000),
        (10, 40),
    ),
    repeated: tuple[int, ...] = scale(
        (1_000, 5_000, 20_000, 50_000, 100_000, 200_000, 350_000, 500_000),
        (1_000, 5_000, 20_000, 50_000, 100_000, 200_000, 500_000),
        (1_000, 5_000, 20_000, 50_000),
        (10, 60),
    ),
) -> Iterator[str]:
    """Measure the cost against the number of queries, distinct and with duplicates."""
    chart = bench.chart("queries", "Number of queries", "queries", COST, log_x=True, note=bench.dataset.label)
    messages = bench.dataset.messages(message_count)
    for (kind, label), sizes in zip(_POPULATIONS, (distinct, repeated), strict=True):
        population = bench.dataset.queries(kind, max(sizes))
        matcher = Matcher()
        for size in sizes:
            if size > len(population):
                break
            yield f"{size:,} queries" + (" with duplicates" if label else "")
            matcher.add_many((n, population[n]) for n in range(len(matcher), size))
            add_matcher_points(bench, chart, size, matcher, messages, label)
            if not label:
                add_baseline_point(bench, chart, size, population[:size], messages)


@experiment("growth-inserts", "cost of adding queries (experiment 5)")
def measure_inserts(
    bench: Bench,
    message_count: int = scale(200, 50, 3),
    inserted: int = scale(1_000, 500, 5),
    populations: tuple[int, ...] = scale(
        (2_000, 5_000, 10_000, 20_000, 40_000, 80_000, 150_000),
        (2_000, 5_000, 10_000, 20_000, 40_000),
        (1_000, 3_000, 10_000),
        (10, 30),
    ),
) -> Iterator[str]:
    """Measure the cost of one more query against the number of queries."""
    note = f"{inserted:,} added at each point; {bench.dataset.label}"
    chart = bench.chart(
        "inserts", "Adding queries", "queries already loaded", _INSERT_COST, log_x=True, note=note
    )
    messages = bench.dataset.messages(message_count)
    population = bench.dataset.queries("distinct", max(populations) + inserted)
    matcher = Matcher()
    for size in populations:
        if size + inserted > len(population):
            break
        yield f"into {size:,} queries"
        raw = median(raw_pass(messages) for _ in range(5)) / len(messages)
        start, before = clock(), len(matcher)
        matcher.add_many((n, population[n]) for n in range(before, size))
        bulk = (clock() - start) / (size - before)
        match_pass(matcher, messages)
        added = population[size : size + inserted]
        cost = time_once(partial(_add_one_by_one, matcher, size, added), messages)
        compiling = compile_seconds(added)
        per_query = len(messages) / len(added)
        chart.curve("one at a time, into a warm matcher", Role.SAPWOOD).add(size, cost.multiple * per_query)
        chart.curve("many at once, before the first message", Role.FIRST).add(size, bulk / raw)
        chart.curve("lxml, compiling the query", Role.BASELINE).add(size, compiling / cost.raw[0] * per_query)


def _add_one_by_one(matcher: Matcher, first: int, queries: Sequence[str]) -> float:
    start = clock()
    for number, query in enumerate(queries, start=first):
        matcher.add(number, query)
    return clock() - start
