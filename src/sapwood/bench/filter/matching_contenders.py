"""The contenders of matching: a matcher, warm and at first sight of the messages, and lxml as the baseline.

The baseline parses a message once and evaluates every distinct query, compiled beforehand, as `boolean(…)`,
which saves lxml the wrapping of nodes. With many queries that takes seconds for a message, so it is measured
on a sample of queries and messages and scaled up to all queries; the time of parsing is not scaled.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from lxml import etree

from sapwood import Matcher, Tuning
from sapwood.bench.harness import Bench, Chart, ChartAxis, Role
from sapwood.bench.harness.timer import Pass, Timing, clock, match_pass, mean_matches, time_once, time_rounds

COST = ChartAxis("cost of a message (× raw parsing)", "×")
WARM = "Sapwood"
FIRST = "Sapwood, first sight of the messages"
BASELINE = "lxml, one query at a time (a sample, scaled up)"


class Precision(NamedTuple):
    """The number of rounds of a measurement, and the size of the sample of the lxml baseline."""

    rounds: int
    seconds: float
    """that the rounds of one measurement take at least"""
    sampled_queries: int
    sampled_messages: int


PRECISION = (Precision(7, 1.0, 1_000, 20), Precision(3, 0.1, 300, 10), Precision(2, 0.0, 5, 2))


def load_matcher(queries: Sequence[str], tuning: Tuning | None = None) -> tuple[Matcher, float]:
    """Return a matcher with all queries, and the seconds that loading took."""
    gc.collect()
    matcher = Matcher(tuning=tuning)
    start = clock()
    matcher.add_many(enumerate(queries))
    return matcher, clock() - start


def compile_seconds(queries: Sequence[str]) -> float:
    """Return the seconds that lxml takes to compile all queries into objects that live together."""
    start = clock()
    compiled = [etree.XPath(query) for query in queries]
    seconds = clock() - start
    del compiled
    return seconds


def time_warm(bench: Bench, matcher: Matcher, messages: Sequence[bytes]) -> Timing:
    """Time matching of messages that have been matched before."""
    precision = bench.select(PRECISION)
    own_pass = partial(match_pass, matcher, messages)
    return time_rounds(own_pass, messages, least=precision.rounds, seconds=precision.seconds, warm_up=2)


def cost_one_by_one(queries: Sequence[str], messages: Sequence[bytes], precision: Precision) -> float:
    """Return the cost of lxml as a multiple of raw parsing, measured on a sample of the messages."""
    sample = Random(1).sample(list(messages), min(precision.sampled_messages, len(messages)))
    return time_rounds(one_by_one_pass(queries, sample, precision), sample, least=3).multiple


def one_by_one_pass(queries: Sequence[str], messages: Sequence[bytes], precision: Precision) -> Pass:
    """Return a pass of lxml over all messages, with a sample of the queries, equal ones evaluated once."""
    distinct = list(dict.fromkeys(queries))
    chosen = Random(1).sample(distinct, min(precision.sampled_queries, len(distinct)))
    compiled = [etree.XPath(f"boolean({query})") for query in chosen]
    share = len(chosen) / len(distinct)

    def whole_pass() -> float:
        start = clock()
        for message in messages:
            tree = etree.fromstring(message).getroottree()
            for query in compiled:
                query(tree)
        return clock() - start

    def sampled_pass() -> float:
        parsing = evaluating = 0.0
        for message in messages:
            start = clock()
            tree = etree.fromstring(message).getroottree()
            middle = clock()
            for query in compiled:
                query(tree)
            parsing += middle - start
            evaluating += clock() - middle
        return parsing + evaluating / share

    # Reading the clock for each message would count where a message takes microseconds.
    return sampled_pass if share < 1 else whole_pass


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
    cost = cost_one_by_one(queries, messages, bench.select(PRECISION))
    chart.curve(BASELINE, Role.BASELINE).add(x, cost)
