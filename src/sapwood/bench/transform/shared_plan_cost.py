"""One shared plan for all queries against a plan for each: experiments 15 and 16 of the YFilter thesis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from sapwood.bench.harness import Bench, Chart, Role, at_least, experiment, scale
from sapwood.bench.harness.timer import Timing, plot_interleaved
from sapwood.bench.transform.evaluators import (
    MILLISECONDS,
    Evaluator,
    per_query_evaluator,
    shared_evaluator,
)
from sapwood.bench.transform.thesis_workload import MANY_VALUES, book, compile_all

_CURVES = (
    ("shared, until the last group", Role.SAPWOOD),
    ("shared, until all is written", Role.OTHER),
    ("a plan each, until the last group", Role.BASELINE),
    ("a plan each, until all is written", Role.TWIN),
)
# Tables 12 and 13, and the text.
_PUBLISHED_EACH = {10_000: 516, 20_000: 1111, 30_000: 1715, 40_000: 2344, 50_000: 2985}
_PUBLISHED_SHARED = {10_000: 105, 20_000: 156, 30_000: 212, 40_000: 264, 50_000: 317, 100_000: 472}


@experiment("sharing", "one network against a plan for each query (experiments 15, 16)")
def measure_sharing(
    bench: Bench,
    message_count: int = scale(10, 5, 2),
    rounds: int = scale(3, 2, 2),
    sizes: tuple[int, ...] = scale((10_000, 20_000, 30_000, 40_000, 50_000), (1_000, 3_000, 5_000), (20, 40)),
    shared_only: int = scale(100_000, 10_000, 60),
) -> Iterator[str]:
    """Measure both contenders at several sizes, and the shared plan also with `shared_only` queries."""
    workload = book()
    chart = bench.chart(
        "sharing",
        "One network for all queries, or a plan for each",
        "distinct queries",
        MILLISECONDS,
        log_x=True,
        note=f"DTD {workload.dtd.name}; plans FWR, by query and DTD; "
        "thesis: without parsing, Pentium III at 850 MHz",
    )
    messages = workload.messages(message_count, MANY_VALUES)
    queries = workload.queries(shared_only, values=MANY_VALUES)
    evaluators = [shared_evaluator(), per_query_evaluator(workload.dtd)]
    for before, size in zip((0, *sizes), (*sizes, len(queries)), strict=True):
        yield f"loading {size:,} queries"
        added = compile_all(queries[before:size])
        for evaluator in evaluators:
            evaluator.load(added)
        yield f"{size:,} queries"
        timings = _add_points(chart, size, evaluators, messages, rounds)
        if size == sizes[-1]:
            _report_ratios(bench, size, timings, message_count)
            del evaluators[1]
    for label, role, published in (
        ("thesis, shared", Role.PUBLISHED, _PUBLISHED_SHARED),
        ("thesis, a plan each", Role.PUBLISHED_BASELINE, _PUBLISHED_EACH),
    ):
        for size, milliseconds in published.items():
            chart.curve(label, role).add(size, milliseconds)


def _add_points(
    chart: Chart, size: int, evaluators: Sequence[Evaluator], messages: Sequence[bytes], rounds: int
) -> list[Timing]:
    """Add to two curves of each evaluator: until the last group, and until all is written."""
    passes = [timed for each in evaluators for timed in (each.groups_pass, each.results_pass)]
    contenders = {curve: partial(timed, messages) for curve, timed in zip(_CURVES, passes, strict=False)}
    counts = {"plans": len(evaluators[0].plans), "matched": evaluators[0].mean_results(messages)}
    return plot_interleaved(chart, size, contenders, messages, least=rounds, warm_up=1, **counts)


def _report_ratios(bench: Bench, size: int, timings: Sequence[Timing], messages: int) -> None:
    groups, results, each_groups, each_results = timings
    for until, shared, each, bar in (
        ("until the last group", groups, each_groups, at_least(9)),
        ("until all is written", results, each_results, None),
    ):
        bench.figure(
            "a plan for each query, against the shared network",
            f"{size:,} queries, {until}",
            each.ratio_to(shared),
            "times",
            bar,
            shared_milliseconds=shared.milliseconds,
            each_milliseconds=each.milliseconds,
            messages=messages,
            thesis_times=_PUBLISHED_EACH[50_000] / _PUBLISHED_SHARED[50_000],
        )
