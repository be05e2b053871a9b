"""The automaton against tables: from how many subscriptions on these take less memory, and at what cost."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from itertools import pairwise
from math import exp, log
from typing import Protocol

from sapwood.bench.relational_automaton import news_by_automaton, stocks_by_automaton
from sapwood.bench.relational_findings import Loaded, Served, check_agreed
from sapwood.bench.relational_run import measure, told
from sapwood.bench.relational_setting import RelationalSetting
from sapwood.bench.relational_stocks import WALL
from sapwood.bench.relational_work import MEMORY, serve_news, serve_stocks
from sapwood.bench.report import Chart, Listing, Role
from sapwood.bench.setting import Experiment

_TABLES, _AUTOMATON = "tables", "automaton"


class _Workload(Protocol):
    """Subscriptions and messages, for both engines; each is measured in a process of its own."""

    name: str
    message: str
    """what one is called"""
    sizes: tuple[int, ...]
    beyond: tuple[int, ...]
    """sizes that only tables are tried with"""
    batch: int

    def load(self, size: int) -> Generator[str, None, Loaded]: ...
    def serve(self, loaded: Loaded) -> Iterator[str | Served]: ...
    def automaton(self, size: int) -> Iterator[str | Served]: ...


class _Stocks:
    """Flat messages of which values tell everything."""

    name, message = "stocks", "A stock quote, the same share of subscriptions notified"

    def __init__(self, setting: RelationalSetting) -> None:
        self._scale = setting.scale
        self.load = setting.selective_file
        self.sizes, self.beyond = self._scale.crossing_sizes, self._scale.crossing_beyond
        self.batch = self._scale.batch

    def serve(self, loaded: Loaded) -> Iterator[str | Served]:
        scale = self._scale
        return measure(serve_stocks, loaded.file, scale.symbols, scale.batch, scale.singles, scale.rounds)

    def automaton(self, size: int) -> Iterator[str | Served]:
        scale = self._scale
        notifications = scale.notifications_at(size)
        return measure(
            stocks_by_automaton, scale.symbols, size, scale.messages, notifications, scale.batch, scale.rounds
        )


class _News:
    """Documents, and paths through them."""

    name, message = "news", "A piece of news, paths with a predicate each"

    def __init__(self, setting: RelationalSetting) -> None:
        self._scale = setting.scale
        self.load = setting.news_file
        self.sizes = self._scale.news_sizes
        self.beyond: tuple[int, ...] = ()
        self.batch = self._scale.news

    def serve(self, loaded: Loaded) -> Iterator[str | Served]:
        scale = self._scale
        return measure(serve_news, loaded.file, scale.news, scale.singles, scale.rounds)

    def automaton(self, size: int) -> Iterator[str | Served]:
        return measure(news_by_automaton, size, self._scale.news, self._scale.rounds)


def crossing(setting: RelationalSetting) -> Iterator[str]:
    """Cost of a message and memory against the number of subscriptions."""
    workloads: tuple[_Workload, ...] = _Stocks(setting), _News(setting)
    for workload in workloads:
        yield from _compared(setting, workload)


def _compared(setting: RelationalSetting, workload: _Workload) -> Iterator[str]:
    name, batch = workload.name, workload.batch
    cost = setting.chart(
        Chart(
            f"crossing-{name}-cost",
            workload.message,
            "subscriptions",
            "microseconds a message",
            log_x=True,
            note=WALL,
            unit=" µs",
        )
    )
    memory = setting.chart(
        Chart(
            f"crossing-{name}-memory",
            f"Memory of a process with the subscriptions to {name}",
            "subscriptions",
            "resident megabytes",
            log_x=True,
            note=f"tables: DuckDB limited to {MEMORY}",
            unit=" MB",
        )
    )
    listing = setting.listing(
        Listing(
            f"crossing-{name}",
            f"Loading subscriptions to {name}, seconds",
            ("automaton", "tables", "opening tables again", "file MB"),
            note=WALL,
        )
    )
    both: dict[int, tuple[Served, Served]] = {}
    for size in (*workload.sizes, *workload.beyond):
        loaded = yield from workload.load(size)
        tables = yield from told(workload.serve(loaded), f"{name}, {size:,} subscriptions in tables: ")
        assert tables.batched is not None
        cost.curve(f"{_TABLES}, batches of {batch:,}", Role.SAPWOOD).add(size, tables.batched)
        cost.curve(f"{_TABLES}, one at a time", Role.FIRST).add(size, tables.single)
        memory.curve(_TABLES, Role.SAPWOOD).add(size, tables.resident, duckdb=round(tables.duckdb))
        row = loaded.seconds, tables.loading, loaded.megabytes
        if size in workload.beyond:
            listing.add(f"{size:,} subscriptions", None, *row)
            continue
        automaton = yield from told(workload.automaton(size), f"{name}, automaton: ")
        check_agreed(f"{name}, {size:,} subscriptions", automaton, tables)
        both[size] = automaton, tables
        cost.curve(_AUTOMATON, Role.OTHER).add(size, automaton.single)
        memory.curve(_AUTOMATON, Role.OTHER).add(size, automaton.resident)
        listing.add(f"{size:,} subscriptions", automaton.loading, *row)
    _report(setting, workload, both)


def _report(
    setting: RelationalSetting, workload: _Workload, both: Mapping[int, tuple[Served, Served]]
) -> None:
    most = max(both)
    automaton, tables = both[most]
    where = crossing_point({size: (a.resident, t.resident) for size, (a, t) in both.items()})
    if where is not None:
        setting.figure(
            "tables take less memory than the automaton, from",
            f"{workload.name}, up to {most:,} subscriptions",
            round(where),
            "subscriptions",
        )
    setting.figure(
        "memory, the automaton against tables",
        f"{workload.name}, {most:,} subscriptions",
        automaton.resident / tables.resident,
        "times",
        automaton_megabytes=round(automaton.resident),
        tables_megabytes=round(tables.resident),
    )
    assert tables.batched is not None
    setting.figure(
        f"a message, the automaton against tables in batches of {workload.batch:,}",
        f"{workload.name}, {most:,} subscriptions",
        automaton.single / tables.batched,
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
