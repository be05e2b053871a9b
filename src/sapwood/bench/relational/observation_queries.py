"""Branching queries over descriptions of observations, shaped like the second workload of Tian et al."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.bench.harness import Bench, Role, experiment, scale, stream_isolated
from sapwood.bench.relational.database_runs import match_observations
from sapwood.bench.relational.stock_databases import ROLES
from sapwood.bench.relational.stock_quotes import report_plan
from sapwood.bench.relational.table_measurements import PAPER, SECONDS, WALL, PlanRounds, check_agreement
from sapwood.relational import Plan
from sapwood.workload.studies.observation_workload import DOCUMENTS

PUBLISHED = {
    130_000: (1_000_000, 6_565, 7),
    700_000: (5_000_000, 21_637, 20),
    1_400_000: (10_000_000, 32_159, 29),
    2_100_000: (15_000_000, 38_026, 35),
    2_700_000: (20_000_000, 42_271, 37),
}
"""by subscriptions: predicates, distinct linear paths, and seconds of path match"""
PUBLISHED_TAGS = 73
_COLUMNS = (
    "predicates",
    "linear paths",
    "tag paths",
    "path matches",
    "path match s",
    "added in s",
    "reading s",
    "found",
    "file MB",
    "MB before",
    "peak MB",
)


@experiment("observations", "branching queries: linear paths and path match")
def measure_observations(
    bench: Bench,
    documents: int = scale(DOCUMENTS, 150, 12),
    batch: int = scale(100, 100, 5),
    sizes: tuple[int, ...] = scale(tuple(PUBLISHED), (1_000, 2_000, 4_000), (30, 60)),
    most_shared: int = scale(700_000, 4_000, 30),
    rounds: int = scale(1, 1, 1),
) -> Iterator[str]:
    """Measure linear paths, path match and matching against the number of subscriptions, in one process.

    The rows of a batch have to fit into memory: thousands for each document. The plan shared is measured up
    to `most_shared` subscriptions, since its access structures have to be built and dropped.
    """
    title = f"{documents:,} descriptions of observations"
    note = f"{PAPER}, and descriptions of NASA's datasets"
    chart = bench.chart("observations", title, "subscriptions", SECONDS, log_x=True, note=note)
    note = f"{WALL}; path match from scratch; reading (parsing and shredding) is a part of matching; {PAPER}"
    listing = bench.listing("observations", title, _COLUMNS, note)
    file, remaining = str(bench.folder / "observations.duckdb"), list(sizes)
    grown: dict[str, float] = {}
    found: dict[Plan, PlanRounds] = {}
    for item in stream_isolated(match_observations, file, documents, sizes, most_shared, batch, rounds):
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            grown, found, size = item, {}, remaining.pop(0)
            chart.curve("path match from scratch", Role.FIRST).add(size, grown["path match s"])
        else:
            plan = Plan(item.plan)
            found[plan] = item
            chart.curve(plan.value, ROLES[plan]).add(size, item.best, notifications=item.notifications)
            if plan is Plan.UNROLLED:  # the last one
                check_agreement(f"{size:,} subscriptions", *found.values())
                matching = {"reading s": item.reading, "found": item.notifications, "peak MB": item.peak}
                listing.add_named(f"{size:,} subscriptions", {**grown, **matching})
                if Plan.SHARED in found:
                    report_plan(bench, Plan.SHARED, f"observations, {size:,} subscriptions", found)
    for size, (predicates, paths, seconds) in PUBLISHED.items():
        cells = {"predicates": predicates, "linear paths": paths, "tag paths": PUBLISHED_TAGS}
        listing.add_named(
            f"paper: {size:,} subscriptions", {**cells, "path match s": seconds}, published=True
        )
        chart.curve("paper: path match", Role.PUBLISHED).add(size, seconds)
