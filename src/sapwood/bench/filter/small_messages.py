"""Cost of orders of a kilobyte with few and many queries, against lxml, one query at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sapwood.bench.filter.matching_contenders import (
    BASELINE,
    COST,
    PRECISION,
    load_matcher,
    one_by_one_pass,
)
from sapwood.bench.filter.matching_cost import check_agreement
from sapwood.bench.filter.order_messages import generate_order_queries, generate_orders
from sapwood.bench.harness import RAW, Bench, Role, at_most, experiment, scale
from sapwood.bench.harness.engines import KERNEL, available_engines, limit_of, report_classes
from sapwood.bench.harness.timer import match_pass, time_interleaved

BARS = {1: 3.0, 10: 3.0, 100: 3.0, 1_000: 4.0, 100_000: 40.0}
"""multiples of raw parsing, by number of queries"""


@experiment("orders", "small messages with few and many queries, against lxml")
def measure_orders(
    bench: Bench,
    message_count: int = scale(200, 100, 20),
    sizes: tuple[int, ...] = scale(tuple(BARS), (1, 10, 100, 1_000, 10_000), (1, 20)),
) -> Iterator[str]:
    """Measure all engines and lxml in the same rounds, each with the first queries of the same list."""
    precision = bench.select(PRECISION)
    note = "orders of a kilobyte, two or three predicates in a query"
    chart = bench.chart("orders", "Small messages", "queries", COST, log_x=True, note=note)
    messages, queries = generate_orders(message_count), generate_order_queries(max(sizes))
    engines = available_engines(bench)
    for size in sizes:
        workload = f"orders, {size:,} {'query' if size == 1 else 'queries'}"
        yield f"loading {workload}"
        matchers = {engine: load_matcher(queries[:size], engine.tuning)[0] for engine in engines}
        yield workload
        matched = check_agreement(matchers, messages, workload)
        passes = [partial(match_pass, matcher, messages) for matcher in matchers.values()]
        timings = time_interleaved(
            [*passes, one_by_one_pass(queries[:size], messages, precision)],
            messages,
            least=precision.rounds,
            seconds=precision.seconds,
            warm_up=2,
        )
        lxml = timings.pop()
        chart.curve(BASELINE, Role.BASELINE).add(size, lxml.multiple, **lxml.details())
        for engine, own in zip(engines, timings, strict=True):
            role = Role.SAPWOOD if engine is engines[-1] else engine.role
            details = own.details(matched=matched)
            chart.curve(engine.label, role).add(size, own.multiple, **details)
            label = f"{workload}, {engine.label}"
            bars = {KERNEL: BARS[size]} if size in BARS else {}
            bench.figure("warm, small messages", label, own.multiple, RAW, limit_of(engine, bars), **details)
            bar = at_most(1) if engine is KERNEL else None
            details = {"microseconds": own.microseconds, "lxml_microseconds": lxml.microseconds}
            bench.ratio("small messages, against lxml one by one", label, bar, "times", **details)
        costs = {engine: own.multiple for engine, own in zip(engines, timings, strict=True)}
        report_classes(bench, "warm, small messages", workload, costs)
