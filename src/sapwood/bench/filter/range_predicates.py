"""Ranges on one value that differs in every message, so that caching of values does not help."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from sapwood import Matcher, Tuning
from sapwood.bench.filter.warm_match_cost import COST, PRECISION, add_baseline_point
from sapwood.bench.harness.benchmark_report import Role
from sapwood.bench.harness.experiment import Bench, experiment
from sapwood.bench.harness.timing import Timing, match_pass, raw_pass


@experiment(
    "growth-ranges",
    "cost against ranges on one value",
    message_count=(200, 50, 3),
    ranges=((10, 100, 1_000, 10_000, 100_000), (10, 100, 1_000, 10_000), (10, 20)),
    unindexed=(10_000, 1_000, 10),
)
def measure_ranges(
    bench: Bench, message_count: int, ranges: tuple[int, ...], unindexed: int
) -> Iterator[str]:
    """Measure the cost against the number of ranges; up to `unindexed` also without the predicate index."""
    chart = bench.chart(
        "ranges",
        "Ranges on one value",
        "queries /quote[price > k]",
        COST,
        log_x=True,
        note="distinct k; every message has a new price, half of the queries match on average",
    )
    for size in ranges:
        queries = [f"/quote[price > {k}.5]" for k in range(size)]
        yield f"{size:,} ranges"
        indexed = _time_new_prices(bench, message_count, Tuning(), queries)
        chart.curve("Sapwood", Role.SAPWOOD).add(size, indexed.multiple, **indexed.details())
        if size <= unindexed:
            yield f"{size:,} ranges, without the predicate index"
            tested = _time_new_prices(bench, message_count, Tuning(index_values=False), queries)
            curve = chart.curve("Sapwood, each range tested by itself", Role.TWIN)
            curve.add(size, tested.multiple, **tested.details())
        add_baseline_point(bench, chart, size, queries, _generate_quotes(Random(2), size, message_count))


def _time_new_prices(bench: Bench, message_count: int, tuning: Tuning, queries: list[str]) -> Timing:
    precision = bench.select(PRECISION)
    matcher = Matcher(tuning=tuning)
    matcher.add_many(enumerate(queries))
    random = Random(1)
    match_pass(matcher, _generate_quotes(random, len(queries), message_count))
    own: list[float] = []
    raw: list[float] = []
    while len(own) < precision.rounds or sum(own) < precision.seconds:
        messages = _generate_quotes(random, len(queries), message_count)
        raw.append(raw_pass(messages))
        own.append(match_pass(matcher, messages))
    return Timing(tuple(own), tuple(raw), message_count)


def _generate_quotes(random: Random, highest: int, count: int) -> list[bytes]:
    return [
        f"<quote><symbol>SAP</symbol><price>{random.random() * highest:.6f}</price></quote>".encode()
        for _ in range(count)
    ]
