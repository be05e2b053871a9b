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
from sapwood.bench.filter.lxml_baseline import compile_seconds
from sapwood.bench.filter.warm_match_cost import PRECISION, load_matcher, time_warm
from sapwood.bench.harness.benchmark_report import RAW
from sapwood.bench.harness.experiment import Bench, at_most, experiment
from sapwood.bench.harness.timing import (
    Timing,
    clock,
    join_timings,
    match_pass,
    mean_matches,
    time_once,
    time_rounds,
)

LXML = "× lxml compiling"
WARM = "× warm cost"
_LIFETIME = 50
"""messages that a query stays which is added only to be removed again"""


@experiment(
    "paths",
    "plain paths: warm, first pass, loading, churn",
    message_count=(500, 300, 100, 4),
    query_count=(153_928, 20_000, 10_000, 60),
    few_count=(1_000, 1_000, 10),
    kept=(150_000, 19_000, 9_000, 50),
    loads=(3, 1, 2),
)
def measure_paths(
    bench: Bench, message_count: int, query_count: int, few_count: int, kept: int, loads: int
) -> Iterator[str]:
    """Measure plain paths, few and many; `kept` of them stay loaded while others are added and removed."""
    messages = bench.dataset.messages(message_count)
    queries = bench.dataset.distinct(query_count)
    few, workload = queries[:few_count], f"{len(queries):,} distinct paths"
    yield f"{len(few):,} paths"
    _report_warm(bench, load_matcher(few)[0], messages, f"{len(few):,} distinct paths", 5)
    loading = _Loading(workload, queries, loads)
    matcher = yield from loading.measure(messages)
    yield workload
    _report_warm(bench, matcher, messages, workload, 6)
    first = join_timings(loading.first_passes)
    bench.figure("first pass", workload, first.multiple, RAW, at_most(100), **first.details())
    loading.report(bench, 6)
    yield "queries added and removed"
    _report_churn(bench, kept, matcher, messages, queries)
    yield "loading, garbage collector off"
    del matcher
    loading.report_without_collector(bench)


@experiment(
    "predicates",
    "an attribute predicate in each query: warm, loading",
    message_count=(500, 300, 100, 4),
    query_count=(100_000, 20_000, 4_000, 30),
    loads=(3, 1, 2),
)
def measure_predicates(bench: Bench, message_count: int, query_count: int, loads: int) -> Iterator[str]:
    messages = bench.dataset.messages(message_count)
    queries = bench.dataset.predicates(query_count)
    workload = f"{len(queries):,} with an attribute predicate"
    loading = _Loading(workload, queries, loads)
    matcher = yield from loading.measure()
    yield workload
    _report_warm(bench, matcher, messages, workload, 25)
    loading.report(bench, 25)
    yield "loading, garbage collector off"
    del matcher
    loading.report_without_collector(bench)


def _measure_warm(
    kind: str, label: str, bar: float, bench: Bench, message_count: int, query_count: int
) -> Iterator[str]:
    """Measure queries of a kind of the dataset: warm."""
    messages = bench.dataset.messages(message_count)
    queries = getattr(bench.dataset, kind)(query_count)
    workload = f"{len(queries):,} {label}"
    yield f"loading {workload}"
    matcher = load_matcher(queries)[0]
    yield workload
    _report_warm(bench, matcher, messages, workload, bar)


DUPLICATES = experiment(
    "duplicates",
    "plain paths with many duplicates: warm",
    message_count=(500, 300, 100, 4),
    query_count=(500_000, 50_000, 20_000, 80),
)(partial(_measure_warm, "repeated", "paths with duplicates", 6))
NESTED = experiment(
    "nested",
    "a nested path in each query: warm",
    message_count=(500, 300, 100, 4),
    query_count=(50_000, 10_000, 2_000, 20),
)(partial(_measure_warm, "nested", "with a nested path", 30))


def _report_warm(
    bench: Bench, matcher: Matcher, messages: Sequence[bytes], workload: str, bar: float
) -> None:
    warm = time_warm(bench, matcher, messages)
    details = warm.details(matched=mean_matches(matcher, messages))
    bench.figure("warm", workload, warm.multiple, RAW, at_most(bar), **details)


class _Loading:
    """Repeated loading of queries, compared with lxml compiling them."""

    def __init__(self, workload: str, queries: Sequence[str], loads: int) -> None:
        self.workload, self.queries, self.loads = workload, queries, loads
        self.seconds: list[float] = []
        self.lxml_seconds: list[float] = []
        self.first_passes: list[Timing] = []

    def measure(self, messages: Sequence[bytes] = ()) -> Generator[str, None, Matcher]:
        """Load several times, each followed by a first pass over any messages; return the last matcher."""
        matcher = Matcher()
        for number in range(1, self.loads + 1):
            yield f"loading {self.workload}, {number} of {self.loads}"
            del matcher  # frees its memory, which the garbage collector would otherwise traverse
            self.lxml_seconds.append(compile_seconds(self.queries))
            matcher, seconds = load_matcher(self.queries)
            self.seconds.append(seconds)
            if messages:
                yield f"first pass, {number} of {self.loads}"
                self.first_passes.append(time_once(partial(match_pass, matcher, messages), messages))
        return matcher

    def report(self, bench: Bench, bar: float) -> None:
        ratios = [own / lxml for own, lxml in zip(self.seconds, self.lxml_seconds, strict=True)]
        bench.figure(
            "loading",
            self.workload,
            median(ratios),
            LXML,
            at_most(bar),
            seconds=self.seconds[-1],
            lxml_seconds=self.lxml_seconds[-1],
            ratios=ratios,
        )

    def report_without_collector(self, bench: Bench) -> None:
        """Measure loading with Python's garbage collector off, on both sides.

        The collector traverses all live objects again and again. That slows lxml, whose objects are made
        quickly, more than Sapwood: it is most of the time that lxml takes for very many queries.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            compiling = compile_seconds(self.queries)
            loading = load_matcher(self.queries)[1]
        finally:
            if collecting:
                gc.enable()
        details = {"seconds": loading, "lxml_seconds": compiling}
        bench.figure("loading, garbage collector off", self.workload, loading / compiling, LXML, **details)


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
        start = clock()
        for position, message in enumerate(messages):
            number, query = next(additions)
            matcher.add(number, query)
            recent.append(number)
            matcher.remove(recent.popleft() if position % 2 and len(recent) > _LIFETIME else next(removals))
            len(matcher.match(message))
        return clock() - start

    # Not more rounds than there are new queries for: a query that returns would find its states prepared.
    rounds = min(bench.select(PRECISION).rounds, (len(queries) - kept) // len(messages))
    churned = time_rounds(one_pass, messages, least=rounds)
    bench.figure(
        "churn, an add and a remove per message",
        f"{kept:,} distinct paths",
        churned.multiple / warm.multiple,
        WARM,
        at_most(3),
        **churned.details(multiple=churned.multiple, warm=warm.multiple),
    )
