"""Time of a message against parameters and number of queries: experiments 12, 14, 15 and 16 of the thesis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sapwood.bench.harness.benchmark_report import Chart, Role
from sapwood.bench.harness.experiment import Bench, experiment
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

_TABLE = {"message_count": (10, 5, 2), "rounds": (3, 2, 2)}


@experiment(
    "predicates-and-returns",
    "against their number (experiment 12)",
    query_count=(5_000, 1_000, 30),
    predicates=((1, 2, 3), (1, 2, 3), (1, 3)),
    returns=((1, 2, 3, 4), (1, 2, 3, 4), (1, 4)),
    **_TABLE,
)
def measure_paths(
    bench: Bench,
    query_count: int,
    predicates: tuple[int, ...],
    returns: tuple[int, ...],
    message_count: int,
    rounds: int,
) -> Iterator[str]:
    workload = bibliography()
    messages = workload.messages(message_count)
    for name, title, x_label, option, values, statement in (
        (
            "predicates",
            "Predicates in a query",
            "predicate paths (PP)",
            "predicate_paths",
            predicates,
            "thesis: with 3, 116 match, and all are close",
        ),
        (
            "returns",
            "Return paths of a query",
            "return paths (RP)",
            "return_paths",
            returns,
            "thesis: F and FW grow with them, FWR hardly does",
        ),
    ):
        chart = _add_chart(bench, name, title, x_label, workload, statement)
        for value in values:
            yield f"{x_label}: {value}"
            queries = compile_all(workload.queries(query_count, **{option: value}))
            evaluators = _all_evaluators(workload)
            add_evaluator_points(chart, value, evaluators, queries, messages, rounds)


@experiment(
    "descendant",
    "against P(//) (experiment 14)",
    query_count=(10_000, 1_000, 40),
    probabilities=((0.05, 0.1, 0.2, 0.4), (0.05, 0.2, 0.4), (0.05, 0.4)),
    **_TABLE,
)
def measure_descendants(
    bench: Bench, query_count: int, probabilities: tuple[float, ...], message_count: int, rounds: int
) -> Iterator[str]:
    workload = book()
    messages = workload.messages(message_count)
    statement = "thesis: all grow; with 0.4, FW beats FWR by 4 %"
    chart = _add_chart(bench, "descendant", "Probability of a descendant step", "DSProb", workload, statement)
    for probability in probabilities:
        yield f"DSProb {probability:g}"
        by_query = replace(per_query_evaluator(workload.dtd, "FWR", "query"), role=Role.TWIN)
        by_dtd = [per_query_evaluator(workload.dtd, sharing) for sharing in SHARINGS if sharing != "F"]
        evaluators = [by_query, *by_dtd, shared_evaluator()]
        queries = compile_all(workload.queries(query_count, descendant=probability))
        add_evaluator_points(chart, probability, evaluators, queries, messages, rounds)


@experiment(
    "growth",
    "against the number of queries (experiments 15, 16)",
    sizes=((5_000, 10_000, 20_000, 40_000), (500, 1_000, 2_000), (10, 30)),
    **_TABLE,
)
def measure_growth(bench: Bench, sizes: tuple[int, ...], message_count: int, rounds: int) -> Iterator[str]:
    workload = bibliography()
    messages = workload.messages(message_count, MANY_VALUES)
    statement = "thesis: F, FW and FWR are linear, F the steepest"
    chart = _add_chart(bench, "growth", "Number of queries", "distinct queries", workload, statement)
    chart.log_x = True
    evaluators = _all_evaluators(workload)
    population = workload.queries(max(sizes), values=MANY_VALUES)
    before = 0
    for size in sizes:
        yield f"{size:,} queries"
        queries = compile_all(population[before:size])
        add_evaluator_points(chart, size, evaluators, queries, messages, rounds)
        before = size


def _all_evaluators(workload: ThesisWorkload) -> list[Evaluator]:
    return [*(per_query_evaluator(workload.dtd, sharing) for sharing in SHARINGS), shared_evaluator()]


def _add_chart(
    bench: Bench, name: str, title: str, x_label: str, workload: ThesisWorkload, statement: str
) -> Chart:
    note = f"DTD {workload.dtd.name}, until the last group; {statement}"
    return bench.chart(name, title, x_label, MILLISECONDS, note=note, unit=" ms")
