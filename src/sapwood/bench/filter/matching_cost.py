"""The bars of matching with every engine: cost of a warm message, of the first pass, of loading and churn.

A bar is a promise about the published workload at full scale, and shown for reference elsewhere. Matches are
counted, as numbers listed, or as ids listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

from sapwood import Matcher, Matches
from sapwood.bench.filter.churn_cost import report_churn
from sapwood.bench.filter.loading_cost import load_engines, report_without_collector
from sapwood.bench.filter.matching_contenders import PRECISION, Precision, load_matcher
from sapwood.bench.harness import RAW, Bench, BenchError, Listing, experiment, scale, timer
from sapwood.bench.harness.datasets import Kind
from sapwood.bench.harness.engines import (
    ENGINES,
    KERNEL,
    KERNEL_EXPAT,
    PYTHON,
    UNCLASSED,
    Engine,
    available_engines,
    limit_of,
    report_classes,
)

COUNTED, NUMBERS, IDS = "counted", "numbers listed", "ids listed"
READERS: dict[str, Callable[[Matches], object]] = {COUNTED: len, NUMBERS: attrgetter("numbers"), IDS: list}
Bars = Mapping[str, Mapping[Engine, float]]
"""the most that a message may cost by reading and engine, in multiples of raw parsing"""

_PATHS = {KERNEL_EXPAT: 1.35, KERNEL: 0.35}
_TWIGS = {KERNEL_EXPAT: 2.5, KERNEL: 1.3}
FEW: Bars = {COUNTED: {UNCLASSED: 5, PYTHON: 5, **_PATHS}}
MANY: Bars = {
    COUNTED: {UNCLASSED: 6, PYTHON: 4, **_PATHS},
    NUMBERS: {KERNEL_EXPAT: 1.8, KERNEL: 0.8},
    IDS: {KERNEL_EXPAT: 3, KERNEL: 2},
}
REPEATED: Bars = {COUNTED: {UNCLASSED: 6, PYTHON: 6, **_PATHS}}
PREDICATES: Bars = {COUNTED: {UNCLASSED: 25, PYTHON: 25, **_TWIGS}}
NESTED_PATHS: Bars = {COUNTED: {UNCLASSED: 30, PYTHON: 30, **_TWIGS}}

_LISTING_ROUNDS = 3
"""at most, where matches are listed: it takes up to a hundred times as long as counting"""
_LISTING = "warm"


@experiment("paths", "plain paths: warm, first pass, loading, churn")
def measure_paths(
    bench: Bench,
    message_count: int = scale(500, 300, 100, 4),
    query_count: int = scale(153_928, 20_000, 10_000, 60),
    few_count: int = scale(1_000, 1_000, 10),
    kept: int = scale(150_000, 19_000, 9_000, 50),
    loads: int = scale(3, 2, 2),
) -> Iterator[str]:
    """Measure plain paths, few and many; `kept` of them stay loaded while others are added and removed."""
    messages = bench.dataset.messages(message_count)
    queries = bench.dataset.queries("distinct", query_count)
    few, workload = queries[:few_count], f"{len(queries):,} distinct paths"
    yield f"{len(few):,} paths"
    matchers = {engine: load_matcher(few, engine.tuning)[0] for engine in available_engines(bench)}
    report_warm(bench, matchers, messages, f"{len(few):,} distinct paths", FEW)
    matchers = yield from load_engines(bench, workload, queries, loads, 4, 6, messages)
    yield workload
    report_warm(bench, matchers, messages, workload, MANY)
    yield "queries added and removed"
    report_churn(bench, kept, matchers, messages, queries)
    matchers.clear()
    yield from report_without_collector(bench, workload, queries)


@experiment("predicates", "an attribute predicate in each query: warm, loading")
def measure_predicates(
    bench: Bench,
    message_count: int = scale(500, 300, 100, 4),
    query_count: int = scale(100_000, 20_000, 4_000, 30),
    loads: int = scale(2, 2, 2),
) -> Iterator[str]:
    messages = bench.dataset.messages(message_count)
    queries = bench.dataset.queries("predicates", query_count)
    workload = f"{len(queries):,} with an attribute predicate"
    matchers = yield from load_engines(bench, workload, queries, loads, 60, 25)
    yield workload
    report_warm(bench, matchers, messages, workload, PREDICATES)
    matchers.clear()
    yield from report_without_collector(bench, workload, queries)


def _measure_others(
    kind: Kind,
    label: str,
    bars: Bars,
    microseconds: float,
    bench: Bench,
    query_count: int,
    message_count: int = scale(500, 300, 100, 4),
    loads: int = scale(2, 2, 1),
) -> Iterator[str]:
    """Measure queries of a kind of the dataset: warm, loading."""
    messages = bench.dataset.messages(message_count)
    queries = bench.dataset.queries(kind, query_count)
    workload = f"{len(queries):,} {label}"
    matchers = yield from load_engines(bench, workload, queries, loads, microseconds)
    yield workload
    report_warm(bench, matchers, messages, workload, bars)


DUPLICATES = experiment("duplicates", "plain paths with many duplicates: warm, loading")(
    partial(
        _measure_others,
        "repeated",
        "paths with duplicates",
        REPEATED,
        4,
        query_count=scale(500_000, 50_000, 20_000, 80),
    )
)
NESTED = experiment("nested", "a nested path in each query: warm, loading")(
    partial(
        _measure_others,
        "nested",
        "with a nested path",
        NESTED_PATHS,
        60,
        query_count=scale(50_000, 10_000, 2_000, 20),
    )
)


def report_warm(
    bench: Bench, matchers: Mapping[Engine, Matcher], messages: Sequence[bytes], workload: str, bars: Bars
) -> None:
    """Measure messages that have been matched before: all readings of all engines.

    Everything is listed; figures are those that are counted, and those with a bar.
    """
    matched = check_agreement(matchers, messages, workload)
    precision = bench.select(PRECISION)
    timings = _time_readings(precision, matchers, messages, (COUNTED,))
    fewer = precision._replace(rounds=min(precision.rounds, _LISTING_ROUNDS), seconds=0.0)
    timings |= _time_readings(fewer, matchers, messages, (NUMBERS, IDS))
    listing = _get_listing(bench)
    for reading in READERS:
        cells = {engine.label: timings[engine, reading].multiple for engine in matchers}
        listing.add_named(f"{workload}, {reading}", cells)
    for (engine, reading), warm in timings.items():
        bar = limit_of(engine, bars.get(reading, {}))
        if bar is not None or reading == COUNTED:
            measure = "warm" if reading == COUNTED else f"warm, {reading}"
            label = f"{workload}, {engine.label}"
            bench.figure(measure, label, warm.multiple, RAW, bar, **warm.details(matched=matched))
    report_classes(bench, "warm", workload, {each: timings[each, COUNTED].multiple for each in matchers})


def _time_readings(
    precision: Precision,
    matchers: Mapping[Engine, Matcher],
    messages: Sequence[bytes],
    readings: Sequence[str],
) -> dict[tuple[Engine, str], timer.Timing]:
    """Time readings of all engines in the same rounds."""
    passes = {
        (engine, reading): partial(timer.match_pass, matcher, messages, READERS[reading])
        for engine, matcher in matchers.items()
        for reading in readings
    }
    timings = timer.time_interleaved(
        list(passes.values()), messages, least=precision.rounds, seconds=precision.seconds, warm_up=1
    )
    return dict(zip(passes, timings, strict=True))


def check_agreement(matchers: Mapping[Engine, Matcher], messages: Sequence[bytes], workload: str) -> float:
    """Return how many queries a message matches on average; BenchError if engines do not agree on it."""
    found = {timer.mean_matches(matcher, messages) for matcher in matchers.values()}
    if len(found) > 1:
        raise BenchError(f"engines do not agree on the matches of {workload}")
    return found.pop()


def _get_listing(bench: Bench) -> Listing:
    """Return the listing of all warm costs, to which several experiments add."""
    if _LISTING not in bench.cache:
        columns = tuple(engine.label for engine in ENGINES if engine in available_engines(bench))
        note = f"{bench.dataset.label}; in multiples of raw parsing"
        bench.cache[_LISTING] = bench.listing(_LISTING, "Cost of a warm message", columns, note)
    listing: Listing = bench.cache[_LISTING]
    return listing
