"""The automaton against tables: from how many subscriptions on these take less memory, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import exp, log

from sapwood.bench.relational_automaton import serve_automaton
from sapwood.bench.relational_findings import Served, check_agreed
from sapwood.bench.relational_run import measure, told
from sapwood.bench.relational_setting import RelationalSetting
from sapwood.bench.relational_stocks import WALL
from sapwood.bench.relational_work import MEMORY, serve_tables
from sapwood.bench.report import Chart, Listing, Role
from sapwood.bench.setting import Experiment

_TABLES, _AUTOMATON = "tables", "automaton"


def crossing(setting: RelationalSetting) -> Iterator[str]:
    """Cost of a message and memory against the number of subscriptions, each engine in its own process."""
    scale = setting.scale
    cost = setting.chart(
        Chart(
            "crossing-cost",
            "A stock quote, the same share of subscriptions notified",
            "subscriptions",
            "microseconds a message",
            log_x=True,
            note=WALL,
            unit=" µs",
        )
    )
    memory = setting.chart(
        Chart(
            "crossing-memory",
            "Memory of a process that has the subscriptions at hand",
            "subscriptions",
            "resident megabytes",
            log_x=True,
            note=f"tables: DuckDB limited to {MEMORY}",
            unit=" MB",
        )
    )
    listing = setting.listing(
        Listing(
            "crossing",
            "Loading stock subscriptions, seconds",
            ("automaton", "tables", "opening tables again", "file MB"),
            note=WALL,
        )
    )
    both: dict[int, tuple[Served, Served]] = {}
    for size in (*scale.crossing_sizes, *scale.crossing_beyond):
        loaded = yield from setting.selective_file(size)
        tables = yield from told(
            measure(serve_tables, loaded.file, scale.symbols, scale.batch, scale.singles, scale.rounds),
            f"{size:,} subscriptions in tables: ",
        )
        assert tables.batched is not None
        cost.curve(f"{_TABLES}, batches of {scale.batch:,}", Role.SAPWOOD).add(size, tables.batched)
        cost.curve(f"{_TABLES}, one at a time", Role.FIRST).add(size, tables.single)
        memory.curve(_TABLES, Role.SAPWOOD).add(size, tables.resident, duckdb=round(tables.duckdb))
        row = loaded.seconds, tables.loading, loaded.megabytes
        if size in scale.crossing_beyond:
            listing.add(f"{size:,} subscriptions", None, *row)
            continue
        automaton = yield from told(_automaton(setting, size), "automaton: ")
        check_agreed(f"{size:,} subscriptions", automaton, tables)
        both[size] = automaton, tables
        cost.curve(_AUTOMATON, Role.OTHER).add(size, automaton.single)
        memory.curve(_AUTOMATON, Role.OTHER).add(size, automaton.resident)
        listing.add(f"{size:,} subscriptions", automaton.loading, *row)
    _report(setting, both)


def _automaton(setting: RelationalSetting, size: int) -> Iterator[str | Served]:
    scale = setting.scale
    notifications = scale.notifications_at(size)
    return measure(
        serve_automaton, scale.symbols, size, scale.messages, notifications, scale.batch, scale.rounds
    )


def _report(setting: RelationalSetting, both: Mapping[int, tuple[Served, Served]]) -> None:
    most = max(both)
    automaton, tables = both[most]
    where = crossing_point({size: (a.resident, t.resident) for size, (a, t) in both.items()})
    if where is not None:
        setting.figure(
            "tables take less memory than the automaton, from",
            f"stocks, up to {most:,} subscriptions",
            round(where),
            "subscriptions",
        )
    setting.figure(
        "memory, the automaton against tables",
        f"stocks, {most:,} subscriptions",
        automaton.resident / tables.resident,
        "times",
        automaton_megabytes=round(automaton.resident),
        tables_megabytes=round(tables.resident),
    )
    assert tables.batched is not None
    setting.figure(
        f"a message, tables in batches of {setting.scale.batch:,} against the automaton",
        f"stocks, {most:,} subscriptions",
        tables.batched / automaton.single,
        "times",
        automaton_microseconds=round(automaton.single, 1),
        tables_microseconds=round(tables.batched, 1),
        tables_alone_microseconds=round(tables.single, 1),
    )


def crossing_point(sizes: Mapping[int, tuple[float, float]]) -> float | None:
    """Where the first of two curves comes to lie above the second, between sizes on a logarithmic axis; None
    if it does not."""
    apart = sorted((size, log(first / second)) for size, (first, second) in sizes.items())
    for (size, before), (next_size, after) in pairwise(apart):
        if before <= 0 < after:
            return exp(log(size) + (log(next_size) - log(size)) * before / (before - after))
    return None


EXPERIMENTS = (Experiment("crossing", "tables against the automaton: cost and memory", crossing),)
