"""Items of feeds joined with all items before them: section 6.3 of Hong et al.

No window is bounded, so the state is never evicted. One query in some seventy joins the items of the same
channel on nothing else: it joins with very many earlier items, and with more and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from sapwood import Broker
from sapwood.bench.harness import (
    RAW,
    Bench,
    BenchError,
    ChartAxis,
    Role,
    at_least,
    at_most,
    experiment,
    run_isolated,
    scale,
)
from sapwood.bench.harness.engines import kernel_missing
from sapwood.bench.harness.memory_usage import resident_megabytes
from sapwood.bench.harness.timer import clock, raw_pass
from sapwood.bench.join.join_workload import METHODS, SHARED, STREAM, JoinMethod, get_joined
from sapwood.workload import FeedGenerator, JoinGenerator, feed_schema

FLAT = 0.9
"""the least share of the rate that is left when duplicates of queries are added: 1, apart from noise"""
LINEAR = 1.25
"""the most memory of the second half of the items against the first: 1, apart from tables that double"""

LEAST_RATE = 3_000
"""items a second of processor time, with the kernel and the most queries"""
_RATE = ChartAxis("items a second", "")
_PUBLISHED = "paper: five templates, flat beyond 10,000 queries, since only thousands are distinct"
_PARTS = 10  # of all items, after which memory and rates are reported
_BATCH = 100  # items generated before they are published; few, because they take memory


# -- a stream in a process of its own ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamMark:
    """The progress of a stream since its beginning."""

    items: int
    seconds: float
    """of publishing, without the generation of the items"""
    results: int
    """pairs of items for a query; equal queries count once, except one query at a time"""
    deliveries: int
    """the same, each query counted"""
    megabytes: float
    """resident memory of the process"""
    raw_seconds: float = 0.0
    """of parsing the same items without handlers"""


@dataclass(frozen=True, slots=True)
class FeedRun:
    """All marks of a stream; the first one is before any item."""

    marks: tuple[StreamMark, ...]
    distinct: int
    templates: int
    state_bytes: int
    """the broker's estimate of its state at the end; not at each mark, because estimating takes memory"""

    def rate(self, items: int | None = None) -> float:
        """Return items a second, over the first `items` of them or over all."""
        reached = [mark for mark in self.marks if items is None or mark.items <= items]
        return reached[-1].items / max(reached[-1].seconds, 1e-9)

    def mark_at(self, share: float) -> StreamMark:
        """Return the mark closest to this share of the items."""
        return min(self.marks, key=lambda mark: abs(mark.items - share * self.marks[-1].items))


def publish_feed(queries: int, marks: Sequence[int], method: JoinMethod) -> Iterator[str | FeedRun]:
    """Publish as many items as the last mark, and measure at each mark."""
    subscribed = JoinGenerator(feed_schema(), seed=1).take(queries)
    items = FeedGenerator(seed=1)
    with Broker(tuning=method.tuning) as broker:
        broker.subscribe_many(enumerate(subscribed))
        found = tuple(_publish_to_marks(broker, items, marks))
        state = broker.state()
    yield FeedRun(found, len(set(subscribed)), len(state.templates), state.bytes)


def _publish_to_marks(broker: Broker, items: Iterator[bytes], marks: Sequence[int]) -> Iterator[StreamMark]:
    answer = broker.answer
    time, seconds, raw, results, deliveries = 0, 0.0, 0.0, 0, 0
    yield StreamMark(time, seconds, results, deliveries, resident_megabytes())
    for mark in marks:
        while time < mark:
            batch = list(islice(items, min(_BATCH, mark - time)))
            raw += raw_pass(batch)
            found = []
            start = clock()
            for item in batch:
                time += 1  # a second from item to item: times only have to increase
                found.append(get_joined(answer(item, stream=STREAM, time=time)))
                results += len(found[-1])
            seconds += clock() - start
            deliveries += sum(joined.deliveries for joined in found)
            del found
        yield StreamMark(time, seconds, results, deliveries, resident_megabytes(), raw)


# -- rate and memory -----------------------------------------------------------------------------------


_SIZES = ((10, 100, 1_000, 10_000, 100_000), (10, 1_000, 10_000), (5, 20, 40))


@experiment("feed", "items of feeds: rate and memory (figure 16)")
def measure_feed(
    bench: Bench,
    sizes: tuple[int, ...] = scale(*_SIZES),
    most: int = scale(225_000, 2_000, 80),
    first: int = scale(20_000, 2_000, 30),
) -> Iterator[str]:
    """Measure items a second: the first for each number of queries, `most` for the fewest and the most."""
    few, many = min(sizes), max(sizes)
    title = "Items of feeds, unbounded windows"
    chart = bench.chart("feed", title, "queries", _RATE, log_x=True, note=_PUBLISHED)
    runs: dict[int, FeedRun] = {}
    for size in sizes:
        items = most if size in (few, many) else first
        yield f"{items:,} items for {size:,} queries"
        run = runs[size] = yield from run_isolated(publish_feed, size, _choose_marks(items, first), SHARED)
        counts = {"distinct": run.distinct, "templates": run.templates}
        chart.curve(f"the first {first:,} items", Role.SAPWOOD).add(size, run.rate(first), **counts)
        if items > first:
            results, deliveries = run.marks[-1].results / items, run.marks[-1].deliveries / items
            curve = chart.curve(f"all {items:,} items", Role.OTHER)
            curve.add(size, run.rate(), results_an_item=results, deliveries_an_item=deliveries)
    _report_rate(bench, many, runs[many])
    _report_repeated(bench, runs, first)
    for size in dict.fromkeys((few, many)):
        _report_memory(bench, size, runs[size])
    _chart_growth(bench, {size: runs[size] for size in dict.fromkeys((many, few))})


