"""Stock quotes, the first workload of Tian et al.: three plans, growth, and databases larger than memory."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.bench.harness import Bench, Role, at_most, collect_isolated, experiment, run_isolated, scale
from sapwood.bench.relational.database_runs import MEMORY, match_by_plans, serve_database
from sapwood.bench.relational.stock_databases import (
    PLANS,
    ROLES,
    STOCKS,
    drop_database,
    open_database,
)
from sapwood.bench.relational.table_measurements import PAPER, SECONDS, WALL, PlanRounds, check_agreement
from sapwood.relational import Plan

PUBLISHED = {
    1_000: {Plan.UNROLLED: 56, Plan.SHARED: 107, Plan.BUCKETS: 26},
    10_000: {Plan.UNROLLED: 61, Plan.SHARED: 154, Plan.BUCKETS: 45},
    100_000: {Plan.UNROLLED: 70, Plan.SHARED: 504, Plan.BUCKETS: 195},
    1_000_000: {Plan.UNROLLED: 161, Plan.SHARED: 2_369, Plan.BUCKETS: 1_210},
}
"""seconds by notifications"""
PUBLISHED_READING = 24
PUBLISHED_GROWTH = {100_000: 52, 200_000: 55, 1_000_000: 70}
"""seconds by subscriptions"""
FLAT = 1.5
"""the most that ten times the subscriptions may take, in times; the paper: 70 s against 52 s"""
_SMALL_BATCH = 1_000


@experiment("stocks", "stock quotes by three plans, by notifications")
def measure_stocks(bench: Bench) -> Iterator[str]:
    """Measure the seconds for all messages against the number of notifications.

    Reading (parsing and shredding) is a part of each.
    """
    stocks = bench.select(STOCKS)
    workload = f"{stocks.messages:,} messages, {stocks.subscriptions:,} subscriptions"
    title = f"Stock quotes: {workload}"
    chart = bench.chart("stocks", title, "notifications", SECONDS, log_x=True, note=PAPER)
    plans = [(plan.value, stocks.messages) for plan in PLANS]
    if stocks.messages > _SMALL_BATCH:
        plans.append((Plan.UNROLLED.value, _SMALL_BATCH))
    columns = (*(plan.value for plan in PLANS), "reading", "found")
    listing = bench.listing(
        "stocks",
        f"Seconds for stock quotes: {workload}",
        columns,
        f"{WALL}; reading (parsing and shredding) is a part of each; {PAPER}, as many notifications a pair",
    )
    for notifications, (published, paper) in zip(stocks.notifications, PUBLISHED.items(), strict=False):
        quotes = stocks.quotes(stocks.subscriptions, notifications)
        loaded = yield from open_database(bench, quotes)
        yield f"{notifications:,} notifications"
        bodies = quotes.messages(stocks.messages)
        found = yield from collect_isolated(match_by_plans, [loaded.file], plans, bodies, stocks.rounds)
        check_agreement(f"{notifications:,} notifications", *found)
        for (label, batch), rounds in zip(plans, found, strict=True):
            role = ROLES[Plan(label)]
            if batch < stocks.messages:
                label, role = f"{label}, batches of {batch:,}", Role.FIRST
            chart.curve(label, role).add(notifications, rounds.best, found=rounds.notifications)
        reading = min(rounds.reading for rounds in found)
        chart.curve("reading", Role.BASELINE).add(notifications, reading)
        for plan, role in ((Plan.UNROLLED, Role.PUBLISHED), (Plan.SHARED, Role.PUBLISHED_BASELINE)):
            chart.curve(f"paper: {plan.value}", role).add(notifications, paper[plan])
        by_plan = dict(zip(PLANS, found, strict=False))
        best, count = [rounds.best for rounds in by_plan.values()], found[0].notifications
        listing.add(f"{notifications:,} notifications", *best, reading, count)
        cells = [paper[plan] for plan in PLANS]
        label = f"paper: {published:,} notifications"
        listing.add(label, *cells, PUBLISHED_READING, published, published=True)
        for plan in (Plan.SHARED, Plan.BUCKETS):
            ratio = round(paper[plan] / paper[Plan.UNROLLED], 2)
            report_plan(bench, plan, f"{workload}, {notifications:,} notifications", by_plan, paper=ratio)
        if quotes != stocks.quotes(stocks.subscriptions):
            drop_database(bench, quotes)


def report_plan(
    bench: Bench, plan: Plan, workload: str, found: dict[Plan, PlanRounds], **paper: float
) -> None:
    """Report the seconds of a plan against those of the plan unrolled."""
    bench.ratio(
        f"plan {plan.value}, against {Plan.UNROLLED.value}",
        workload,
        seconds=found[plan].best,
        unrolled_seconds=found[Plan.UNROLLED].best,
        notifications=found[plan].notifications,
        **paper,
    )


@experiment("growth", "stock quotes, by subscriptions at the same selectivity")
def measure_growth(
    bench: Bench,
    subscriptions: tuple[int, ...] = scale(tuple(PUBLISHED_GROWTH), (2_000, 4_000, 20_000), (20, 200)),
    rounds: int = scale(5, 3, 1),
) -> Iterator[str]:
    """Measure seconds against the number of subscriptions at the same selectivity."""
    stocks = bench.select(STOCKS)
    title = f"{stocks.messages:,} stock quotes, the same share of subscriptions notified"
    chart = bench.chart("growth", title, "subscriptions", SECONDS, log_x=True, note=PAPER)
    sizes: dict[str, int] = {}
    for size in subscriptions:
        loaded = yield from open_database(bench, stocks.quotes(size))
        sizes[loaded.file] = size
    plans = [(plan.value, stocks.messages) for plan in PLANS]
    bodies = stocks.quotes(0).messages(stocks.messages)
    found = yield from collect_isolated(match_by_plans, list(sizes), plans, bodies, rounds)
    for plan in PLANS:
        by_size = {sizes[each.file]: each for each in found if each.plan == plan.value}
        for size, each in by_size.items():
            chart.curve(plan.value, ROLES[plan]).add(size, each.best, notifications=each.notifications)
        few, many = min(sizes.values()), max(sizes.values())
        bench.figure(
            f"growth of the cost, {plan.value}",
            f"{many:,} subscriptions against {few:,}",
            by_size[many].ratio_to(by_size[few]),
            "times",
            at_most(FLAT) if plan is Plan.UNROLLED else None,
            seconds=by_size[many].best,
            few_seconds=by_size[few].best,
            reading=by_size[many].reading,
            rounds=rounds,
        )
    for size, seconds in zip(subscriptions, PUBLISHED_GROWTH.values(), strict=False):
        chart.curve("paper: unrolled", Role.PUBLISHED).add(size, seconds)


@experiment("large", "more subscriptions than fit into memory")
def measure_large(bench: Bench, subscriptions: int = scale(2_000_000, 40_000, 300)) -> Iterator[str]:
    """Measure more subscriptions than the paper had, with DuckDB limited to the paper's memory."""
    stocks = bench.select(STOCKS)
    quotes = stocks.quotes(subscriptions)
    loaded = yield from open_database(bench, quotes)
    bodies = quotes.messages(stocks.batch)
    served = yield from run_isolated(serve_database, loaded.file, bodies, stocks.singles, stocks.rounds)
    title = f"Stock quotes: {subscriptions:,} subscriptions, DuckDB limited to {MEMORY}"
    listing = bench.listing("large", title, ("",), WALL)
    for label, value in {
        "predicates": loaded.predicates,
        "loading, seconds": loaded.seconds,
        "loading, µs a subscription": loaded.seconds / subscriptions * 1e6,
        "loading, peak MB": loaded.peak,
        "file, MB": loaded.megabytes,
        f"a message of {stocks.batch:,} in a batch, ms": served.batched / 1e3,
        f"a single message, the median of {stocks.singles:,}, ms": served.single / 1e3,
        "notifications of the batch": served.notifications,
        "matching, peak MB": served.peak,
        "matching, MB at the end": served.resident,
        "matching, MB that DuckDB reports": served.duckdb,
    }.items():
        listing.add(label, value)
    drop_database(bench, quotes)
