"""Time to add one query against its length."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial

from sapwood import Matcher
from sapwood.bench.filter.recursive_messages import growth_degree
from sapwood.bench.harness import Bench, ChartAxis, Role, at_most, experiment, scale
from sapwood.bench.harness.timer import cpu_seconds

_LINEAR = 1.5
"""the highest degree that counts as linear: quadratic growth would show 2"""


def _repeat(template: str, parts: int, separator: str = "") -> str:
    return separator.join(template.format(number) for number in range(parts))


QUERIES: dict[str, tuple[Role, Callable[[int], str]]] = {
    "predicates": (Role.SAPWOOD, lambda n: "//a" + _repeat("[b = '{}']", n)),
    "steps with predicates": (Role.OTHER, lambda n: _repeat("/a{}[b]", n)),
    "a conjunction": (Role.FIRST, lambda n: f"//a[{_repeat('b{}', n, ' and ')}]"),
    "a union": (Role.TWIN, lambda n: _repeat("//a[b = {}]", n, " | ")),
    "predicates for lxml": (Role.BASELINE, lambda n: "//a" + _repeat("[count(b) = {}]", n)),
}


@experiment("growth-compile", "time to add one query against its length")
def measure_compiling(
    bench: Bench,
    sizes: tuple[int, ...] = scale((10, 100, 1_000), (10, 100, 1_000), (5, 20)),
    rounds: int = scale(5, 3, 1),
) -> Iterator[str]:
    """Measure the time until a query of a given number of parts is added to an empty matcher."""
    y, note = ChartAxis("milliseconds to add it", " ms"), "the best of the rounds, into an empty matcher"
    chart = bench.chart("compile", "Adding one query", "parts of the query", y, log_x=True, note=note)
    for label, (role, make) in QUERIES.items():
        seconds: dict[int, float] = {}
        for parts in sizes:
            yield f"{label}, {parts:,} parts"
            seconds[parts] = min(_add_seconds(make(parts)) for _ in range(rounds))
            chart.curve(label, role).add(parts, seconds[parts] * 1e3)
        workload = f"{label}, {sizes[-1]:,} parts against {sizes[-2]:,}"
        bench.figure("compile time, degree", workload, growth_degree(seconds), "", at_most(_LINEAR))


def _add_seconds(query: str) -> float:
    matcher = Matcher()
    gc.collect()
    return cpu_seconds(partial(matcher.add, 0, query))
