"""Two messages that meet, for up to 100,000 queries: sections 6.1 and 6.2 of Hong et al."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sapwood.bench.join_contenders import ALONE, APART, SHARED, WAYS, Contender, Results
from sapwood.bench.join_setting import JoinSetting, Workload, flat, levels
from sapwood.bench.report import Cell, Chart, Listing, Role
from sapwood.bench.setting import Bar, Experiment, details
from sapwood.bench.sources import BenchError
from sapwood.bench.timing import Timing, side_by_side

MILLISECONDS = "milliseconds to join the second message"
MATCHING = "matching alone"
NOISE = 1.1
"""times: what takes no longer, measured on a machine that is never quiet, may seem to"""

Value = TypeVar("Value", int, float)

_ABOUT = {"flat": "two levels", "levels": "three levels"}
_SEQUENTIAL = "paper: > 100 times slower one at a time when queries are many, alike when few"
# Templates by number of queries. The paper takes two that are each other's mirror image for one.
_PUBLISHED_TEMPLATES = {"levels": {10: 6, 100_000: 22}, "flat": {100_000: 6}}
_PUBLISHED_BY_EQUALITIES = {2: 2, 3: 6, 4: 20, 5: 39}


@dataclass(frozen=True, slots=True)
class _Measured:
    """One population of queries, in all ways."""

    shared: Timing
    apart: Timing
    alone: Timing
    matching: Timing
    """which is part of all of them"""
    templates: int
    distinct: int
    results: Results


# -- the number of queries -----------------------------------------------------------------------------


def by_queries(workload: Workload) -> Callable[[JoinSetting], Iterator[str]]:
    """The number of queries, all else as the paper has it by default."""

    def steps(setting: JoinSetting) -> Iterator[str]:
        name = workload.schema.name
        chart = setting.chart(
            Chart(
                name,
                f"Joining two messages, {_ABOUT[name]}",
                "queries",
                MILLISECONDS,
                log_x=True,
                note=_SEQUENTIAL,
                unit=" ms",
            )
        )
        counts = setting.listing(
            Listing(
                f"{name}-counts",
                f"Queries and templates, {_ABOUT[name]}",
                ("distinct", "templates", "templates, paper", "distinct met", "deliveries"),
                note="the paper takes templates that are each other's mirror image for one",
            )
        )
        asked = workload.queries(max(setting.scale.sizes))
        for size in setting.scale.sizes:
            yield f"loading {size:,} queries"
            # Anew for each size: equal queries are one only if they have seen the same messages.
            ways = [Contender(way, workload.schema, asked[:size]) for way in WAYS]
            yield f"{size:,} queries"
            measured = _measure(setting, ways, asked[:size])
            _add_points(chart, size, measured)
            published: Cell = _PUBLISHED_TEMPLATES[name].get(size)
            counts.add(
                f"{size:,} queries", measured.distinct, measured.templates, published, *measured.results
            )
            if size == min(setting.scale.sizes):
                _report_few(setting, name, size, measured)
        _report_many(setting, name, size, measured)
        yield f"{measured.distinct:,} distinct queries"
        _report_distinct(
            setting, name, ways[0], Contender(ALONE, workload.schema, list(dict.fromkeys(asked)))
        )

    return steps


def _report_few(setting: JoinSetting, name: str, size: int, measured: _Measured) -> None:
    setting.figure(
        "all queries at once, against one at a time",
        f"{name}, {size:,} queries",
        measured.shared.times(measured.alone),
        "times",
        NOISE,
        **_all_details(measured),
    )


def _report_many(setting: JoinSetting, name: str, size: int, measured: _Measured) -> None:
    workload = f"{name}, {size:,} queries"
    setting.figure(
        "one query at a time, against all at once",
        workload,
        measured.alone.times(measured.shared),
        "times",
        Bar(100, at_least=True),
        **_all_details(measured),
    )
    alone, shared = (timing.without(measured.matching) for timing in (measured.alone, measured.shared))
    setting.figure(
        "one query at a time, against all at once, but for matching",
        workload,
        alone.milliseconds / max(shared.milliseconds, 1e-6),
        "times",
        shared_milliseconds=round(shared.milliseconds, 4),
        alone_milliseconds=round(alone.milliseconds, 4),
    )
    setting.figure(
        "without sharing values, against sharing them",
        workload,
        measured.apart.times(measured.shared),
        "times",
        Bar(1, at_least=True),
        **_all_details(measured),
    )


def _report_distinct(setting: JoinSetting, name: str, shared: Contender, alone: Contender) -> None:
    """How much of it is not merely that equal queries are one: without them, one at a time."""
    if alone.results().deliveries != shared.results().distinct:
        raise BenchError("the ways to join do not agree on distinct queries")
    alone.settle(setting.scale.pass_seconds)
    passes = [shared.joining_pass, alone.joining_pass]
    together, each = side_by_side(passes, [shared.message], least=setting.scale.rounds)
    setting.figure(
        "one distinct query at a time, against all at once",
        f"{name}, {len(alone.broker):,} of {len(shared.broker):,} queries",
        each.times(together),
        "times",
        shared_milliseconds=round(together.milliseconds, 4),
        alone_milliseconds=round(each.milliseconds, 4),
    )


def _all_details(measured: _Measured) -> dict[str, float]:
    return {
        "shared_milliseconds": round(measured.shared.milliseconds, 4),
        "unshared_values_milliseconds": round(measured.apart.milliseconds, 4),
        "alone_milliseconds": round(measured.alone.milliseconds, 4),
        "matching_milliseconds": round(measured.matching.milliseconds, 4),
        "templates": measured.templates,
        "distinct": measured.distinct,
        "queries_met": measured.results.distinct,
        "deliveries": measured.results.deliveries,
    }


# -- everything else -----------------------------------------------------------------------------------


def by_leaves(setting: JoinSetting) -> Iterator[str]:
    """The number of leaves, and with it that of equalities."""
    chart = setting.chart(
        Chart(
            "leaves",
            "Leaves of flat messages",
            "leaves, and equalities at most",
            MILLISECONDS,
            note=f"{setting.scale.queries:,} queries; paper: both ways about 6 times slower at 12 than at 4",
            unit=" ms",
        )
    )
    measured = yield from _vary(setting, chart, setting.scale.leaf_counts, flat)
    _report_growth(setting, "leaves", setting.scale.leaf_counts, measured, paper_times=6)


def by_equalities(setting: JoinSetting) -> Iterator[str]:
    """The most equalities of a query over three levels."""
    scale = setting.scale
    chart = setting.chart(
        Chart(
            "equalities",
            "Equalities of a query, three levels",
            "equalities at most",
            MILLISECONDS,
            note=f"{scale.queries:,} queries; paper: templates slow down all at once more than one at a time",
            unit=" ms",
        )
    )
    measured = yield from _vary(setting, chart, scale.equality_counts, levels)
    counts = setting.listing(
        Listing(
            "equalities-templates",
            "Templates by the most equalities of a query, three levels",
            tuple(f"K = {most}" for most in scale.equality_counts),
            note="the paper takes templates that are each other's mirror image for one",
        )
    )
    counts.add("templates", *(each.templates for each in measured))
    published = [_PUBLISHED_BY_EQUALITIES.get(most) for most in scale.equality_counts]
    counts.add("paper", *published, published=True)
    counts.add("distinct queries", *(each.distinct for each in measured))
    _report_growth(setting, "equalities", scale.equality_counts, measured)


def by_skew(workload: Workload) -> Callable[[JoinSetting], Iterator[str]]:
    """The Zipf exponent of the number of equalities."""

    def steps(setting: JoinSetting) -> Iterator[str]:
        name = workload.schema.name
        chart = setting.chart(
            Chart(
                f"{name}-skew",
                f"Skew towards few equalities, {_ABOUT[name]}",
                "Zipf exponent of the number of equalities",
                MILLISECONDS,
                note=f"{setting.scale.queries:,} queries; paper: all at once alike, "
                "one at a time twice as fast at 1.6 as at 0",
                unit=" ms",
            )
        )
        measured = yield from _vary(setting, chart, setting.scale.skews, workload.skewed)
        _report_growth(setting, f"{name}-skew", setting.scale.skews, measured)

    return steps


def _vary(
    setting: JoinSetting, chart: Chart, values: Sequence[Value], make: Callable[[Value], Workload]
) -> Generator[str, None, list[_Measured]]:
    """Adds a point to each curve for each value."""
    found = []
    for value in values:
        yield f"{chart.x_label}: {value:g}"
        workload = make(value)
        asked = workload.queries(setting.scale.queries)
        ways = [Contender(way, workload.schema, asked) for way in WAYS]
        found.append(_measure(setting, ways, asked))
        _add_points(chart, value, found[-1])
    return found


def _report_growth(
    setting: JoinSetting,
    name: str,
    values: Sequence[float],
    measured: Sequence[_Measured],
    **paper: float,
) -> None:
    """What the last value costs, against the first."""
    first, last = measured[0], measured[-1]
    for way, few, many in (
        (SHARED, first.shared, last.shared),
        (ALONE, first.alone, last.alone),
    ):
        setting.figure(
            way.label,
            f"{name}, {values[-1]:g} against {values[0]:g}",
            many.milliseconds / few.milliseconds,
            "times",
            first_milliseconds=round(few.milliseconds, 4),
            last_milliseconds=round(many.milliseconds, 4),
            first_templates=first.templates,
            last_templates=last.templates,
            **paper,
        )


# -- measuring -----------------------------------------------------------------------------------------


def _measure(setting: JoinSetting, ways: Sequence[Contender], asked: Sequence[str]) -> _Measured:
    """All ways by turns."""
    found = [way.results() for way in ways]
    if len({results.deliveries for results in found}) > 1:
        raise BenchError(f"the ways to join do not agree: {found}")
    for way in ways:
        way.settle(setting.scale.pass_seconds)
    passes = [*(way.joining_pass for way in ways), ways[0].matching_pass]
    shared, apart, alone, matching = side_by_side(passes, [ways[0].message], least=setting.scale.rounds)
    return _Measured(shared, apart, alone, matching, ways[0].templates, len(set(asked)), found[0])


def _add_points(chart: Chart, x: float, measured: _Measured) -> None:
    for label, role, timing in (
        (SHARED.label, SHARED.role, measured.shared),
        (APART.label, APART.role, measured.apart),
        (ALONE.label, ALONE.role, measured.alone),
        (MATCHING, Role.OTHER, measured.matching),
    ):
        found = details(timing, templates=measured.templates, distinct=measured.distinct)
        chart.curve(label, role).add(x, timing.milliseconds, **found)


_FLAT, _LEVELS = flat(), levels()

EXPERIMENTS = (
    Experiment(
        "flat", "two flat messages, against one query at a time (figures 8 and 14)", by_queries(_FLAT)
    ),
    Experiment("levels", "the same with three levels (figures 11 and 15)", by_queries(_LEVELS)),
    Experiment("leaves", "the number of leaves (figure 9)", by_leaves),
    Experiment("equalities", "the number of equalities (figure 12)", by_equalities),
    Experiment("flat-skew", "how much fewer equalities prevail (figure 10)", by_skew(_FLAT)),
    Experiment("levels-skew", "the same with three levels (figure 13)", by_skew(_LEVELS)),
)
