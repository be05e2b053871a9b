"""Time of a message against parameters and number of queries: experiments 12, 14, 15 and 16 of the thesis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sapwood.bench.harness.benchmark_report import Chart, Role
from sapwood.bench.harness.experiment import Bench, Experiment, Scales
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


@dataclass(frozen=True, slots=True)
class Scale:
    messages: int
    rounds: int
    queries: int
    predicates: tuple[int, ...] = (1, 2, 3)
    returns: tuple[int, ...] = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class DescendantScale:
    messages: int
    rounds: int
    queries: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GrowthScale:
    messages: int
    rounds: int
    sizes: tuple[int, ...]


def measure_paths(bench: Bench, scale: Scale) -> Iterator[str]:
    """Measure more predicate paths, and more return paths, in each query: experiment 12."""
    workload = bibliography()
    messages = workload.messages(scale.messages)
    for name, title, x_label, option, values, statement in (
        (
            "predicates",
            "Predicates in a query",
            "predicate paths (PP)",
            "predicate_paths",
            scale.predicates,
            "thesis: with 3, 116 match, and all are close",
        ),
        (
            "returns",
            "Return paths of a query",
            "return paths (RP)",
            "return_paths",
            scale.returns,
            "thesis: F and FW grow with them, FWR hardly does",
        ),
    ):
        chart = _add_chart(bench, name, title, x_label, workload, statement)
        for value in values:
            yield f"{x_label}: {value}"
            queries = compile_all(workload.queries(scale.queries, **{option: value}))
            evaluators = _all_evaluators(workload)
            for evaluator in evaluators:
                evaluator.load(queries)
            add_evaluator_points(chart, value, evaluators, messages, scale.rounds)


def measure_descendants(bench: Bench, scale: DescendantScale) -> Iterator[str]:
    """Measure the probability of // with recursive messages: experiment 14."""
    workload = book()
    messages = workload.messages(scale.messages)
    statement = "thesis: all grow; with 0.4, FW beats FWR by 4 %"
    chart = _add_chart(bench, "descendant", "Probability of a descendant step", "DSProb", workload, statement)
    for probability in scale.probabilities:
        yield f"DSProb {probability:g}"
        by_query = replace(per_query_evaluator(workload.dtd, "FWR", "query"), role=Role.TWIN)
        by_dtd = [per_query_evaluator(workload.dtd, sharing) for sharing in SHARINGS if sharing != "F"]
        evaluators = [by_query, *by_dtd, shared_evaluator()]
        queries = compile_all(workload.queries(scale.queries, descendant=probability))
        for evaluator in evaluators:
            evaluator.load(queries)
        add_evaluator_points(chart, probability, evaluators, messages, scale.rounds)


def measure_growth(bench: Bench, scale: GrowthScale) -> Iterator[str]:
    """Measure the number of queries without recursion: experiments 15 and 16."""
    workload = bibliography()
    messages = workload.messages(scale.messages, MANY_VALUES)
    statement = "thesis: F, FW and FWR are linear, F the steepest"
    chart = _add_chart(bench, "growth", "Number of queries", "distinct queries", workload, statement)
    chart.log_x = True
    evaluators = _all_evaluators(workload)
    population = workload.queries(max(scale.sizes), values=MANY_VALUES)
    before = 0
    for size in scale.sizes:
        yield f"{size:,} queries"
        queries = compile_all(population[before:size])
        for evaluator in evaluators:
            evaluator.load(queries)
        add_evaluator_points(chart, size, evaluators, messages, scale.rounds)
        before = size


def _all_evaluators(workload: ThesisWorkload) -> list[Evaluator]:
    return [*(per_query_evaluator(workload.dtd, sharing) for sharing in SHARINGS), shared_evaluator()]


def _add_chart(
    bench: Bench, name: str, title: str, x_label: str, workload: ThesisWorkload, statement: str
) -> Chart:
    note = f"DTD {workload.dtd.name}, until the last group; {statement}"
    return bench.chart(name, title, x_label, MILLISECONDS, note=note, unit=" ms")


EXPERIMENTS = (
    Experiment(
        "predicates-and-returns",
        "against their number (experiment 12)",
        Scales(Scale(10, 3, 5_000), Scale(5, 2, 1_000), Scale(2, 2, 30, (1, 3), (1, 4))),
        measure_paths,
    ),
    Experiment(
        "descendant",
        "against P(//) (experiment 14)",
        Scales(
            full=DescendantScale(10, 3, 10_000, (0.05, 0.1, 0.2, 0.4)),
            quick=DescendantScale(5, 2, 1_000, (0.05, 0.2, 0.4)),
            smoke=DescendantScale(2, 2, 40, (0.05, 0.4)),
        ),
        measure_descendants,
    ),
    Experiment(
        "growth",
        "against the number of queries (experiments 15, 16)",
        Scales(
            full=GrowthScale(10, 3, (5_000, 10_000, 20_000, 40_000)),
            quick=GrowthScale(5, 2, (500, 1_000, 2_000)),
            smoke=GrowthScale(2, 2, (10, 30)),
        ),
        measure_growth,
    ),
)
