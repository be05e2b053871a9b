"""Joins of two messages for up to 100,000 queries: sections 6.1 and 6.2 of Hong et al."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sapwood.bench.harness import Axis, Bench, BenchError, Chart, Role, at_least, at_most, experiment
from sapwood.bench.harness.experiments import Limit
from sapwood.bench.harness.timing import Timing, time_interleaved
from sapwood.bench.join.join_workload import (
    METHODS,
    ONE_BY_ONE,
    JoinWorkload,
    PairJoiner,
    PairResults,
    flat,
    levels,
)

MILLISECONDS = Axis("milliseconds to join the second message", " ms")
MATCHING = "matching alone"
NOISE = 1.1
"""times: the tolerance for two equal costs on a machine with other load"""
_MIRRORED = "the paper counts two templates that mirror each other as one"
_ABOUT = {"flat": "two levels", "levels": "three levels"}
# Templates by number of queries, and by the most equalities of a query.
_PUBLISHED_TEMPLATES = {"levels": {10: 6, 100_000: 22}, "flat": {100_000: 6}}
_PUBLISHED_BY_EQUALITIES = {2: 2, 3: 6, 4: 20, 5: 39}


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


def _measure_methods(
    chart: Chart, x: float, workload: JoinWorkload, queries: Sequence[str], rounds: int, seconds: float
) -> PairMeasurement:
    """Time all methods in the same rounds, after a check that they find the same; add a point for each.

    `seconds` is the length of a pass, which joins pairs of messages one after the other.
    """
    # New brokers for each number of queries: equal ones are merged only if they have seen the same messages.
    joiners = [PairJoiner(method, workload.schema, queries) for method in METHODS]
    found = [joiner.results() for joiner in joiners]
    if len({results.deliveries for results in found}) > 1:
        raise BenchError(f"the join methods do not agree: {found}")
    for joiner in joiners:
        joiner.warm_up(seconds)
    passes = [*(joiner.joining_pass for joiner in joiners), joiners[0].matching_pass]
    timings = time_interleaved(passes, [joiners[0].message], least=rounds)
    templates, distinct = joiners[0].templates, len(set(queries))
    curves = [*((method.label, method.role) for method in METHODS), (MATCHING, Role.OTHER)]
    for (label, role), timing in zip(curves, timings, strict=True):
        details = timing.details(templates=templates, distinct=distinct)
        chart.curve(label, role).add(x, timing.milliseconds, **details)
    shared, unshared, alone, matching = timings
    return PairMeasurement(shared, unshared, alone, matching, joiners[0], templates, distinct, found[0])


# -- the number of queries -----------------------------------------------------------------------------


def measure_queries(
    workload: JoinWorkload, bench: Bench, sizes: tuple[int, ...], rounds: int, seconds: float
) -> Iterator[str]:
    """Measure the number of queries, with the default parameters of the paper."""
    name = workload.schema.name
    title = f"Joining two messages, {_ABOUT[name]}"
    note = "paper: > 100 times slower one at a time when queries are many, alike when few"
    chart = bench.chart(name, title, "queries", MILLISECONDS, log_x=True, note=note)
    counts = bench.listing(
        f"{name}-counts",
        f"Queries and templates, {_ABOUT[name]}",
        ("distinct", "templates", "templates, paper", "distinct satisfied", "deliveries"),
        _MIRRORED,
    )
    queries = workload.queries(max(sizes))
    for size in sizes:
        yield f"{size:,} queries"
        measured = _measure_methods(chart, size, workload, queries[:size], rounds, seconds)
        published = _PUBLISHED_TEMPLATES[name].get(size)
        counts.add(f"{size:,} queries", measured.distinct, measured.templates, published, *measured.results)
        if size == min(sizes):
            few = measured.shared.ratio_to(measured.one_by_one)
            measured.report(bench, "all queries at once, against one at a time", name, few, at_most(NOISE))
    many = measured.one_by_one.ratio_to(measured.shared)
    measured.report(bench, "one query at a time, against all at once", name, many, at_least(100))
    unshared = measured.unshared_values.ratio_to(measured.shared)
    measured.report(bench, "without sharing values, against sharing them", name, unshared, at_least(1))
    yield f"{measured.distinct:,} distinct queries"
    one_by_one = PairJoiner(ONE_BY_ONE, workload.schema, list(dict.fromkeys(queries)))
    _report_distinct(bench, name, measured.joiner, one_by_one, rounds, seconds)


def _report_distinct(
    bench: Bench, name: str, shared: PairJoiner, one_by_one: PairJoiner, rounds: int, seconds: float
) -> None:
    """Report the ratio without the effect that equal queries are merged: one distinct query at a time."""
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
    bench: Bench,
    name: str,
    title: str,
    x_label: str,
    statement: str,
    make: Callable[[Any], JoinWorkload],
    values: tuple[float, ...],
    count: int,
    rounds: int,
    seconds: float,
) -> Generator[str, None, list[PairMeasurement]]:
    """Add a point to each curve of a chart for each value of a parameter of the workload."""
    chart = bench.chart(name, title, x_label, MILLISECONDS, note=f"{count:,} queries; {statement}")
    found = []
    for value in values:
        yield f"{x_label}: {value:g}"
        workload = make(value)
        found.append(_measure_methods(chart, value, workload, workload.queries(count), rounds, seconds))
    return found


def measure_leaves(bench: Bench, **scale: Any) -> Iterator[str]:
    """Measure the number of leaves, and with it that of equalities."""
    labels = "leaves", "Leaves of flat messages", "leaves, and equalities at most"
    return _vary(bench, *labels, "paper: both ways about 6 times slower at 12 than at 4", flat, **scale)


def measure_skew(name: str, make: Callable[..., JoinWorkload], bench: Bench, **scale: Any) -> Iterator[str]:
    """Measure the Zipf exponent of the number of equalities."""
    labels = f"Skew towards few equalities, {_ABOUT[name]}", "Zipf exponent of the number of equalities"
    statement = "paper: all at once alike, one at a time twice as fast at 1.6 as at 0"
    return _vary(bench, f"{name}-skew", *labels, statement, lambda skew: make(skew=skew), **scale)


def measure_equalities(bench: Bench, values: tuple[int, ...], **scale: Any) -> Iterator[str]:
    """Measure the most equalities of a query over three levels, and list the templates."""
    labels = "equalities", "Equalities of a query, three levels", "equalities at most"
    statement = "paper: templates slow down all at once more than one at a time"
    measured = yield from _vary(bench, *labels, statement, levels, values, **scale)
    counts = bench.listing(
        "equalities-templates",
        "Templates by the most equalities of a query, three levels",
        tuple(f"K = {most}" for most in values),
        _MIRRORED,
    )
    counts.add("templates", *(each.templates for each in measured))
    counts.add("paper", *(_PUBLISHED_BY_EQUALITIES.get(most) for most in values), published=True)
    counts.add("distinct queries", *(each.distinct for each in measured))


# -- declarations --------------------------------------------------------------------------------------

_PASSES: dict[str, tuple[Any, ...]] = {"rounds": (7, 3, 2), "seconds": (0.1, 0.02, 0.0)}
_SIZES = _PASSES | {"sizes": ((10, 100, 1_000, 10_000, 100_000), (10, 100, 1_000, 10_000), (5, 40))}
_VALUES = _PASSES | {"count": (1_000, 1_000, 20)}
_LEAVES = ((4, 6, 8, 10, 12), (4, 8, 12), (4, 6))
_EQUALITIES = ((2, 3, 4, 5), (2, 3, 4, 5), (2, 3))
_SKEWS = ((0.0, 0.4, 0.8, 1.2, 1.6), (0.0, 0.8, 1.6), (0.0, 1.6))

FLAT = experiment("flat", "two flat messages, against one query at a time (figures 8 and 14)", **_SIZES)(
    partial(measure_queries, flat())
)
LEVELS = experiment("levels", "the same with three levels (figures 11 and 15)", **_SIZES)(
    partial(measure_queries, levels())
)
LEAVES = experiment("leaves", "the number of leaves (figure 9)", values=_LEAVES, **_VALUES)(measure_leaves)
EQUALITIES = experiment("equalities", "the number of equalities (figure 12)", values=_EQUALITIES, **_VALUES)(
    measure_equalities
)
FLAT_SKEW = experiment("flat-skew", "skew towards few equalities (figure 10)", values=_SKEWS, **_VALUES)(
    partial(measure_skew, "flat", flat)
)
LEVELS_SKEW = experiment("levels-skew", "the same with three levels (figure 13)", values=_SKEWS, **_VALUES)(
    partial(measure_skew, "levels", levels)
)
