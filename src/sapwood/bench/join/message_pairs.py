"""Joins of two messages for up to 100,000 queries: sections 6.1 and 6.2 of Hong et al."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from sapwood.bench.harness import (
    Bench,
    BenchError,
    Chart,
    ChartAxis,
    Listing,
    Role,
    at_least,
    at_most,
    experiment,
    scale,
)
from sapwood.bench.harness.experiments import Limit
from sapwood.bench.harness.timer import Timing, plot_interleaved, time_interleaved
from sapwood.bench.join.join_workload import (
    METHODS,
    ONE_BY_ONE,
    JoinWorkload,
    PairJoiner,
    PairResults,
    flat,
    levels,
)

MILLISECONDS = ChartAxis("milliseconds to join the second message", " ms")
MATCHING = "matching alone"
NOISE = 1.1
"""times: the tolerance for two equal costs on a machine with other load"""
_ABOUT = {"flat": "two levels", "levels": "three levels"}
_MIRRORED = "of templates that mirror each other, the paper counts one"
# Templates by number of queries, and by the most equalities of a query.
_PUBLISHED_TEMPLATES = {"levels": {10: 6, 100_000: 22}, "flat": {100_000: 6}}
_PUBLISHED_BY_EQUALITIES: dict[float, int] = {2: 2, 3: 6, 4: 20, 5: 39}
_COUNT = scale(1_000, 1_000, 20)
_COUNTS = ("distinct", "templates", "templates, paper", "distinct satisfied", "deliveries")
_PASSES = ((7, 0.1), (3, 0.02), (2, 0.0))
"""the rounds, and the seconds of a pass, which joins pairs of messages one after the other"""


@dataclass(frozen=True, slots=True)
class PairMeasurement:
    """One population of queries, joined by all methods."""

    shared: Timing
    unshared_values: Timing
    one_by_one: Timing
    matching: Timing
    """which is part of all of them"""
    joiner: PairJoiner
    """of all queries at once"""
    templates: int
    distinct: int
    results: PairResults

    def report(self, bench: Bench, measure: str, name: str, ratio: float, bar: Limit) -> None:
        bench.figure(
            measure,
            f"{name}, {len(self.joiner.broker):,} queries",
            ratio,
            "times",
            bar,
            shared_milliseconds=self.shared.milliseconds,
            unshared_values_milliseconds=self.unshared_values.milliseconds,
            alone_milliseconds=self.one_by_one.milliseconds,
            matching_milliseconds=self.matching.milliseconds,
            templates=self.templates,
            distinct=self.distinct,
            queries_met=self.results.distinct,
            deliveries=self.results.deliveries,
        )

    def list_counts(self, counts: Listing, label: str, published: int | None) -> None:
        counts.add(label, self.distinct, self.templates, published, *self.results)


def _measure_methods(
    bench: Bench, chart: Chart, x: float, workload: JoinWorkload, queries: Sequence[str]
) -> PairMeasurement:
    """Time all methods in the same rounds, after a check that they find the same; add a point for each."""
    rounds, seconds = bench.select(_PASSES)
    # New brokers for each number of queries: equal ones are merged only if they have seen the same messages.
    joiners = [PairJoiner(method, workload.schema, queries) for method in METHODS]
    found = [joiner.results() for joiner in joiners]
    if len({results.deliveries for results in found}) > 1:
        raise BenchError(f"the join methods do not agree: {found}")
    for joiner in joiners:
        joiner.warm_up(seconds)
    templates, distinct = joiners[0].templates, len(set(queries))
    passes = {(joiner.method.label, joiner.method.role): joiner.joining_pass for joiner in joiners}
    passes[MATCHING, Role.OTHER] = joiners[0].matching_pass
    counts = {"templates": templates, "distinct": distinct}
    timings = plot_interleaved(chart, x, passes, [joiners[0].message], least=rounds, **counts)
    shared, unshared, alone, matching = timings
    return PairMeasurement(shared, unshared, alone, matching, joiners[0], templates, distinct, found[0])


# -- the number of queries -----------------------------------------------------------------------------


def measure_queries(
    workload: JoinWorkload,
    bench: Bench,
    sizes: tuple[int, ...] = scale((10, 100, 1_000, 10_000, 100_000), (10, 100, 1_000, 10_000), (5, 40)),
) -> Iterator[str]:
    """Measure the number of queries, with the default parameters of the paper."""
    name = workload.schema.name
    title = f"Joining two messages, {_ABOUT[name]}"
    note = "paper: > 100 times slower one at a time when queries are many, alike when few"
    chart = bench.chart(name, title, "queries", MILLISECONDS, log_x=True, note=note)
    counts = bench.listing(f"{name}-counts", f"Queries and templates, {_ABOUT[name]}", _COUNTS, _MIRRORED)
    queries = workload.queries(max(sizes))
    for size in sizes:
        yield f"{size:,} queries"
        measured = _measure_methods(bench, chart, size, workload, queries[:size])
        measured.list_counts(counts, f"{size:,} queries", _PUBLISHED_TEMPLATES[name].get(size))
        if size == min(sizes):
            few = measured.shared.ratio_to(measured.one_by_one)
            measured.report(bench, "all queries at once, against one at a time", name, few, at_most(NOISE))
    many = measured.one_by_one.ratio_to(measured.shared)
    measured.report(bench, "one query at a time, against all at once", name, many, at_least(100))
    unshared = measured.unshared_values.ratio_to(measured.shared)
    measured.report(bench, "without sharing values, against sharing them", name, unshared, at_least(1))
    yield f"{measured.distinct:,} distinct queries"
    one_by_one = PairJoiner(ONE_BY_ONE, workload.schema, list(dict.fromkeys(queries)))
    _report_distinct(bench, name, measured.joiner, one_by_one)


FLAT = experiment("flat", "two flat messages, against one query at a time (figures 8 and 14)")(
    partial(measure_queries, flat())
)
LEVELS = experiment("levels", "the same with three levels (figures 11 and 15)")(
    partial(measure_queries, levels())
)


def _report_distinct(bench: Bench, name: str, shared: PairJoiner, one_by_one: PairJoiner) -> None:
    """Report the ratio without the effect that equal queries are merged: one distinct query at a time."""
    rounds, seconds = bench.select(_PASSES)
    if one_by_one.results().deliveries != shared.results().distinct:
        raise BenchError("the join methods do not agree on distinct queries")
    one_by_one.warm_up(seconds)
    passes = [shared.joining_pass, one_by_one.joining_pass]
    together, each = time_interleaved(passes, [shared.message], least=rounds)
    bench.figure(
        "one distinct query at a time, against all at once",
        f"{name}, {len(one_by_one.broker):,} of {len(shared.broker):,} queries",
        each.ratio_to(together),
        shared_milliseconds=together.milliseconds,
        alone_milliseconds=each.milliseconds,
    )


# -- other parameters ----------------------------------------------------------------------------------


def _vary(
    labels: tuple[str, str, str],
    statement: str,
    make: Callable[[Any], JoinWorkload],
    bench: Bench,
    values: tuple[float, ...],
    count: int = _COUNT,
    published: Mapping[float, int] = MappingProxyType({}),
) -> Iterator[str]:
    """Add a point to each curve of a chart for each value of a parameter of the workload.

    `published` are the paper's numbers of templates by value.
    """
    chart = bench.chart(*labels, MILLISECONDS, note=f"{count:,} queries; {statement}")
    counts = bench.listing(f"{chart.name}-counts", f"{chart.title}: templates", _COUNTS, _MIRRORED)
    for value in values:
        yield f"{chart.x_label}: {value:g}"
        workload = make(value)
        measured = _measure_methods(bench, chart, value, workload, workload.queries(count))
        measured.list_counts(counts, f"{chart.x_label}: {value:g}", published.get(value))


LEAVES = experiment("leaves", "the number of leaves (figure 9)")(
    partial(
        _vary,
        ("leaves", "Leaves of flat messages", "leaves, and equalities at most"),
        "paper: both ways about 6 times slower at 12 than at 4",
        flat,
        values=scale((4, 6, 8, 10, 12), (4, 8, 12), (4, 6)),
    )
)
EQUALITIES = experiment("equalities", "the number of equalities (figure 12)")(
    partial(
        _vary,
        ("equalities", "Equalities of a query, three levels", "equalities at most"),
        "paper: templates slow down all at once more than one at a time",
        levels,
        values=scale((2, 3, 4, 5), (2, 3, 4, 5), (2, 3)),
        published=_PUBLISHED_BY_EQUALITIES,
    )
)


def measure_skew(
    make: Callable[..., JoinWorkload],
    bench: Bench,
    values: tuple[float, ...] = scale((0.0, 0.4, 0.8, 1.2, 1.6), (0.0, 0.8, 1.6), (0.0, 1.6)),
    count: int = _COUNT,
) -> Iterator[str]:
    """Measure the Zipf exponent of the number of equalities."""
    name = make().schema.name
    title = f"Skew towards few equalities, {_ABOUT[name]}"
    labels = f"{name}-skew", title, "Zipf exponent of the number of equalities"
    statement = "paper: all at once alike, one at a time twice as fast at 1.6 as at 0"
    return _vary(labels, statement, lambda skew: make(skew=skew), bench, values, count)


FLAT_SKEW = experiment("flat-skew", "skew towards few equalities (figure 10)")(partial(measure_skew, flat))
LEVELS_SKEW = experiment("levels-skew", "the same with three levels (figure 13)")(
    partial(measure_skew, levels)
)
