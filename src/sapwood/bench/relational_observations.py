"""Branching queries over descriptions of observations: the second workload of Tian et al. in shape."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.bench.relational_findings import Grown, Matched, check_agreed
from sapwood.bench.relational_run import measure
from sapwood.bench.relational_setting import RelationalSetting
from sapwood.bench.relational_stocks import PAPER, ROLES, WALL
from sapwood.bench.relational_work import observe
from sapwood.bench.report import Chart, Listing, Role
from sapwood.bench.setting import Experiment
from sapwood.relational import Plan

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


def observations(setting: RelationalSetting) -> Iterator[str]:
    """Linear paths, path match and matching against the number of subscriptions, in one process."""
    scale = setting.scale
    title = f"{scale.documents:,} descriptions of observations"
    chart = setting.chart(
        Chart(
            "observations",
            title,
            "subscriptions",
            "seconds for all documents",
            log_x=True,
            note=f"{PAPER}, and descriptions of NASA's datasets",
            unit=" s",
        )
    )
    paths = setting.listing(
        Listing(
            "observations-paths",
            f"{title}: linear paths and tag paths",
            ("predicates", "linear paths", "tag paths", "path match s"),
            note=f"path match as if none were known; {PAPER}",
        )
    )
    matching = setting.listing(
        Listing(
            "observations",
            f"{title}: matching",
            (
                "added in s",
                *(f"{plan.value} s" for plan in _PLANS),
                "reading s",
                "found",
                "file MB",
                "MB at most",
            ),
            note=f"{WALL}; reading (parsing, making rows) is a part; memory with that of all documents",
        )
    )
    grown: list[Grown] = []
    found: dict[Plan, Matched] = {}
    for said in measure(
        observe,
        str(setting.folder / "observations.duckdb"),
        scale.documents,
        list(scale.observation_sizes),
        scale.observation_shared,
        scale.document_batch,
        scale.observation_rounds,
    ):
        if isinstance(said, str):
            yield said
        elif isinstance(said, Grown):
            grown.append(said)
            found.clear()
            _add_path_match(chart, paths, said)
        else:
            plan = Plan(said.plan)
            found[plan] = said
            chart.curve(plan.value, ROLES[plan]).add(
                grown[-1].subscriptions, said.best, notifications=said.notifications
            )
            if plan is Plan.UNROLLED:
                check_agreed(f"{grown[-1].subscriptions:,} subscriptions", *found.values())
                _list(matching, grown[-1], found)
                _compare(setting, grown[-1], found)
    for subscriptions, (predicates, distinct, seconds) in PUBLISHED.items():
        label = f"paper: {subscriptions:,} subscriptions"
        paths.add(label, predicates, distinct, PUBLISHED_TAGS, seconds, published=True)
        chart.curve("paper: path match", Role.PUBLISHED).add(subscriptions, seconds)
    _report(setting, grown, found[Plan.UNROLLED])


def _add_path_match(chart: Chart, paths: Listing, grown: Grown) -> None:
    chart.curve(_PATH_MATCH, Role.FIRST).add(
        grown.subscriptions, grown.path_match, paths=grown.paths, tags=grown.tags, matches=grown.matches
    )
    label = f"{grown.subscriptions:,} subscriptions"
    paths.add(label, grown.predicates, grown.paths, grown.tags, grown.path_match)


def _list(matching: Listing, grown: Grown, found: dict[Plan, Matched]) -> None:
    matching.add(
        f"{grown.subscriptions:,} subscriptions",
        grown.loading,
        *(found[plan].best if plan in found else None for plan in _PLANS),
        min(matched.reading for matched in found.values()),
        found[Plan.UNROLLED].notifications,
        grown.megabytes,
        max(matched.peak for matched in found.values()),
    )


def _compare(setting: RelationalSetting, grown: Grown, found: dict[Plan, Matched]) -> None:
    if Plan.SHARED in found:
        shared, unrolled = found[Plan.SHARED], found[Plan.UNROLLED]
        setting.figure(
            f"plan {Plan.SHARED.value}, against {Plan.UNROLLED.value}",
            f"observations, {grown.subscriptions:,} subscriptions",
            shared.best / unrolled.best,
            "times",
            seconds=round(shared.best, 2),
            unrolled_seconds=round(unrolled.best, 2),
            notifications=unrolled.notifications,
        )


def _report(setting: RelationalSetting, grown: list[Grown], unrolled: Matched) -> None:
    few, many = grown[0], grown[-1]
    workload = f"observations, {many.subscriptions:,} subscriptions"
    setting.figure(
        _PATH_MATCH,
        workload,
        many.path_match,
        "seconds",
        paths=many.paths,
        tags=many.tags,
        matches=many.matches,
        paper=PUBLISHED[2_700_000][2],
    )
    setting.figure(
        f"{_PATH_MATCH}, more subscriptions against fewer",
        f"{workload} against {few.subscriptions:,}",
        many.path_match / few.path_match,
        "times",
        paths=round(many.paths / few.paths, 1),
        paper=round(37 / 7, 1),
        paper_paths=round(42_271 / 6_565, 1),
    )
    setting.figure(
        "memory at most, loading and matching",
        workload,
        unrolled.peak,
        "MB",
        resident=round(unrolled.resident),
        before=round(many.before),
        file=round(many.megabytes),
    )


EXPERIMENTS = (Experiment("observations", "branching queries: linear paths and path match", observations),)
