"""Stock quotes for a million subscriptions by all three plans: the first workload of Tian et al."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.bench.harness.benchmark_report import Listing, Role
from sapwood.bench.harness.experiment import Bench, experiment
from sapwood.bench.harness.isolation import stream_isolated
from sapwood.bench.relational.database_runs import MEMORY, match_by_plans
from sapwood.bench.relational.stock_databases import (
    PLANS,
    ROLES,
    STOCKS,
    StockScale,
    drop_database,
    open_database,
)
from sapwood.bench.relational.table_measurements import PAPER, WALL, PlanRounds, check_agreement
from sapwood.relational import Plan

PUBLISHED = {
    Plan.UNROLLED: (56, 61, 70, 161),
    Plan.SHARED: (107, 154, 504, 2_369),
    Plan.BUCKETS: (26, 45, 195, 1_210),
}
"""seconds for 1,000, 10,000, 100,000 and 1,000,000 notifications"""
PUBLISHED_READING = 24
PUBLISHED_NOTIFICATIONS = (1_000, 10_000, 100_000, 1_000_000)
_SMALL_BATCH = 1_000


@experiment("stocks", "stock quotes by three plans, by notifications", scale=STOCKS)
def measure_stocks(bench: Bench, scale: StockScale) -> Iterator[str]:
    """Measure the seconds for all messages against the number of notifications."""
    workload = f"{scale.messages:,} messages, {scale.subscriptions:,} subscriptions"
    small_batch = min(_SMALL_BATCH, scale.messages)
    chart = bench.chart(
        "stocks",
        f"Stock quotes: {workload}",
        "notifications",
        "seconds for all messages",
        log_x=True,
        note=PAPER,
        unit=" s",
    )
    seconds = bench.listing(
        "stocks",
        f"Seconds for stock quotes: {workload}",
        (
            *(plan.value for plan in PUBLISHED),
            f"{Plan.UNROLLED.value}, batches of {small_batch:,}",
            "reading",
            "found",
        ),
        f"{WALL}; reading (parsing and shredding) is a part of each; {PAPER}, as many notifications for each "
        "pair of message and subscription",
    )
    files = bench.listing(
        "stocks-files",
        f"Databases of {scale.subscriptions:,} stock subscriptions",
        ("loading s", "file MB", *(f"indexing s, {plan.value}" for plan in PLANS), "peak MB"),
        f"DuckDB limited to {MEMORY}; indexing when another plan was in use; memory of matching",
    )
    plans = [(plan.value, scale.messages) for plan in PLANS]
    if scale.messages > _SMALL_BATCH:
        plans.append((Plan.UNROLLED.value, _SMALL_BATCH))
    for position, notifications in enumerate(scale.notifications):
        quotes = scale.quotes_with(scale.subscriptions, notifications)
        loaded = yield from open_database(bench, quotes)
        found: dict[tuple[Plan, int], PlanRounds] = {}
        bodies = quotes.messages(scale.messages)
        for item in stream_isolated(match_by_plans, [loaded.file], plans, bodies, scale.rounds):
            if isinstance(item, str):
                yield f"{notifications:,} notifications: {item}"
                continue
            plan = Plan(item.plan)
            found[plan, item.batch] = item
            if item.batch == scale.messages:
                details = {"found": item.notifications, "reading": item.reading}
                chart.curve(plan.value, ROLES[plan]).add(notifications, item.best, **details)
        check_agreement(f"{notifications:,} notifications", *found.values())
        by_plan = {plan: found[plan, scale.messages] for plan in PUBLISHED}
        if position < len(PUBLISHED_NOTIFICATIONS):
            for plan, role in ((Plan.UNROLLED, Role.PUBLISHED), (Plan.SHARED, Role.PUBLISHED_BASELINE)):
                chart.curve(f"paper: {plan.value}", role).add(notifications, PUBLISHED[plan][position])
        _list_seconds(seconds, notifications, position, by_plan, found[Plan.UNROLLED, small_batch])
        indexing = (by_plan[plan].indexing for plan in PLANS)
        files.add(
            f"{notifications:,} notifications",
            loaded.seconds,
            loaded.megabytes,
            *indexing,
            by_plan[Plan.UNROLLED].peak,
        )
        _report_plans(bench, f"{workload}, {notifications:,} notifications", position, by_plan)
        if quotes != scale.quotes(scale.subscriptions):
            drop_database(bench, quotes)


def _list_seconds(
    seconds: Listing, notifications: int, position: int, by_plan: dict[Plan, PlanRounds], small: PlanRounds
) -> None:
    best = [found.best for found in by_plan.values()]
    reading = min(found.reading for found in by_plan.values())
    count = by_plan[Plan.UNROLLED].notifications
    seconds.add(f"{notifications:,} notifications", *best, small.best, reading, count)
    if position < len(PUBLISHED_NOTIFICATIONS):
        count = PUBLISHED_NOTIFICATIONS[position]
        cells = [published[position] for published in PUBLISHED.values()]
        label = f"paper: {count:,} notifications"
        seconds.add(label, *cells, None, PUBLISHED_READING, count, published=True)


def _report_plans(bench: Bench, workload: str, position: int, by_plan: dict[Plan, PlanRounds]) -> None:
    unrolled = by_plan[Plan.UNROLLED]
    for plan in (Plan.SHARED, Plan.BUCKETS):
        paper: dict[str, float] = {}
        if position < len(PUBLISHED_NOTIFICATIONS):
            paper["paper"] = round(PUBLISHED[plan][position] / PUBLISHED[Plan.UNROLLED][position], 2)
        report_plan(bench, plan, workload, by_plan[plan], unrolled, **paper)


def report_plan(
    bench: Bench, plan: Plan, workload: str, found: PlanRounds, unrolled: PlanRounds, **paper: float
) -> None:
    """Report the seconds of a plan against those of the plan unrolled."""
    bench.figure(
        f"plan {plan.value}, against {Plan.UNROLLED.value}",
        workload,
        found.best / unrolled.best,
        seconds=found.best,
        unrolled_seconds=unrolled.best,
        notifications=unrolled.notifications,
        **paper,
    )
