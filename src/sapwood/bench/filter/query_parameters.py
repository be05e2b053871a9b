"""Cost of a message against a parameter of the queries: experiments 3, 4, 7 and 8 of the YFilter thesis.

Messages and queries are generated from the DTD of the dataset, with the parameters of the thesis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from sapwood import Matcher, Tuning
from sapwood.bench.filter.warm_matching import COST, add_points
from sapwood.bench.harness.benchmark_report import Role
from sapwood.bench.harness.datasets import generate_messages, generate_queries
from sapwood.bench.harness.experiment import Bench, Experiment, Scales
from sapwood.bench.harness.timing import match_pass, time_once


@dataclass(frozen=True, slots=True)
class Scale:
    messages: int
    queries: int
    values: tuple[float, ...]
    """of the parameter"""
    unindexed: tuple[float, ...] = ()
    """values that are measured with the predicate index switched off as well"""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A parameter to vary, and the labels of its chart."""

    chart: str
    title: str
    x_label: str
    parameter: str
    """an option of `generate_queries`"""
    fixed: dict[str, Any]
    """the other options"""
    depth: int = 6
    """levels of the messages; those of the queries vary with it if that is the parameter"""
    note: str = ""

    def measure(self, bench: Bench, scale: Scale) -> Iterator[str]:
        """Add a point to each curve for each value of the parameter."""
        dtd = bench.dataset.dtd
        note = f"up to {scale.queries:,} distinct queries, {self.note}DTD {dtd.name}"
        chart = bench.chart(self.chart, self.title, self.x_label, COST, note=note)
        for value in scale.values:
            yield f"{self.x_label}: {value:g}"
            depth = int(value) if self.parameter == "depth" else self.depth
            messages = generate_messages(dtd, scale.messages, depth)
            queries = generate_queries(dtd, scale.queries, **self.fixed | {self.parameter: value})
            add_points(bench, chart, value, queries, messages)
            if value in scale.unindexed:
                yield f"{self.x_label}: {value:g}, without the predicate index"
                twin = Matcher(tuning=Tuning(index_values=False))
                twin.add_many(enumerate(queries))
                first = time_once(partial(match_pass, twin, messages), messages)
                curve = chart.curve("first sight, each predicate tested by itself", Role.TWIN)
                curve.add(value, first.multiple, **first.details())


DEPTH = Sweep("depth", "Depth of messages and queries", "levels", "depth", {})
WILDCARDS = Sweep(
    "wildcards",
    "Probability of a wildcard",
    "P(*) of a step",
    "wildcard",
    {"depth": 10, "descendant": 0.0},
    10,
    "10 levels, ",
)
DESCENDANTS = Sweep(
    "descendants",
    "Probability of a descendant step",
    "P(//) of a step",
    "descendant",
    {"depth": 10, "wildcard": 0.0},
    10,
    "10 levels, ",
)
NESTING = Sweep("nesting", "Nested paths", "nested paths in each query", "nested", {})
PREDICATES = Sweep(
    "predicates",
    "Value predicates",
    "attribute predicates in each query",
    "predicates",
    {},
    note="20 values, ",
)

_DEPTHS, _COUNTS, _NESTED = (6, 7, 8, 9, 10), (0, 1, 2, 5, 10, 20), (0, 1, 2, 3)
_WILDCARDS, _DESCENDANTS = (0.0, 0.2, 0.4, 0.6, 0.8), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

EXPERIMENTS = (
    Experiment(
        "growth-depth",
        "cost against depth (experiment 3)",
        Scales(
            full=Scale(200, 50_000, _DEPTHS),
            generated=Scale(200, 20_000, _DEPTHS),
            quick=Scale(50, 5_000, (6, 8, 10)),
            smoke=Scale(3, 30, (6, 7)),
        ),
        DEPTH.measure,
    ),
    Experiment(
        "growth-wildcards",
        "cost against P(*) (experiment 4)",
        Scales(
            full=Scale(200, 50_000, _WILDCARDS),
            generated=Scale(200, 20_000, _WILDCARDS),
            quick=Scale(50, 5_000, (0.0, 0.4, 0.8)),
            smoke=Scale(3, 30, (0.0, 0.5)),
        ),
        WILDCARDS.measure,
    ),
    Experiment(
        "growth-descendants",
        "cost against P(//) (experiment 4)",
        Scales(
            full=Scale(200, 10_000, _DESCENDANTS),
            quick=Scale(50, 2_000, (0.0, 0.5, 1.0)),
            smoke=Scale(3, 20, (0.0, 1.0)),
        ),
        DESCENDANTS.measure,
    ),
    Experiment(
        "growth-nesting",
        "cost against nested paths in a query (experiment 8)",
        Scales(
            full=Scale(200, 20_000, _NESTED),
            generated=Scale(200, 10_000, _NESTED),
            quick=Scale(50, 1_500, _NESTED),
            smoke=Scale(3, 15, (0, 1)),
        ),
        NESTING.measure,
    ),
    Experiment(
        "growth-predicates",
        "cost against predicates in a query (experiment 7)",
        Scales(
            full=Scale(200, 20_000, _COUNTS, unindexed=(1, 5, 10)),
            generated=Scale(200, 10_000, _COUNTS, unindexed=(1, 5, 10)),
            quick=Scale(50, 1_500, (0, 1, 5, 20), unindexed=(1, 5)),
            smoke=Scale(3, 15, (0, 2), unindexed=(2,)),
        ),
        PREDICATES.measure,
    ),
)
