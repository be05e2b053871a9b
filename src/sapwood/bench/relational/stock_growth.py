"""Growth with the number of stock subscriptions: cost of a message, and databases larger than memory."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.bench.harness.benchmark_report import Role
from sapwood.bench.harness.experiment import Bench, at_most, experiment
from sapwood.bench.harness.isolation import run_isolated, stream_isolated
from sapwood.bench.relational.database_runs import MEMORY, match_by_plans, serve_database
from sapwood.bench.relational.stock_databases import PLANS, ROLES, STOCKS, drop_database, open_database
from sapwood.bench.relational.table_measurements import PAPER, WALL, LoadedFile, PlanRounds, ServingCost
from sapwood.relational import Plan

FLAT = 1.5
"""the most that ten times the subscriptions may take, in times; the paper: 70 s against 52 s"""
PUBLISHED = {100_000: 52, 200_000: 55, 1_000_000: 70}


@experiment(
    "growth",
    "stock quotes, by subscriptions at the same selectivity",
    subscriptions=(tuple(PUBLISHED), (2_000, 4_000, 20_000), (20, 200)),
    rounds=(5, 3, 1),
)
def measure_growth(bench: Bench, subscriptions: tuple[int, ...], rounds: int) -> Iterator[str]:
    """Measure seconds against the number of subscriptions at the same selectivity."""
    stocks = bench.select(STOCKS)
    chart = bench.chart(
        "growth",
        f"{stocks.messages:,} stock quotes, the same share of subscriptions notified",
        "subscriptions",
        "seconds for all messages",
        log_x=True,
        note=PAPER,
        unit=" s",
    )
    sizes: dict[str, int] = {}
    for size in subscriptions:
        loaded = yield from open_database(bench, stocks.quotes(size))
        sizes[loaded.file] = size
    plans = [(plan.value, stocks.messages) for plan in PLANS]
    found: dict[Plan, dict[int, PlanRounds]] = {plan: {} for plan in PLANS}
    bodies = stocks.quotes(0).messages(stocks.messages)
    for item in stream_isolated(match_by_plans, list(sizes), plans, bodies, rounds):
        if isinstance(item, str):
            yield item
            continue
        plan, size = Plan(item.plan), sizes[item.file]
        found[plan][size] = item
        chart.curve(plan.value, ROLES[plan]).add(size, item.best, notifications=item.notifications)
        if len(found[plan]) == len(sizes):
            _report_growth(bench, plan, found[plan])
    for size, seconds in zip(subscriptions, PUBLISHED.values(), strict=False):
        chart.curve("paper: unrolled", Role.PUBLISHED).add(size, seconds)


def _report_growth(bench: Bench, plan: Plan, found: dict[int, PlanRounds]) -> None:
    few, many = min(found), max(found)
    bench.figure(
        f"growth of the cost, {plan.value}",
        f"{many:,} subscriptions against {few:,}",
        found[many].ratio_to(found[few]),
        "times",
        at_most(FLAT) if plan is Plan.UNROLLED else None,
        sizes=[float(size) for size in found],
        seconds=[rounds.best for rounds in found.values()],
        notifications=[float(rounds.notifications) for rounds in found.values()],
        reading=found[many].reading,
        rounds=len(found[many].seconds),
    )


@experiment("large", "more subscriptions than fit into memory", subscriptions=(2_000_000, 40_000, 300))
def measure_large(bench: Bench, subscriptions: int) -> Iterator[str]:
    """Measure more subscriptions than the paper had, with DuckDB limited to the paper's memory."""
    stocks = bench.select(STOCKS)
    quotes = stocks.quotes(subscriptions)
    loaded = yield from open_database(bench, quotes)
    bodies = quotes.messages(stocks.batch)
    served = yield from run_isolated(serve_database, loaded.file, bodies, stocks.singles, stocks.rounds)
    _report_large(bench, loaded, served)
    rows = {
        "predicates": loaded.predicates,
        "loading, seconds": loaded.seconds,
        "loading, peak MB": loaded.peak,
        "file, MB": loaded.megabytes,
        f"a message of {stocks.batch:,} in a batch, ms": served.batched / 1e3,
        f"a single message, the median of {stocks.singles:,}, ms": served.single / 1e3,
        "notifications of the batch": served.notifications,
        "matching, peak MB": served.peak,
        "matching, MB at the end": served.resident,
        "matching, MB that DuckDB reports": served.duckdb,
    }
    title = f"Stock quotes: {loaded.subscriptions:,} subscriptions, DuckDB limited to {MEMORY}"
    listing = bench.listing("large", title, ("",), WALL)
    for label, value in rows.items():
        listing.add(label, value)
    drop_database(bench, quotes)


def _report_large(bench: Bench, loaded: LoadedFile, served: ServingCost) -> None:
    workload = f"stocks, {loaded.subscriptions:,} subscriptions, {loaded.predicates:,} predicates"
    measure = f"peak memory, DuckDB limited to {MEMORY}"
    details = {"resident": served.resident, "duckdb": served.duckdb, "file": loaded.megabytes}
    bench.figure(f"{measure}, matching", workload, served.peak, "MB", **details)
    bench.figure(f"{measure}, loading", workload, loaded.peak, "MB", seconds=loaded.seconds)
    bench.figure("loading a subscription", workload, loaded.seconds / loaded.subscriptions * 1e6, "µs")
