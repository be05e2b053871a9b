"""Cost of a stock quote with very many ranges on its numbers.

Every message has new numbers, so that caching of values does not help. With one range in each query, half of
the queries match on average. The subscriptions with five comparisons are those of the relational suite, of
which one matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sapwood import Matcher
from sapwood.bench.filter.matching_contenders import PRECISION, load_matcher
from sapwood.bench.filter.matching_cost import check_agreement
from sapwood.bench.harness import RAW, Bench, experiment, scale
from sapwood.bench.harness.engines import KERNEL, KERNEL_EXPAT, available_engines, limit_of, report_classes
from sapwood.bench.harness.timer import Pass, match_pass, time_interleaved
from sapwood.bench.relational.subscription_workloads import StockQuotes
from sapwood.workload.studies.stock_workload import SYMBOLS

_BARS = {KERNEL_EXPAT: 10.0, KERNEL: 10.0}
_WARM_UP = 1
_PUBLISHED, _SELECTIVITY = 10_000, 10
"""messages of the relational suite, and subscriptions for each notification of all of them"""
_LOWEST, _HIGHEST = 1.0, 501.0
"""prices of a stock quote"""


@experiment("ranges", "very many ranges on numbers that are new in every message")
def measure_ranges(
    bench: Bench,
    message_count: int = scale(200, 50, 5),
    query_count: int = scale(100_000, 10_000, 50),
) -> Iterator[str]:
    """Measure all engines in the same rounds, with one range and with five comparisons in each query."""
    precision = bench.select(PRECISION)
    quotes = StockQuotes(SYMBOLS, query_count, _PUBLISHED, notifications=query_count // _SELECTIVITY)
    passes = _WARM_UP + precision.rounds
    messages = quotes.messages(passes * message_count)
    batches = [messages[start : start + message_count] for start in range(0, len(messages), message_count)]
    step = (_HIGHEST - _LOWEST) / query_count
    ranges = [f"/stock[price > {_LOWEST + number * step:.4f}]" for number in range(query_count)]
    workloads = {
        f"{query_count:,} queries /stock[price > k]": ranges,
        f"{query_count:,} stock subscriptions": list(quotes.queries()),
    }
    for workload, queries in workloads.items():
        yield f"loading {workload}"
        engines = available_engines(bench)
        matchers = {engine: load_matcher(queries, engine.tuning)[0] for engine in engines}
        yield workload
        own_passes = [_new_values_pass(matcher, batches) for matcher in matchers.values()]
        timings = time_interleaved(own_passes, batches[0], least=precision.rounds, warm_up=_WARM_UP)
        matched = check_agreement(matchers, batches[-1], workload)
        costs = {engine: own.multiple for engine, own in zip(engines, timings, strict=True)}
        for engine, own in zip(engines, timings, strict=True):
            label, bar = f"{workload}, {engine.label}", limit_of(engine, _BARS)
            bench.figure("new values", label, own.multiple, RAW, bar, **own.details(matched=matched))
        report_classes(bench, "new values", workload, costs)


def _new_values_pass(matcher: Matcher, batches: Sequence[Sequence[bytes]]) -> Pass:
    """Return a pass over another batch every time."""
    remaining = iter(batches)
    return lambda: match_pass(matcher, next(remaining))
