"""Branching queries over descriptions of observations, shaped like the second workload of Tian et al."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sapwood.bench.harness.benchmark_report import Listing, Role
from sapwood.bench.harness.experiment import Bench, experiment
from sapwood.bench.harness.isolation import stream_isolated
from sapwood.bench.relational.database_runs import match_observations
from sapwood.bench.relational.stock_databases import ROLES
from sapwood.bench.relational.stock_quotes import report_plan
from sapwood.bench.relational.table_measurements import (
    PAPER,
    WALL,
    GrownDatabase,
    PlanRounds,
    check_agreement,
)
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
_PLANS = (Plan.SHARED, Plan.UNROLLED)
_PATH_MATCH = "path match from scratch"


@experiment(
    "observations",
    "branching queries: linear paths and path match",
    documents=(DOCUMENTS, 150, 12),
    batch=(100, 100, 5),
    sizes=(tuple(PUBLISHED), (1_000, 2_000, 4_000), (30, 60)),
    most_shared=(700_000, 4_000, 30),
    rounds=(1, 1, 1),
)
def measure_observations(
    bench: Bench, documents: int, batch: int, sizes: tuple[int, ...], most_shared: int, rounds: int
) -> Iterator[str]:
    """Measure linear paths, path match and matching against the number of subscriptions, in one process.

    The rows of a batch have to fit into memory: thousands for each document. The plan shared is measured up
    to `most_shared` subscriptions, since its access structures have to be built and dropped.
    """
    title = f"{documents:,} descriptions of observations"
    chart = bench.chart(
        "observations",
        title,
        "subscriptions",
        "seconds for all documents",
        log_x=True,
        note=f"{PAPER}, and descriptions of NASA's datasets",
        unit=" s",
    )
    paths = bench.listing(
        "observations-paths",
        f"{title}: linear paths and tag paths",
        ("predicates", "linear paths", "tag paths", "path match s"),
        f"path match from scratch; {PAPER}",
    )
    matching = bench.listing(
        "observations",
        f"{title}: matching",
        ("added in s", *(f"{plan.value} s" for plan in _PLANS), "reading s", "found", "file MB", "peak MB"),
        f"{WALL}; reading (parsing and shredding) is a part; memory with that of all documents",
    )
    grown: list[GrownDatabase] = []
    found: dict[Plan, PlanRounds] = {}
    for item in stream_isolated(
        match_observations,
        str(bench.folder / "observations.duckdb"),
        documents,
        sizes,
        most_shared,
        batch,
        rounds,
    ):
        if isinstance(item, str):
            yield item
        elif isinstance(item, GrownDatabase):
            grown.append(item)
            found.clear()
            size, counts = (
                item.subscriptions,
                {"paths": item.paths, "tags": item.tags, "matches": item.matches},
            )
            chart.curve(_PATH_MATCH, Role.FIRST).add(size, item.path_match, **counts)
            paths.add(f"{size:,} subscriptions", item.predicates, item.paths, item.tags, item.path_match)
        else:
            plan = Plan(item.plan)
            found[plan] = item
            curve = chart.curve(plan.value, ROLES[plan])
            curve.add(grown[-1].subscriptions, item.best, notifications=item.notifications)
            if plan is Plan.UNROLLED:
                check_agreement(f"{grown[-1].subscriptions:,} subscriptions", *found.values())
                _report_size(bench, matching, grown[-1], found)
    for size, (predicates, distinct, seconds) in PUBLISHED.items():
        label = f"paper: {size:,} subscriptions"
        paths.add(label, predicates, distinct, PUBLISHED_TAGS, seconds, published=True)
        chart.curve("paper: path match", Role.PUBLISHED).add(size, seconds)
    _report_growth(bench, grown, found[Plan.UNROLLED])


def _report_size(
    bench: Bench, matching: Listing, grown: GrownDatabase, found: dict[Plan, PlanRounds]
) -> None:
    matching.add(
        f"{grown.subscriptions:,} subscriptions",
        grown.loading,
        *(found[plan].best if plan in found else None for plan in _PLANS),
        min(rounds.reading for rounds in found.values()),
        found[Plan.UNROLLED].notifications,
        grown.megabytes,
        max(rounds.peak for rounds in found.values()),
    )
    if Plan.SHARED in found:
        workload = f"observations, {grown.subscriptions:,} subscriptions"
        report_plan(bench, Plan.SHARED, workload, found[Plan.SHARED], found[Plan.UNROLLED])


def _report_growth(bench: Bench, grown: Sequence[GrownDatabase], unrolled: PlanRounds) -> None:
    few, many = grown[0], grown[-1]
    workload = f"observations, {many.subscriptions:,} subscriptions"
    (_, few_paths, few_seconds), *_, (_, many_paths, many_seconds) = PUBLISHED.values()
    bench.figure(
        _PATH_MATCH,
        workload,
        many.path_match,
        "seconds",
        paths=many.paths,
        tags=many.tags,
        matches=many.matches,
        paper=many_seconds,
    )
    bench.figure(
        f"{_PATH_MATCH}, more subscriptions against fewer",
        f"{workload} against {few.subscriptions:,}",
        many.path_match / few.path_match,
        paths=many.paths / few.paths,
        paper=many_seconds / few_seconds,
        paper_paths=many_paths / few_paths,
    )
    memory = {"resident": unrolled.resident, "before": many.before, "file": many.megabytes}
    bench.figure("peak memory, loading and matching", workload, unrolled.peak, "MB", **memory)
