"""Time to add one query against its length."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from sapwood import Matcher
from sapwood.bench.filter.recursive_messages import growth_degree
from sapwood.bench.harness.benchmark_report import Role
from sapwood.bench.harness.experiment import Bench, Experiment, Scales, at_most
from sapwood.bench.harness.timing import cpu_seconds

_LINEAR = 1.5
"""the highest degree that counts as linear: quadratic growth would show 2"""


@dataclass(frozen=True, slots=True)
class Scale:
    parts: tuple[int, ...]
    rounds: int


def _repeat(template: str, parts: int, separator: str = "") -> str:
    return separator.join(template.format(number) for number in range(parts))


QUERIES: dict[str, tuple[Role, Callable[[int], str]]] = {
    "predicates": (Role.SAPWOOD, lambda n: "//a" + _repeat("[b = '{}']", n)),
    "steps with predicates": (Role.OTHER, lambda n: _repeat("/a{}[b]", n)),
    "a conjunction": (Role.FIRST, lambda n: f"//a[{_repeat('b{}', n, ' and ')}]"),
    "a union": (Role.TWIN, lambda n: _repeat("//a[b = {}]", n, " | ")),
    "predicates for lxml": (Role.BASELINE, lambda n: "//a" + _repeat("[count(b) = {}]", n)),
}


def measure_compiling(bench: Bench, scale: Scale) -> Iterator[str]:
    """Measure the time until a query of so many parts is added to an empty matcher."""
    chart = bench.chart(
        "compile",
        "Adding one query",
        "parts of the query",
        "milliseconds to add it",
        log_x=True,
        note="the best of the rounds, into an empty matcher",
        unit=" ms",
    )
    for label, (role, make) in QUERIES.items():
        seconds: dict[int, float] = {}
        for parts in scale.parts:
            yield f"{label}, {parts:,} parts"
            seconds[parts] = min(_add_seconds(make(parts)) for _ in range(scale.rounds))
            chart.curve(label, role).add(parts, seconds[parts] * 1e3)
        workload = f"{label}, {scale.parts[-1]:,} parts against {scale.parts[-2]:,}"
        bench.figure("compile time, degree", workload, growth_degree(seconds), "", at_most(_LINEAR))


def _add_seconds(query: str) -> float:
    matcher = Matcher()
    gc.collect()
    return cpu_seconds(partial(matcher.add, 0, query))


EXPERIMENTS = (
    Experiment(
        "growth-compile",
        "time to add one query against its length",
        Scales(Scale((10, 100, 1_000), 5), Scale((10, 100, 1_000), 3), Scale((5, 20), 1)),
        measure_compiling,
    ),
)
