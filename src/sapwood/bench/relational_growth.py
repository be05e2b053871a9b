"""More and more stock subscriptions: what a message costs, and what fits into a small memory."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.bench.relational_findings import Loaded, Matched, Served
from sapwood.bench.relational_run import measure, told
from sapwood.bench.relational_setting import RelationalSetting
from sapwood.bench.relational_stocks import IN_ORDER, PAPER, ROLES, WALL
from sapwood.bench.relational_work import MEMORY, match_by_plans, serve_stocks
from sapwood.bench.report import Chart, Listing, Role
from sapwood.bench.setting import Experiment
from sapwood.relational import Plan

FLAT = 1.5
"""at most so many times as long ten times the subscriptions take; the paper: 70 s for 52 s"""
PUBLISHED = {100_000: 52, 200_000: 55, 1_000_000: 70}


def growth(setting: RelationalSetting) -> Iterator[str]:
    """Seconds against the number of subscriptions, each message matching the same share of them."""
    scale = setting.scale
    chart = setting.chart(
        Chart(
            "growth",
            f"{scale.messages:,} stock quotes, the same share of subscriptions notified",
            "subscriptions",
            "seconds for all messages",
            log_x=True,
            note=PAPER,
            unit=" s",
        )
    )
    files: dict[str, int] = {}
    for size in scale.growth_sizes:
        loaded = yield from setting.selective_file(size)
        files[loaded.file] = size
    ways = [(plan.value, scale.messages) for plan in IN_ORDER]
    found: dict[Plan, dict[int, Matched]] = {plan: {} for plan in IN_ORDER}
    for said in measure(
        match_by_plans, list(files), ways, scale.symbols, scale.messages, scale.growth_rounds
    ):
        if isinstance(said, str):
            yield said
            continue
        plan, size = Plan(said.plan), files[said.file]
        found[plan][size] = said
        chart.curve(plan.value, ROLES[plan]).add(size, said.best, notifications=said.notifications)
        if len(found[plan]) == len(files):
            _report_growth(setting, plan, found[plan])
    for size, seconds in zip(scale.growth_sizes, PUBLISHED.values(), strict=False):
        chart.curve("paper: unrolled", Role.PUBLISHED).add(size, seconds)


def _report_growth(setting: RelationalSetting, plan: Plan, found: dict[int, Matched]) -> None:
    few, many = min(found), max(found)
    setting.figure(
        f"growth of the cost, {plan.value}",
        f"{many:,} subscriptions against {few:,}",
        found[many].times(found[few]),
        "times",
        FLAT if plan is Plan.UNROLLED else None,
        sizes=[float(size) for size in found],
        seconds=[round(matched.best, 2) for matched in found.values()],
        notifications=[float(matched.notifications) for matched in found.values()],
        reading=round(found[many].reading, 2),
        rounds=len(found[many].seconds),
    )


# -- beyond memory -------------------------------------------------------------------------------------


def large(setting: RelationalSetting) -> Iterator[str]:
    """More subscriptions than the paper had, and DuckDB limited to the paper's memory."""
    scale = setting.scale
    loaded = yield from setting.selective_file(scale.large)
    served = yield from told(
        measure(serve_stocks, loaded.file, scale.symbols, scale.batch, scale.singles, scale.rounds)
    )
    _report_large(setting, loaded, served)
    setting.drop(loaded)


def _report_large(setting: RelationalSetting, loaded: Loaded, served: Served) -> None:
    scale = setting.scale
    workload = f"stocks, {loaded.subscriptions:,} subscriptions, {loaded.predicates:,} predicates"
    assert served.batched is not None
    setting.figure(
        f"memory at most, DuckDB limited to {MEMORY}, matching",
        workload,
        served.peak,
        "MB",
        resident=round(served.resident),
        duckdb=round(served.duckdb),
        file=round(loaded.megabytes),
    )
    setting.figure(
        f"memory at most, DuckDB limited to {MEMORY}, loading",
        workload,
        loaded.peak,
        "MB",
        seconds=round(loaded.seconds, 1),
    )
    setting.figure("loading a subscription", workload, loaded.microseconds, "µs")
    listing = setting.listing(
        Listing(
            "large",
            f"Stock quotes: {loaded.subscriptions:,} subscriptions, DuckDB limited to {MEMORY}",
            ("",),
            note=WALL,
        )
    )
    for label, value in {
        "predicates": loaded.predicates,
        "loading, seconds": loaded.seconds,
        "loading, MB at most": loaded.peak,
        "file, MB": loaded.megabytes,
        f"a message of {scale.batch:,} in a batch, ms": served.batched / 1e3,
        f"a message by itself, the median of {scale.singles:,}, ms": served.single / 1e3,
        "notifications of the batch": served.notifications,
        "matching, MB at most": served.peak,
        "matching, MB in the end": served.resident,
        "matching, MB that DuckDB says it uses": served.duckdb,
    }.items():
        listing.add(label, value)


EXPERIMENTS = (
    Experiment("growth", "stock quotes, by subscriptions at the same selectivity", growth),
    Experiment("large", "more subscriptions than memory has room for", large),
)