def _choose_marks(items: int, first: int) -> list[int]:
    """Return the marks of a stream: the `first` items, and even parts of all."""
    return sorted({min(first, items), *(items * part // _PARTS for part in range(1, _PARTS + 1))})


def _report_rate(bench: Bench, size: int, run: FeedRun) -> None:
    last = run.marks[-1]
    workload = f"feed, {size:,} queries, {last.items:,} items"
    bar = at_least(LEAST_RATE, promised=not kernel_missing())
    bench.figure("items a second", workload, run.rate(), "items/s", bar, distinct=run.distinct)
    parts = {"seconds": last.seconds, "raw_seconds": last.raw_seconds}
    bench.ratio("cost of an item", workload, None, RAW, **parts, results_an_item=last.results / last.items)


def _report_repeated(bench: Bench, runs: dict[int, FeedRun], first: int) -> None:
    before, most = sorted(runs)[-2:] if len(runs) > 1 else (min(runs), max(runs))
    bench.ratio(
        "items a second, queries repeated",
        f"feed, {most:,} queries against {before:,}",
        at_least(FLAT),
        items_per_second=runs[most].rate(first),
        items_per_second_before=runs[before].rate(first),
        distinct=runs[most].distinct,
        distinct_before=runs[before].distinct,
        items=first,
    )


def _report_memory(bench: Bench, size: int, run: FeedRun) -> None:
    before, half, last = run.marks[0], run.mark_at(0.5), run.marks[-1]
    queries = f"feed, {size:,} queries"
    bench.figure(
        "memory an item",
        f"{queries}, {last.items:,} items",
        (last.megabytes - before.megabytes) / last.items * 1e6,
        "bytes",
        megabytes=last.megabytes,
        megabytes_before=before.megabytes,
        estimated_by_the_broker=run.state_bytes / last.items,
    )
    growth = (last.megabytes - half.megabytes) / max(half.megabytes - before.megabytes, 1e-6)
    measure = "memory, second half of the growth against the first"
    bench.figure(measure, queries, growth, "times", at_most(LINEAR))


def _chart_growth(bench: Bench, runs: Mapping[int, FeedRun]) -> None:
    """Chart memory and rate as the state grows."""
    megabytes = ChartAxis("resident megabytes", " MB")
    memory = bench.chart("feed-memory", "Memory, unbounded windows", "items so far", megabytes)
    rates = bench.chart("feed-growth", "Items a second as the state grows", "items so far", _RATE)
    for (size, run), role in zip(runs.items(), (Role.SAPWOOD, Role.OTHER), strict=False):
        label = f"{size:,} queries"
        for before, after in pairwise(run.mark_at(part / _PARTS) for part in range(_PARTS + 1)):
            memory.curve(label, role).add(after.items, after.megabytes)
            items = after.items - before.items
            rate = items / max(after.seconds - before.seconds, 1e-9)
            results = (after.results - before.results) / items
            rates.curve(label, role).add(after.items, rate, met=results)


# -- the join methods ----------------------------------------------------------------------------------


@experiment("feed-ways", "the methods to join, on feeds (figure 16)")
def measure_methods(
    bench: Bench, sizes: tuple[int, ...] = scale(*_SIZES), items: int = scale(200, 100, 20)
) -> Iterator[str]:
    """Measure all methods on the same items; few, because one query at a time takes long."""
    note = f"the first {items:,} items; paper: sharing values helps further"
    title = "Methods to join items of feeds"
    chart = bench.chart("feed-ways", title, "queries", _RATE, log_x=True, note=note)
    for size in sizes:
        runs: dict[str, FeedRun] = {}
        for method in METHODS:
            yield f"{size:,} queries, {method.label}"
            run = runs[method.label] = yield from run_isolated(publish_feed, size, [items], method)
            details = {"distinct": run.distinct, "deliveries": run.marks[-1].deliveries}
            chart.curve(method.label, method.role).add(size, run.rate(), **details)
        if len({run.marks[-1].deliveries for run in runs.values()}) > 1:
            raise BenchError(f"the join methods do not agree on {size:,} queries over feeds")
    for method in METHODS[1:]:
        bench.ratio(
            f"items a second, {SHARED.label}, against {method.label}",
            f"feed, {size:,} queries, {items:,} items",
            shared_per_second=runs[SHARED.label].rate(),
            other_per_second=runs[method.label].rate(),
        )
