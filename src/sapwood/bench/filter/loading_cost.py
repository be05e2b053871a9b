"""The cost of loading queries and of the first pass over the messages, with every engine."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial

from sapwood import Matcher
from sapwood.bench.filter.matching_contenders import compile_seconds, load_matcher
from sapwood.bench.harness import RAW, Bench, at_most
from sapwood.bench.harness.engines import (
    KERNEL,
    KERNEL_EXPAT,
    PYTHON,
    UNCLASSED,
    Engine,
    available_engines,
    limit_of,
    report_classes,
)
from sapwood.bench.harness.timer import Timing, join_timings, match_pass, time_once

LXML = "× lxml compiling"
_FIRST_PASS = {UNCLASSED: 100.0, PYTHON: 100.0, KERNEL_EXPAT: 10.0, KERNEL: 10.0}


def load_engines(
    bench: Bench,
    workload: str,
    queries: Sequence[str],
    loads: int,
    microseconds: float,
    times_lxml: float | None = None,
    messages: Sequence[bytes] = (),
) -> Generator[str, None, dict[Engine, Matcher]]:
    """Load several times, each followed by a first pass over any messages; return the last matchers.

    `microseconds` a query is the bar of the kernel, `times_lxml` that of all engines.
    """
    matchers: dict[Engine, Matcher] = {}
    lxml: list[float] = []
    loading: defaultdict[Engine, list[float]] = defaultdict(list)
    first_passes: defaultdict[Engine, list[Timing]] = defaultdict(list)
    for number in range(1, loads + 1):
        lxml.append(compile_seconds(queries))
        # In reverse order every second time: later loads find names and code that the first has prepared.
        for engine in available_engines(bench)[:: 1 if number % 2 else -1]:
            yield f"loading {workload}, {engine.label}, {number} of {loads}"
            matcher, seconds = load_matcher(queries, engine.tuning)
            loading[engine].append(seconds)
            if messages:
                first_passes[engine].append(time_once(partial(match_pass, matcher, messages), messages))
            if number == loads:
                matchers[engine] = matcher
            del matcher  # frees its memory, which the garbage collector would otherwise traverse
    best = {engine: min(loading[engine]) for engine in available_engines(bench)}
    for engine, seconds in best.items():
        label = f"{workload}, {engine.label}"
        bar = None if times_lxml is None else at_most(times_lxml)
        bench.ratio("loading", label, bar, LXML, seconds=seconds, lxml_seconds=min(lxml), loads=loads)
        each, bar = seconds / len(queries) * 1e6, limit_of(engine, {KERNEL: microseconds})
        bench.figure("loading a query", label, each, "µs", bar, loads=loads)
    report_classes(bench, "loading", workload, best)
    if first_passes:
        _report_first_passes(bench, workload, {each: join_timings(first_passes[each]) for each in best})
    return {engine: matchers[engine] for engine in best}


def _report_first_passes(bench: Bench, workload: str, firsts: Mapping[Engine, Timing]) -> None:
    for engine, first in firsts.items():
        bar = limit_of(engine, _FIRST_PASS)
        label = f"{workload}, {engine.label}"
        bench.figure("first pass", label, first.multiple, RAW, bar, **first.details())
    report_classes(bench, "first pass", workload, {each: first.multiple for each, first in firsts.items()})


def report_without_collector(bench: Bench, workload: str, queries: Sequence[str]) -> Iterator[str]:
    """Measure loading with Python's garbage collector off, on both sides.

    The collector traverses all live objects again and again. That slows lxml, whose objects are made
    quickly, more than Sapwood: it is most of the time that lxml takes for very many queries.
    """
    yield "loading, garbage collector off"
    collecting = gc.isenabled()
    gc.disable()
    try:
        compiling = compile_seconds(queries)
        loading = load_matcher(queries)[1]
    finally:
        if collecting:
            gc.enable()
    measure = "loading, garbage collector off"
    bench.ratio(measure, workload, None, LXML, seconds=loading, lxml_seconds=compiling)
