"""Items of feeds, joined with all that came before: section 6.3 of Hong et al.

No window is bounded, so nothing is ever forgotten. One query in some seventy asks for the items of the same
channel alone: it meets very many earlier items, and more with each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from sapwood.bench.join_contenders import SHARED, WAYS
from sapwood.bench.join_feed_run import Mark, Run, measure
from sapwood.bench.join_setting import JoinSetting
from sapwood.bench.report import Chart, Listing, Role, Series
from sapwood.bench.setting import Bar, Experiment
from sapwood.bench.sources import BenchError

FLAT = 0.9
"""at least so much of the rate is left where queries are added that were all there: 1, but for noise"""
LINEAR = 1.25
"""at most so much more memory the second half of the items takes: 1, but for tables that grow in steps"""

_RATE = "items a second"
_PUBLISHED = "paper: five templates, flat beyond 10,000 queries, since only thousands are distinct"
_QUARTERS, _PARTS = 4, 10  # of all items: where memory is told, and rates


def feed(setting: JoinSetting) -> Iterator[str]:
    """Items a second against the number of queries; all items for the fewest and the most."""
    scale = setting.scale
    few, many = min(scale.feed_sizes), max(scale.feed_sizes)
    chart = setting.chart(
        Chart(
            "feed",
            "Items of feeds, nothing forgotten",
            "queries",
            _RATE,
            log_x=True,
            note=_PUBLISHED,
            unit="",
        )
    )
    counts = setting.listing(
        Listing(
            "feed-counts",
            "Queries over feeds",
            ("distinct", "templates", "items", "met an item", "deliveries an item", "items/s"),
            note=_PUBLISHED,
        )
    )
    first, runs = scale.feed_first_items, {}
    for size in scale.feed_sizes:
        items = scale.feed_items if size in (few, many) else first
        yield f"{items:,} items for {size:,} queries"
        run = runs[size] = measure(size, _marks(items, first))
        chart.curve(f"the first {first:,} items", Role.SAPWOOD).add(size, run.rate(first))
        last = run.marks[-1]
        if items > first:
            chart.curve(f"all {items:,} items", Role.OTHER).add(size, run.rate())
        counts.add(
            f"{size:,} queries",
            run.distinct,
            run.templates,
            items,
            last.results / items,
            last.deliveries / items,
            run.rate(),
        )
    _report_rates(setting, runs)
    for size in dict.fromkeys((few, many)):
        _report_memory(setting, size, runs[size])
    _add_growth(setting, {size: runs[size] for size in dict.fromkeys((many, few))})


def _marks(items: int, first: int) -> list[int]:
    """Where to look: the first so many, and even parts of all."""
    even = {items * part // parts for parts in (_QUARTERS, _PARTS) for part in range(1, parts + 1)}
    return sorted(even | {min(first, items)})


def _report_rates(setting: JoinSetting, runs: dict[int, Run]) -> None:
    first = setting.scale.feed_first_items
    before, most = sorted(runs)[-2:] if len(runs) > 1 else (min(runs), max(runs))
    setting.figure(
        "items a second, queries repeated",
        f"feed, {most:,} queries against {before:,}",
        runs[most].rate(first) / runs[before].rate(first),
        "times",
        Bar(FLAT, at_least=True),
        items_per_second=round(runs[most].rate(first)),
        items_per_second_before=round(runs[before].rate(first)),
        distinct=runs[most].distinct,
        distinct_before=runs[before].distinct,
        items=first,
    )


def _report_memory(setting: JoinSetting, size: int, run: Run) -> None:
    none, half, last = run.marks[0], _at(run, 0.5), run.marks[-1]
    workload = f"feed, {size:,} queries, {last.items:,} items"
    setting.figure(
        "memory an item",
        workload,
        (last.megabytes - none.megabytes) / last.items * 1e6,
        "bytes",
        megabytes=round(last.megabytes),
        megabytes_before=round(none.megabytes),
    )
    setting.figure(
        "memory an item, as the broker counts",
        workload,
        run.state_bytes / last.items,
        "bytes",
        megabytes=round(run.state_bytes / 1e6, 1),
    )
    setting.figure(
        "memory, second half of the growth against the first",
        f"feed, {size:,} queries",
        (last.megabytes - half.megabytes) / max(half.megabytes - none.megabytes, 1e-6),
        "times",
        LINEAR,
    )


def _at(run: Run, part: float) -> Mark:
    """The mark where such a part of the items had come."""
    return min(run.marks, key=lambda mark: abs(mark.items - part * run.marks[-1].items))


def _add_growth(setting: JoinSetting, runs: Mapping[int, Run]) -> None:
    """How memory and rate change as more and more is remembered."""
    memory = setting.chart(
        Chart("feed-memory", "Memory, nothing forgotten", "items so far", "resident megabytes", unit=" MB")
    )
    rates = setting.chart(
        Chart("feed-growth", "Items a second as the state grows", "items so far", _RATE, unit="")
    )
    for (size, run), role in zip(runs.items(), (Role.SAPWOOD, Role.OTHER), strict=False):
        for part in range(1, _QUARTERS + 1):
            mark = _at(run, part / _QUARTERS)
            memory.curve(f"{size:,} queries", role).add(mark.items, mark.megabytes)
        parts = [_at(run, part / _PARTS) for part in range(_PARTS + 1)]
        for before, after in pairwise(parts):
            rate = (after.items - before.items) / max(after.seconds - before.seconds, 1e-9)
            met = (after.results - before.results) / (after.items - before.items)
            rates.curve(f"{size:,} queries", role).add(after.items, rate, met=round(met, 1))
        _report_slowing(setting, size, rates.curve(f"{size:,} queries", role))


def _report_slowing(setting: JoinSetting, size: int, curve: Series) -> None:
    first, last = curve.points[0], curve.points[-1]
    setting.figure(
        f"items a second, the last of {_PARTS} parts of the items against the first",
        f"feed, {size:,} queries, {last.x:,.0f} items",
        last.y / first.y,
        "times",
        first_per_second=round(first.y),
        last_per_second=round(last.y),
        first_met=first.details["met"],
        last_met=last.details["met"],
    )


# -- the ways to join ----------------------------------------------------------------------------------


def feed_ways(setting: JoinSetting) -> Iterator[str]:
    """All ways on the same few items: one query at a time takes too long for more."""
    scale = setting.scale
    items = scale.feed_compared_items
    chart = setting.chart(
        Chart(
            "feed-ways",
            "Ways to join items of feeds",
            "queries",
            _RATE,
            log_x=True,
            note=f"the first {items:,} items; paper: sharing values helps further",
            unit="",
        )
    )
    for size in scale.feed_sizes:
        runs = {}
        for way in WAYS:
            yield f"{size:,} queries, {way.label}"
            run = runs[way.label] = measure(size, [items], way.label)
            found = {"distinct": run.distinct, "deliveries": run.marks[-1].deliveries}
            chart.curve(way.label, way.role).add(size, run.rate(), **found)
        if len({run.marks[-1].deliveries for run in runs.values()}) > 1:
            raise BenchError(f"the ways to join do not agree on {size:,} queries over feeds")
    for way in WAYS[1:]:
        setting.figure(
            f"items a second, {SHARED.label}, against {way.label}",
            f"feed, {size:,} queries, {items:,} items",
            runs[SHARED.label].rate() / runs[way.label].rate(),
            "times",
            shared_per_second=round(runs[SHARED.label].rate()),
            other_per_second=round(runs[way.label].rate(), 1),
        )


EXPERIMENTS = (
    Experiment("feed", "items of feeds: rate and memory (figure 16)", feed),
    Experiment("feed-ways", "the ways to join, on feeds (figure 16)", feed_ways),
)
