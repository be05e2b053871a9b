"""Joins of two messages for up to 100,000 queries: sections 6.1 and 6.2 of Hong et al."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sapwood.bench.harness.benchmark_report import Chart, Role
from sapwood.bench.harness.experiment import Bench, BenchError, at_least, at_most, experiment
from sapwood.bench.harness.timing import Timing, time_interleaved
from sapwood.bench.join.join_workload import (
    METHODS,
    ONE_BY_ONE,
    SHARED,
    JoinWorkload,
    PairJoiner,
    PairResults,
    flat,
    levels,
)

MILLISECONDS = "milliseconds to join the second message"
MATCHING = "matching alone"
NOISE = 1.1
"""times: the tolerance for two equal costs on a machine with other load"""
_MIRRORED = "the paper counts two templates that mirror each other as one"
_ABOUT = {"flat": "two levels", "levels": "three levels"}
# Templates by number of queries, and by the most equalities of a query.
_PUBLISHED_TEMPLATES = {"levels": {10: 6, 100_000: 22}, "flat": {100_000: 6}}
_PUBLISHED_BY_EQUALITIES = {2: 2, 3: 6, 4: 20, 5: 39}


Values = tuple[float, ...]


class PassScale(NamedTuple):
    """The rounds, and the length of a pass, which joins pairs of messages one after the other."""

    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PairMeasurement:
    """One population of queries, joined by all methods."""

    shared: Timing
    unshared_values: Timing
    one_by_one: Timing
    matching: Timing
    """which is part of all of them"""
    templates: int
    distinct: int
    results: PairResults

    def details(self) -> dict[str, float]:
        return {
            "shared_milliseconds": self.shared.milliseconds,
            "unshared_values_milliseconds": self.unshared_values.milliseconds,
            "alone_milliseconds": self.one_by_one.milliseconds,
            "matching_milliseconds": self.matching.milliseconds,
            "templates": self.templates,
            "distinct": self.distinct,
            "queries_met": self.results.distinct,
            "deliveries": self.results.deliveries,
        }

    def add_points(self, chart: Chart, x: float) -> None:
        timings = (self.shared, self.unshared_values, self.one_by_one, self.matching)
        curves = [*((method.label, method.role) for method in METHODS), (MATCHING, Role.OTHER)]
        for (label, role), timing in zip(curves, timings, strict=True):
            details = timing.details(templates=self.templates, distinct=self.distinct)
            chart.curve(label, role).add(x, timing.milliseconds, **details)


def _measure_joiners(
    scale: PassScale, joiners: Sequence[PairJoiner], queries: Sequence[str]
) -> PairMeasurement:
    """Time all methods in the same rounds, after a check that they find the same."""
    found = [joiner.results() for joiner in joiners]
    if len({results.deliveries for results in found}) > 1:
        raise BenchError(f"the join methods do not agree: {found}")
    for joiner in joiners:
        joiner.warm_up(scale.seconds)
    passes = [*(joiner.joining_pass for joiner in joiners), joiners[0].matching_pass]
    shared, unshared, alone, matching = time_interleaved(passes, [joiners[0].message], least=scale.rounds)
    counts = joiners[0].templates, len(set(queries)), found[0]
    return PairMeasurement(shared, unshared, alone, matching, *counts)


def _make_joiners(workload: JoinWorkload, queries: Sequence[str]) -> list[PairJoiner]:
    return [PairJoiner(method, workload.schema, queries) for method in METHODS]


# -- the number of queries -----------------------------------------------------------------------------


def measure_queries(
    workload: JoinWorkload, bench: Bench, sizes: tuple[int, ...], rounds: int, seconds: float
) -> Iterator[str]:
    """Measure the number of queries, with the default parameters of the paper."""
    scale = PassScale(rounds, seconds)
    name = workload.schema.name
    chart = bench.chart(
        name,
        f"Joining two messages, {_ABOUT[name]}",
        "queries",
        MILLISECONDS,
        log_x=True,
        note="paper: > 100 times slower one at a time when queries are many, alike when few",
        unit=" ms",
    )
    counts = bench.listing(
        f"{name}-counts",
        f"Queries and templates, {_ABOUT[name]}",
        ("distinct", "templates", "templates, paper", "distinct satisfied", "deliveries"),
        _MIRRORED,
    )
    queries = workload.queries(max(sizes))
    for size in sizes:
        yield f"loading {size:,} queries"
        # New brokers for each size: equal queries are merged only if they have seen the same messages.
        joiners = _make_joiners(workload, queries[:size])
        yield f"{size:,} queries"
        measured = _measure_joiners(scale, joiners, queries[:size])
        measured.add_points(chart, size)
        published = _PUBLISHED_TEMPLATES[name].get(size)
        counts.add(f"{size:,} queries", measured.distinct, measured.templates, published, *measured.results)
        if size == min(sizes):
            bench.figure(
                "all queries at once, against one at a time",
                f"{name}, {size:,} queries",
                measured.shared.ratio_to(measured.one_by_one),
                "times",
                at_most(NOISE),
                **measured.details(),
            )
    _report_many(bench, f"{name}, {size:,} queries", measured)
    yield f"{measured.distinct:,} distinct queries"
    _report_distinct(
        bench,
        scale,
        name,
        joiners[0],
        PairJoiner(ONE_BY_ONE, workload.schema, list(dict.fromkeys(queries))),
    )


def _report_many(bench: Bench, workload: str, measured: PairMeasurement) -> None:
    measure = "one query at a time, against all at once"
    ratio = measured.one_by_one.ratio_to(measured.shared)
    bench.figure(measure, workload, ratio, "times", at_least(100), **measured.details())
    alone = measured.one_by_one.subtract(measured.matching).milliseconds
    shared = measured.shared.subtract(measured.matching).milliseconds
    details = {"shared_milliseconds": shared, "alone_milliseconds": alone}
    bench.figure(f"{measure}, without matching", workload, alone / max(shared, 1e-6), **details)
    measure = "without sharing values, against sharing them"
    ratio = measured.unshared_values.ratio_to(measured.shared)
    bench.figure(measure, workload, ratio, "times", at_least(1), **measured.details())


def _report_distinct(
    bench: Bench, scale: PassScale, name: str, shared: PairJoiner, one_by_one: PairJoiner
) -> None:
    """Report the ratio without the effect that equal queries are merged: one distinct query at a time."""
    if one_by_one.results().deliveries != shared.results().distinct:
        raise BenchError("the join methods do not agree on distinct queries")
    one_by_one.warm_up(scale.seconds)
    passes = [shared.joining_pass, one_by_one.joining_pass]
    together, each = time_interleaved(passes, [shared.message], least=scale.rounds)
    bench.figure(
        "one distinct query at a time, against all at once",
        f"{name}, {len(one_by_one.broker):,} of {len(shared.broker):,} queries",
        each.ratio_to(together),
        shared_milliseconds=together.milliseconds,
        alone_milliseconds=each.milliseconds,
    )


# -- other parameters ----------------------------------------------------------------------------------


def measure_leaves(bench: Bench, values: Values, **scale: Any) -> Iterator[str]:
    """Measure the number of leaves, and with it that of equalities."""
    labels = "Leaves of flat messages", "leaves, and equalities at most"
    note = "paper: both ways about 6 times slower at 12 than at 4"
    measured = yield from _vary(bench, "leaves", *labels, note, values, flat, **scale)
    _report_growth(bench, "leaves", values, measured, paper_times=6)


def measure_equalities(bench: Bench, values: Values, **scale: Any) -> Iterator[str]:
    """Measure the most equalities of a query over three levels."""
    labels = "Equalities of a query, three levels", "equalities at most"
    note = "paper: templates slow down all at once more than one at a time"
    measured = yield from _vary(bench, "equalities", *labels, note, values, levels, **scale)
    counts = bench.listing(
        "equalities-templates",
        "Templates by the most equalities of a query, three levels",
        tuple(f"K = {most}" for most in values),
        _MIRRORED,
    )
    counts.add("templates", *(each.templates for each in measured))
    counts.add("paper", *(_PUBLISHED_BY_EQUALITIES.get(int(most)) for most in values), published=True)
    counts.add("distinct queries", *(each.distinct for each in measured))
    _report_growth(bench, "equalities", values, measured)


def measure_skew(workload: JoinWorkload, bench: Bench, values: Values, **scale: Any) -> Iterator[str]:
    """Measure the Zipf exponent of the number of equalities."""
    schema = workload.schema.name
    labels = f"Skew towards few equalities, {_ABOUT[schema]}", "Zipf exponent of the number of equalities"
    note = "paper: all at once alike, one at a time twice as fast at 1.6 as at 0"
    measured = yield from _vary(bench, f"{schema}-skew", *labels, note, values, workload.with_skew, **scale)
    _report_growth(bench, f"{schema}-skew", values, measured)


def _vary(
    bench: Bench,
    name: str,
    title: str,
    x_label: str,
    note: str,
    values: Values,
    make: Callable[[Any], JoinWorkload],
    count: int,
    rounds: int,
    seconds: float,
) -> Generator[str, None, list[PairMeasurement]]:
    """Add a point to each curve of a chart for each value of a parameter."""
    note = f"{count:,} queries; {note}"
    chart = bench.chart(name, title, x_label, MILLISECONDS, note=note, unit=" ms")
    found = []
    for value in values:
        yield f"{x_label}: {value:g}"
        workload = make(value)
        queries = workload.queries(count)
        joiners = _make_joiners(workload, queries)
        found.append(_measure_joiners(PassScale(rounds, seconds), joiners, queries))
        found[-1].add_points(chart, value)
    return found


def _report_growth(
    bench: Bench,
    name: str,
    values: Values,
    measured: Sequence[PairMeasurement],
    **paper: float,
) -> None:
    """Report the cost at the last value against the first."""
    first, last = measured[0], measured[-1]
    for method, before, after in (
        (SHARED, first.shared, last.shared),
        (ONE_BY_ONE, first.one_by_one, last.one_by_one),
    ):
        bench.figure(
            method.label,
            f"{name}, {values[-1]:g} against {values[0]:g}",
            after.milliseconds / before.milliseconds,
            first_milliseconds=before.milliseconds,
            last_milliseconds=after.milliseconds,
            first_templates=first.templates,
            last_templates=last.templates,
            **paper,
        )


# -- declarations --------------------------------------------------------------------------------------

_PASSES: dict[str, tuple[Any, ...]] = {"rounds": (7, 3, 2), "seconds": (0.1, 0.02, 0.0)}
_COUNT = (1_000, 1_000, 20)
_SIZES = ((10, 100, 1_000, 10_000, 100_000), (10, 100, 1_000, 10_000), (5, 40))
_SKEWS = ((0.0, 0.4, 0.8, 1.2, 1.6), (0.0, 0.8, 1.6), (0.0, 1.6))
_LEAVES = ((4, 6, 8, 10, 12), (4, 8, 12), (4, 6))
_EQUALITIES = ((2, 3, 4, 5), (2, 3, 4, 5), (2, 3))

FLAT = experiment(
    "flat", "two flat messages, against one query at a time (figures 8 and 14)", sizes=_SIZES, **_PASSES
)(partial(measure_queries, flat()))
LEVELS = experiment("levels", "the same with three levels (figures 11 and 15)", sizes=_SIZES, **_PASSES)(
    partial(measure_queries, levels())
)
LEAVES = experiment("leaves", "the number of leaves (figure 9)", count=_COUNT, values=_LEAVES, **_PASSES)(
    measure_leaves
)
EQUALITIES = experiment(
    "equalities", "the number of equalities (figure 12)", count=_COUNT, values=_EQUALITIES, **_PASSES
)(measure_equalities)
FLAT_SKEW = experiment(
    "flat-skew", "skew towards few equalities (figure 10)", count=_COUNT, values=_SKEWS, **_PASSES
)(partial(measure_skew, flat()))
LEVELS_SKEW = experiment(
    "levels-skew", "the same with three levels (figure 13)", count=_COUNT, values=_SKEWS, **_PASSES
)(partial(measure_skew, levels()))
