"""Joins of two messages for up to 100,000 queries: sections 6.1 and 6.2 of Hong et al."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sapwood.bench.harness.benchmark_report import Chart, Role
from sapwood.bench.harness.experiment import Bench, BenchError, Experiment, Scales, at_least, at_most
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


@dataclass(frozen=True, slots=True)
class Scale:
    rounds: int
    seconds: float
    """the length of a pass, which joins one pair of messages after the other; at least one pair"""
    queries: tuple[int, ...] = (1_000,)
    values: tuple[float, ...] = ()
    """of the parameter that varies"""


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


def _measure_joiners(scale: Scale, joiners: Sequence[PairJoiner], queries: Sequence[str]) -> PairMeasurement:
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


def measure_queries(workload: JoinWorkload, bench: Bench, scale: Scale) -> Iterator[str]:
    """Measure the number of queries, with the default parameters of the paper."""
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
    queries = workload.queries(max(scale.queries))
    for size in scale.queries:
        yield f"loading {size:,} queries"
        # New brokers for each size: equal queries are merged only if they have seen the same messages.
        joiners = _make_joiners(workload, queries[:size])
        yield f"{size:,} queries"
        measured = _measure_joiners(scale, joiners, queries[:size])
        measured.add_points(chart, size)
        published = _PUBLISHED_TEMPLATES[name].get(size)
        counts.add(f"{size:,} queries", measured.distinct, measured.templates, published, *measured.results)
        if size == min(scale.queries):
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
    bench: Bench, scale: Scale, name: str, shared: PairJoiner, one_by_one: PairJoiner
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


def measure_leaves(bench: Bench, scale: Scale) -> Iterator[str]:
    """Measure the number of leaves, and with it that of equalities."""
    note = "paper: both ways about 6 times slower at 12 than at 4"
    chart = _add_chart(
        bench, scale, "leaves", "Leaves of flat messages", "leaves, and equalities at most", note
    )
    measured = yield from _vary(scale, chart, lambda value: flat(int(value)))
    _report_growth(bench, "leaves", scale.values, measured, paper_times=6)


def measure_equalities(bench: Bench, scale: Scale) -> Iterator[str]:
    """Measure the most equalities of a query over three levels."""
    note = "paper: templates slow down all at once more than one at a time"
    title = "Equalities of a query, three levels"
    chart = _add_chart(bench, scale, "equalities", title, "equalities at most", note)
    measured = yield from _vary(scale, chart, lambda value: levels(int(value)))
    counts = bench.listing(
        "equalities-templates",
        "Templates by the most equalities of a query, three levels",
        tuple(f"K = {most}" for most in scale.values),
        _MIRRORED,
    )
    counts.add("templates", *(each.templates for each in measured))
    published = [_PUBLISHED_BY_EQUALITIES.get(int(most)) for most in scale.values]
    counts.add("paper", *published, published=True)
    counts.add("distinct queries", *(each.distinct for each in measured))
    _report_growth(bench, "equalities", scale.values, measured)


def measure_skew(workload: JoinWorkload, bench: Bench, scale: Scale) -> Iterator[str]:
    """Measure the Zipf exponent of the number of equalities."""
    name = f"{workload.schema.name}-skew"
    title = f"Skew towards few equalities, {_ABOUT[workload.schema.name]}"
    note = "paper: all at once alike, one at a time twice as fast at 1.6 as at 0"
    chart = _add_chart(bench, scale, name, title, "Zipf exponent of the number of equalities", note)
    measured = yield from _vary(scale, chart, workload.with_skew)
    _report_growth(bench, name, scale.values, measured)


def _add_chart(bench: Bench, scale: Scale, name: str, title: str, x_label: str, note: str) -> Chart:
    note = f"{scale.queries[0]:,} queries; {note}"
    return bench.chart(name, title, x_label, MILLISECONDS, note=note, unit=" ms")


def _vary(
    scale: Scale, chart: Chart, make: Callable[[float], JoinWorkload]
) -> Generator[str, None, list[PairMeasurement]]:
    """Add a point to each curve for each value of the parameter."""
    found = []
    for value in scale.values:
        yield f"{chart.x_label}: {value:g}"
        workload = make(value)
        queries = workload.queries(scale.queries[0])
        found.append(_measure_joiners(scale, _make_joiners(workload, queries), queries))
        found[-1].add_points(chart, value)
    return found


def _report_growth(
    bench: Bench,
    name: str,
    values: Sequence[float],
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


def _scales(full: tuple[float, ...], quick: tuple[float, ...], smoke: tuple[float, ...]) -> Scales[Scale]:
    return Scales(
        Scale(7, 0.1, values=full), Scale(3, 0.02, values=quick), Scale(2, 0.0, (20,), values=smoke)
    )


_SIZES = Scales(
    full=Scale(7, 0.1, (10, 100, 1_000, 10_000, 100_000)),
    quick=Scale(3, 0.02, (10, 100, 1_000, 10_000)),
    smoke=Scale(2, 0.0, (5, 40)),
)
_SKEWS = _scales((0.0, 0.4, 0.8, 1.2, 1.6), (0.0, 0.8, 1.6), (0.0, 1.6))
_FLAT, _LEVELS = flat(), levels()

EXPERIMENTS = (
    Experiment(
        "flat",
        "two flat messages, against one query at a time (figures 8 and 14)",
        _SIZES,
        partial(measure_queries, _FLAT),
    ),
    Experiment(
        "levels",
        "the same with three levels (figures 11 and 15)",
        _SIZES,
        partial(measure_queries, _LEVELS),
    ),
    Experiment(
        "leaves",
        "the number of leaves (figure 9)",
        _scales((4, 6, 8, 10, 12), (4, 8, 12), (4, 6)),
        measure_leaves,
    ),
    Experiment(
        "equalities",
        "the number of equalities (figure 12)",
        _scales((2, 3, 4, 5), (2, 3, 4, 5), (2, 3)),
        measure_equalities,
    ),
    Experiment(
        "flat-skew",
        "how much fewer equalities prevail (figure 10)",
        _SKEWS,
        partial(measure_skew, _FLAT),
    ),
    Experiment(
        "levels-skew", "the same with three levels (figure 13)", _SKEWS, partial(measure_skew, _LEVELS)
    ),
)
