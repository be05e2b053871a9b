"""Loading of a matcher, timing of warm matching, and the points of cost curves."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sapwood import Matcher
from sapwood.bench.filter import lxml_baseline
from sapwood.bench.harness.benchmark_report import Chart, Role
from sapwood.bench.harness.experiment import Bench
from sapwood.bench.harness.timing import Timing, clock, match_pass, mean_matches, time_once, time_rounds

COST = "cost of a message (× raw parsing)"
WARM = "Sapwood"
FIRST = "Sapwood, first sight of the messages"


@dataclass(frozen=True, slots=True)
class Precision:
    """The number of rounds of a measurement, and the size of the sample of the lxml baseline."""

    rounds: int
    seconds: float
    """that the rounds of one measurement take at least"""
    sampled_queries: int
    sampled_messages: int


PRECISION = (Precision(7, 1.0, 1_000, 20), Precision(3, 0.1, 300, 10), Precision(2, 0.0, 5, 2))


def load_matcher(queries: Sequence[str]) -> tuple[Matcher, float]:
    """Return a matcher with all queries, and the seconds that loading took."""
    gc.collect()
    matcher = Matcher()
    start = clock()
    matcher.add_many(enumerate(queries))
    return matcher, clock() - start


def time_warm(bench: Bench, matcher: Matcher, messages: Sequence[bytes]) -> Timing:
    """Time matching of messages that have been matched before."""
    precision = bench.select(PRECISION)
    own_pass = partial(match_pass, matcher, messages)
    return time_rounds(own_pass, messages, least=precision.rounds, seconds=precision.seconds, warm_up=2)


def add_points(
    bench: Bench, chart: Chart, x: float, queries: Sequence[str], messages: Sequence[bytes]
) -> None:
    """Measure one population of queries and add a point to each curve of the chart."""
    add_matcher_points(bench, chart, x, load_matcher(queries)[0], messages)
    add_baseline_point(bench, chart, x, queries, messages)


def add_matcher_points(
    bench: Bench, chart: Chart, x: float, matcher: Matcher, messages: Sequence[bytes], label: str = ""
) -> None:
    """Add the points of a loaded matcher: first sight and warm, or only warm to a curve of that label."""
    first = time_once(partial(match_pass, matcher, messages), messages)
    warm = time_warm(bench, matcher, messages)
    details = warm.details(queries=len(matcher), matched=mean_matches(matcher, messages))
    chart.curve(label or WARM, Role.OTHER if label else Role.SAPWOOD).add(x, warm.multiple, **details)
    if not label:
        chart.curve(FIRST, Role.FIRST).add(x, first.multiple, **first.details())


def add_baseline_point(
    bench: Bench, chart: Chart, x: float, queries: Sequence[str], messages: Sequence[bytes]
) -> None:
    """Add the point of lxml, one query at a time."""
    precision = bench.select(PRECISION)
    cost = lxml_baseline.cost_one_by_one(
        queries, messages, precision.sampled_queries, precision.sampled_messages
    )
    chart.curve(lxml_baseline.LABEL, Role.BASELINE).add(x, cost)
