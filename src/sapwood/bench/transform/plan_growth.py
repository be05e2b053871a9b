"""Time of a message against parameters and number of queries: experiments 12, 14, 15 and 16 of the thesis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sapwood.bench.harness import Bench, Chart, Role, experiment, scale
from sapwood.bench.transform.evaluators import (
    MILLISECONDS,
    SHARINGS,
    Evaluator,
    add_evaluator_points,
    per_query_evaluator,
    shared_evaluator,
)
from sapwood.bench.transform.thesis_workload import (
    MANY_VALUES,
    ThesisWorkload,
    bibliography,
    book,
    compile_all,
)

_MESSAGES, _ROUNDS = (10, 5, 2), (3, 2, 2)


@experiment("predicates-and-returns", "against their number (experiment 12)")
def measure_paths(
    bench: Bench,
    query_count: int = scale(5_000, 1_000, 30),
    predicates: tuple[int, ...] = scale((1, 2, 3), (1, 2, 3), (1, 3)),
    returns: tuple[int, ...] = scale((1, 2, 3, 4), (1, 2, 3, 4), (1, 4)),
) -> Iterator[str]:
    workload = bibliography()
    labels = "predicates", "Predicates in a query", "predicate paths (PP)"
    chart = _add_chart(bench, workload, *labels, "thesis: with 3, 116 match, and all are close")
    yield from _vary(bench, chart, workload, "predicate_paths", predicates, _make_evaluators, query_count)
    labels = "returns", "Return paths of a query", "return paths (RP)"
    chart = _add_chart(bench, workload, *labels, "thesis: F and FW grow with them, FWR hardly does")
    yield from _vary(bench, chart, workload, "return_paths", returns, _make_evaluators, query_count)


@experiment("descendant", "against P(//) (experiment 14)")
def measure_descendants(
    bench: Bench,
    query_count: int = scale(10_000, 1_000, 40),
    probabilities: tuple[float, ...] = scale((0.05, 0.1, 0.2, 0.4), (0.05, 0.2, 0.4), (0.05, 0.4)),
) -> Iterator[str]:
    workload = book()
    labels = "descendant", "Probability of a descendant step", "DSProb"
    chart = _add_chart(bench, workload, *labels, "thesis: all grow; with 0.4, FW beats FWR by 4 %")
    return _vary(bench, chart, workload, "descendant", probabilities, _make_dtd_evaluators, query_count)


@experiment("growth", "against the number of queries (experiments 15, 16)")
def measure_growth(
    bench: Bench,
    sizes: tuple[int, ...] = scale((5_000, 10_000, 20_000, 40_000), (500, 1_000, 2_000), (10, 30)),
) -> Iterator[str]:
    workload = bibliography()
    messages = workload.messages(bench.select(_MESSAGES), MANY_VALUES)
    labels = "growth", "Number of queries", "distinct queries"
    chart = _add_chart(bench, workload, *labels, "thesis: F, FW and FWR are linear, F the steepest")
    chart.log_x = True
    evaluators = _make_evaluators(workload)
    population = workload.queries(max(sizes), values=MANY_VALUES)
    for before, size in zip((0, *sizes), sizes, strict=False):
        yield f"{size:,} queries"
        queries = compile_all(population[before:size])
        add_evaluator_points(chart, size, evaluators, queries, messages, bench.select(_ROUNDS))


def _add_chart(
    bench: Bench, workload: ThesisWorkload, name: str, title: str, x_label: str, statement: str
) -> Chart:
    note = f"DTD {workload.dtd.name}, until the last group; {statement}"
    return bench.chart(name, title, x_label, MILLISECONDS, note=note)


def _vary(
    bench: Bench,
    chart: Chart,
    workload: ThesisWorkload,
    option: str,
    values: tuple[float, ...],
    make: Callable[[ThesisWorkload], list[Evaluator]],
    query_count: int,
) -> Iterator[str]:
    """Add a point to each curve for each value of an option of the query generator."""
    messages = workload.messages(bench.select(_MESSAGES))
    for value in values:
        yield f"{chart.x_label}: {value:g}"
        options: dict[str, Any] = {option: value}
        queries = compile_all(workload.queries(query_count, **options))
        add_evaluator_points(chart, value, make(workload), queries, messages, bench.select(_ROUNDS))


def _make_evaluators(workload: ThesisWorkload) -> list[Evaluator]:
    return [*(per_query_evaluator(workload.dtd, sharing) for sharing in SHARINGS), shared_evaluator()]


def _make_dtd_evaluators(workload: ThesisWorkload) -> list[Evaluator]:
    """Return FWR optimised by the query in place of F."""
    by_query = per_query_evaluator(workload.dtd, "FWR", "query")
    return [replace(by_query, role=Role.TWIN), *_make_evaluators(workload)[1:]]
