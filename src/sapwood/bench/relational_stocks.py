"""Stock quotes for a million subscriptions, by all three plans: the first workload of Tian et al."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.bench.relational_findings import Loaded, Matched, check_agreed
from sapwood.bench.relational_run import measure
from sapwood.bench.relational_setting import RelationalSetting
from sapwood.bench.relational_work import MEMORY, match_by_plans
from sapwood.bench.report import Chart, Listing, Role
from sapwood.bench.setting import Experiment
from sapwood.relational import Plan

PUBLISHED = {
    Plan.UNROLLED: (56, 61, 70, 161),
    Plan.SHARED: (107, 154, 504, 2_369),
    Plan.BUCKETS: (26, 45, 195, 1_210),
}
"""seconds for 1,000, 10,000, 100,000 and 1,000,000 notifications"""
PUBLISHED_READING = 24
PUBLISHED_NOTIFICATIONS = (1_000, 10_000, 100_000, 1_000_000)

ROLES = {Plan.UNROLLED: Role.SAPWOOD, Plan.SHARED: Role.OTHER, Plan.BUCKETS: Role.TWIN}
IN_ORDER = (Plan.SHARED, Plan.BUCKETS, Plan.UNROLLED)
"""files are left as they came"""
WALL = "by the clock on the wall, since DuckDB uses all cores"
PAPER = "paper: DB2 8.1 on a Pentium 4 with 512 MB"
_SMALL_BATCH = 1_000


def stocks(setting: RelationalSetting) -> Iterator[str]:
    """Seconds for all messages against the number of notifications."""
    scale = setting.scale
    workload = f"{scale.messages:,} messages, {scale.subscriptions:,} subscriptions"
    chart = setting.chart(
        Chart(
            "stocks",
            f"Stock quotes: {workload}",
            "notifications",
            "seconds for all messages",
            log_x=True,
            note=PAPER,
            unit=" s",
        )
    )
    seconds = setting.listing(
        Listing(
            "stocks",
            f"Seconds for stock quotes: {workload}",
            (*(plan.value for plan in PUBLISHED), _small_batches(scale.messages), "reading", "found"),
            note=f"{WALL}; reading (parsing, making rows) is a part of each; {PAPER}, as many notifications "
            "for each pair of message and subscription",
        )
    )
    files = setting.listing(
        Listing(
            "stocks-files",
            f"Files of {scale.subscriptions:,} stock subscriptions",
            (
                "loading s",
                "file MB",
                *(f"filing s, {plan.value}" for plan in IN_ORDER),
                "MB at most",
            ),
            note=f"DuckDB limited to {MEMORY}; to be filed anew by another plan; memory of matching",
        )
    )
    for place, notifications in enumerate(scale.notifications):
        loaded = yield from setting.stock_file(scale.subscriptions, notifications)
        found: dict[tuple[Plan, int], Matched] = {}
        for said in measure(
            match_by_plans, [loaded.file], _ways(scale.messages), scale.symbols, scale.messages, scale.rounds
        ):
            if isinstance(said, str):
                yield f"{notifications:,} notifications: {said}"
                continue
            plan = Plan(said.plan)
            found[plan, said.batch] = said
            if said.batch == scale.messages:
                chart.curve(plan.value, ROLES[plan]).add(
                    notifications, said.best, found=said.notifications, reading=round(said.reading, 2)
                )
        check_agreed(f"{notifications:,} notifications", *found.values())
        by_plan = {plan: found[plan, scale.messages] for plan in PUBLISHED}
        small = found[Plan.UNROLLED, min(_SMALL_BATCH, scale.messages)]
        _add_published(chart, place, notifications)
        _list(seconds, notifications, place, by_plan, small)
        _list_file(files, notifications, loaded, by_plan)
        _report(setting, f"{workload}, {notifications:,} notifications", place, by_plan)
        if notifications != scale.notifications_at(scale.subscriptions):
            setting.drop(loaded)


def _ways(messages: int) -> list[tuple[str, int]]:
    ways = [(plan.value, messages) for plan in IN_ORDER]
    return [*ways, (Plan.UNROLLED.value, _SMALL_BATCH)] if messages > _SMALL_BATCH else ways


def _small_batches(messages: int) -> str:
    return f"{Plan.UNROLLED.value}, batches of {min(_SMALL_BATCH, messages):,}"


def _add_published(chart: Chart, place: int, notifications: int) -> None:
    if place < len(PUBLISHED_NOTIFICATIONS):
        for plan, role in ((Plan.UNROLLED, Role.PUBLISHED), (Plan.SHARED, Role.PUBLISHED_BASELINE)):
            chart.curve(f"paper: {plan.value}", role).add(notifications, PUBLISHED[plan][place])


def _list(
    seconds: Listing, notifications: int, place: int, by_plan: dict[Plan, Matched], small: Matched
) -> None:
    ours = [found.best for found in by_plan.values()]
    reading = min(found.reading for found in by_plan.values())
    seconds.add(
        f"{notifications:,} notifications", *ours, small.best, reading, by_plan[Plan.UNROLLED].notifications
    )
    if place < len(PUBLISHED_NOTIFICATIONS):
        theirs = [published[place] for published in PUBLISHED.values()]
        asked = PUBLISHED_NOTIFICATIONS[place]
        seconds.add(
            f"paper: {asked:,} notifications", *theirs, None, PUBLISHED_READING, asked, published=True
        )


def _list_file(files: Listing, notifications: int, loaded: Loaded, by_plan: dict[Plan, Matched]) -> None:
    files.add(
        f"{notifications:,} notifications",
        loaded.seconds,
        loaded.megabytes,
        *(by_plan[plan].filing for plan in IN_ORDER),
        by_plan[Plan.UNROLLED].peak,
    )


def _report(setting: RelationalSetting, workload: str, place: int, by_plan: dict[Plan, Matched]) -> None:
    unrolled = by_plan[Plan.UNROLLED]
    for plan in (Plan.SHARED, Plan.BUCKETS):
        paper: dict[str, float] = {}
        if place < len(PUBLISHED_NOTIFICATIONS):
            paper["paper"] = round(PUBLISHED[plan][place] / PUBLISHED[Plan.UNROLLED][place], 2)
        setting.figure(
            f"plan {plan.value}, against {Plan.UNROLLED.value}",
            workload,
            by_plan[plan].best / unrolled.best,
            "times",
            seconds=round(by_plan[plan].best, 2),
            unrolled_seconds=round(unrolled.best, 2),
            notifications=unrolled.notifications,
            **paper,
        )


EXPERIMENTS = (Experiment("stocks", "stock quotes by three plans, by notifications", stocks),)
