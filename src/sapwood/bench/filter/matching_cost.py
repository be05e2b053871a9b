"""The bars of matching: the cost of a warm message, of the first pass, of loading and of churn.

A bar is a promise about the published workload at full scale, and shown for reference elsewhere.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from statistics import median

from sapwood import Matcher
from sapwood.bench.filter.matching_contenders import PRECISION, compile_seconds, load_matcher, time_warm
from sapwood.bench.harness import RAW, Bench, at_most, experiment, scale, timer
from sapwood.bench.harness.datasets import Kind

LXML = "× lxml compiling"
WARM = "× warm cost"
_LIFETIME = 50
"""messages that a query stays which is added only to be removed again"""


@experiment("paths", "plain paths: warm, first pass, loading, churn")
def measure_paths(
    bench: Bench,
    message_count: int = scale(500, 300, 100, 4),
    query_count: int = scale(153_928, 20_000, 10_000, 60),
    few_count: int = scale(1_000, 1_000, 10),
    kept: int = scale(150_000, 19_000, 9_000, 50),
    loads: int = scale(3, 1, 2),
) -> Iterator[str]:
    """Measure plain paths, few and many; `kept` of them stay loaded while others are added and removed."""
    messages = bench.dataset.messages(message_count)
    queries = bench.dataset.queries("distinct", query_count)
    few, workload = queries[:few_count], f"{len(queries):,} distinct paths"
    yield f"{len(few):,} paths"
    _report_warm(bench, load_matcher(few)[0], messages, f"{len(few):,} distinct paths", 5)
    matcher = yield from _report_loading(bench, workload, queries, loads, 6, messages)
    yield workload
    _report_warm(bench, matcher, messages, workload, 6)
    yield "queries added and removed"
    _report_churn(bench, kept, matcher, messages, queries)
    del matcher
    yield from _report_without_collector(bench, workload, queries)


@experiment("predicates", "an attribute predicate in each query: warm, loading")
def measure_predicates(
    bench: Bench,
    message_count: int = scale(500, 300, 100, 4),
    query_count: int = scale(100_000, 20_000, 4_000, 30),
    loads: int = scale(3, 1, 2),
) -> Iterator[str]:
    messages = bench.dataset.messages(message_count)
    queries = bench.dataset.queries("predicates", query_count)
    workload = f"{len(queries):,} with an attribute predicate"
    matcher = yield from _report_loading(bench, workload, queries, loads, 25)
    yield workload
    _report_warm(bench, matcher, messages, workload, 25)
    del matcher
    yield from _report_without_collector(bench, workload, queries)


def _measure_warm(
    kind: Kind,
    label: str,
    bar: float,
    bench: Bench,
    query_count: int,
    message_count: int = scale(500, 300, 100, 4),
) -> Iterator[str]:
    """Measure queries of a kind of the dataset: warm."""
    messages = bench.dataset.messages(message_count)
    queries = bench.dataset.queries(kind, query_count)
    workload = f"{len(queries):,} {label}"
    yield f"loading {workload}"
    matcher = load_matcher(queries)[0]
    yield workload
    _report_warm(bench, matcher, messages, workload, bar)


DUPLICATES = experiment("duplicates", "plain paths with many duplicates: warm")(
    partial(
        _measure_warm,
        "repeated",
        "paths with duplicates",
        6,
        query_count=scale(500_000, 50_000, 20_000, 80),
    )
)
NESTED = experiment("nested", "a nested path in each query: warm")(
    partial(_measure_warm, "nested", "with a nested path", 30, query_count=scale(50_000, 10_000, 2_000, 20))
)


def _report_warm(
    bench: Bench, matcher: Matcher, messages: Sequence[bytes], workload: str, bar: float
) -> None:
    warm = time_warm(bench, matcher, messages)
    details = warm.details(matched=timer.mean_matches(matcher, messages))
    bench.figure("warm", workload, warm.multiple, RAW, at_most(bar), **details)


def _report_loading(
    bench: Bench,
    workload: str,
    queries: Sequence[str],
    loads: int,
    bar: float,
    messages: Sequence[bytes] = (),
) -> Generator[str, None, Matcher]:
    """Load several times, each followed by a first pass over any messages; return the last matcher."""
    matcher = Matcher()
    own: list[float] = []
    lxml: list[float] = []
    first_passes: list[timer.Timing] = []
    for number in range(1, loads + 1):
        yield f"loading {workload}, {number} of {loads}"
        del matcher  # frees its memory, which the garbage collector would otherwise traverse
        lxml.append(compile_seconds(queries))
        matcher, seconds = load_matcher(queries)
        own.append(seconds)
        if messages:
            yield f"first pass, {number} of {loads}"
            first_passes.append(timer.time_once(partial(timer.match_pass, matcher, messages), messages))
    ratios = [mine / theirs for mine, theirs in zip(own, lxml, strict=True)]
    details = {"seconds": own[-1], "lxml_seconds": lxml[-1]}
    bench.figure("loading", workload, median(ratios), LXML, at_most(bar), **details, ratios=ratios)
    if first_passes:
        first = timer.join_timings(first_passes)
        bench.figure("first pass", workload, first.multiple, RAW, at_most(100), **first.details())
    return matcher


def _report_without_collector(bench: Bench, workload: str, queries: Sequence[str]) -> Iterator[str]:
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


def _report_churn(
    bench: Bench, kept: int, matcher: Matcher, messages: Sequence[bytes], queries: Sequence[str]
) -> None:
    """Measure one query added and one removed before every message.

    Every added query is new to the matcher. In alternation, the removed one is the oldest of those loaded at
    first, or one added a short time ago.
    """
    kept = min(kept, len(queries) * 99 // 100)
    for number in range(kept, len(queries)):
        matcher.remove(number)
    additions = iter(enumerate(queries[kept:], start=kept))
    removals = iter(range(kept))
    recent: deque[int] = deque()
    messages = messages[: len(queries) - kept]
    warm = time_warm(bench, matcher, messages)

    def one_pass() -> float:
        start = timer.clock()
        for position, message in enumerate(messages):
            number, query = next(additions)
            matcher.add(number, query)
            recent.append(number)
            matcher.remove(recent.popleft() if position % 2 and len(recent) > _LIFETIME else next(removals))
            len(matcher.match(message))
        return timer.clock() - start

    # Not more rounds than there are new queries for: a query that returns would find its states prepared.
    rounds = min(bench.select(PRECISION).rounds, (len(queries) - kept) // len(messages))
    churned = timer.time_rounds(one_pass, messages, least=rounds)
    bench.figure(
        "churn, an add and a remove per message",
        f"{kept:,} distinct paths",
        churned.multiple / warm.multiple,
        WARM,
        at_most(3),
        **churned.details(multiple=churned.multiple, warm=warm.multiple),
    )
