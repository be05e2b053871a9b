"""Ranges on one value that differs in every message, so that caching of values does not help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from sapwood import Matcher, Tuning
from sapwood.bench.filter.warm_matching import COST, PRECISION, add_baseline_point
from sapwood.bench.harness.benchmark_report import Role
from sapwood.bench.harness.experiment import Bench, Experiment, Scales
from sapwood.bench.harness.timing import Timing, match_pass, raw_pass


@dataclass(frozen=True, slots=True)
class Scale:
    messages: int
    ranges: tuple[int, ...]
    unindexed: int
    """the largest number that is measured with the predicate index switched off as well"""


def measure_ranges(bench: Bench, scale: Scale) -> Iterator[str]:
    """Measure the cost against the number of ranges."""
    chart = bench.chart(
        "ranges",
        "Ranges on one value",
        "queries /quote[price > k]",
        COST,
        log_x=True,
        note="distinct k; every message has a new price, half of the queries match on average",
    )
    for size in scale.ranges:
        queries = [f"/quote[price > {k}.5]" for k in range(size)]
        yield f"{size:,} ranges"
        indexed = _time_new_prices(bench, scale, Tuning(), queries)
        chart.curve("Sapwood", Role.SAPWOOD).add(size, indexed.multiple, **indexed.details())
        if size <= scale.unindexed:
            yield f"{size:,} ranges, without the predicate index"
            tested = _time_new_prices(bench, scale, Tuning(index_values=False), queries)
            curve = chart.curve("Sapwood, each range tested by itself", Role.TWIN)
            curve.add(size, tested.multiple, **tested.details())
        add_baseline_point(bench, chart, size, queries, _generate_quotes(Random(2), size, scale.messages))


def _time_new_prices(bench: Bench, scale: Scale, tuning: Tuning, queries: list[str]) -> Timing:
    precision = PRECISION.at(bench.scale)
    matcher = Matcher(tuning=tuning)
    matcher.add_many(enumerate(queries))
    random = Random(1)
    match_pass(matcher, _generate_quotes(random, len(queries), scale.messages))
    own: list[float] = []
    raw: list[float] = []
    while len(own) < precision.rounds or sum(own) < precision.seconds:
        messages = _generate_quotes(random, len(queries), scale.messages)
        raw.append(raw_pass(messages))
        own.append(match_pass(matcher, messages))
    return Timing(tuple(own), tuple(raw), scale.messages)


def _generate_quotes(random: Random, highest: int, count: int) -> list[bytes]:
    return [
        f"<quote><symbol>SAP</symbol><price>{random.random() * highest:.6f}</price></quote>".encode()
        for _ in range(count)
    ]


EXPERIMENTS = (
    Experiment(
        "growth-ranges",
        "cost against ranges on one value",
        Scales(
            full=Scale(200, (10, 100, 1_000, 10_000, 100_000), 10_000),
            quick=Scale(50, (10, 100, 1_000, 10_000), 1_000),
            smoke=Scale(3, (10, 20), 10),
        ),
        measure_ranges,
    ),
)
