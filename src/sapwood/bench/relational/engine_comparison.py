"""The automaton against tables: cost of a message, and the size from which tables take less memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import exp, log

from sapwood.bench.harness import Bench, ChartAxis, Role, experiment, run_isolated, scale
from sapwood.bench.relational.automaton_run import serve_automaton
from sapwood.bench.relational.database_runs import MEMORY, serve_database
from sapwood.bench.relational.stock_databases import STOCKS, open_database
from sapwood.bench.relational.subscription_workloads import NewsPaths, SubscriptionWorkload
from sapwood.bench.relational.table_measurements import WALL, ServingCost, check_agreement

_TABLES, _AUTOMATON = "tables", "automaton"


@experiment("crossing", "tables against the automaton: cost and memory")
def measure_engines(
    bench: Bench,
    both: tuple[int, ...] = scale((1_000, 10_000, 100_000, 300_000), (1_000, 5_000), (20,)),
    tables_only: tuple[int, ...] = scale((1_000_000,), (20_000,), (200,)),
    news: tuple[int, ...] = scale((1_000, 10_000, 100_000), (1_000, 5_000), (5, 30)),
    news_batch: int = scale(500, 100, 4),
) -> Iterator[str]:
    """Measure the cost of a message and memory against the number of subscriptions, of stocks and of news."""
    stocks = bench.select(STOCKS)
    quotes = {size: stocks.quotes(size) for size in (*both, *tables_only)}
    title = "A stock quote, the same share of subscriptions notified"
    yield from _compare_engines(bench, "stocks", title, quotes, stocks.batch, tables_only)
    paths = {size: NewsPaths(size) for size in news}
    yield from _compare_engines(
        bench, "news", "A piece of news, paths with a predicate each", paths, news_batch
    )


def _compare_engines(
    bench: Bench,
    name: str,
    title: str,
    workloads: Mapping[int, SubscriptionWorkload],
    batch: int,
    tables_only: tuple[int, ...] = (),
) -> Iterator[str]:
    stocks = bench.select(STOCKS)
    y = ChartAxis("microseconds a message", " µs")
    cost = bench.chart(f"crossing-{name}-cost", title, "subscriptions", y, log_x=True, note=WALL)
    memory = bench.chart(
        f"crossing-{name}-memory",
        f"Memory of a process with the subscriptions to {name}",
        "subscriptions",
        ChartAxis("resident megabytes", " MB"),
        log_x=True,
        note=f"tables: DuckDB limited to {MEMORY}",
    )
    listing = bench.listing(
        f"crossing-{name}",
        f"Loading subscriptions to {name}, seconds",
        ("automaton", "tables", "opening tables again", "file MB"),
        WALL,
    )
    both: dict[int, tuple[ServingCost, ServingCost]] = {}
    for size, workload in workloads.items():
        loaded = yield from open_database(bench, workload)
        bodies = workload.messages(batch)
        yield f"{name}, {size:,} subscriptions in tables"
        tables = yield from run_isolated(serve_database, loaded.file, bodies, stocks.singles, stocks.rounds)
        cost.curve(f"{_TABLES}, batches of {batch:,}", Role.SAPWOOD).add(size, tables.batched)
        cost.curve(f"{_TABLES}, one at a time", Role.FIRST).add(size, tables.single)
        memory.curve(_TABLES, Role.SAPWOOD).add(size, tables.resident, duckdb=tables.duckdb)
        cells = loaded.seconds, tables.loading, loaded.megabytes
        if size in tables_only:
            listing.add(f"{size:,} subscriptions", None, *cells)
            continue
        automaton = yield from run_isolated(serve_automaton, workload, bodies, stocks.rounds)
        check_agreement(f"{name}, {size:,} subscriptions", automaton, tables)
        both[size] = automaton, tables
        cost.curve(_AUTOMATON, Role.OTHER).add(size, automaton.single)
        memory.curve(_AUTOMATON, Role.OTHER).add(size, automaton.resident)
        listing.add(f"{size:,} subscriptions", automaton.loading, *cells)
    _report(bench, name, batch, both)


def _report(bench: Bench, name: str, batch: int, both: Mapping[int, tuple[ServingCost, ServingCost]]) -> None:
    most = max(both)
    automaton, tables = both[most]
    workload = f"{name}, {most:,} subscriptions"
    where = find_crossing({size: (a.resident, t.resident) for size, (a, t) in both.items()})
    if where is not None:
        measure = "tables take less memory than the automaton, from"
        bench.figure(measure, f"{name}, up to {most:,} subscriptions", round(where), "subscriptions")
    bench.ratio(
        "memory, the automaton against tables",
        workload,
        automaton_megabytes=automaton.resident,
        tables_megabytes=tables.resident,
    )
    bench.ratio(
        f"a message, the automaton against tables in batches of {batch:,}",
        workload,
        automaton_microseconds=automaton.single,
        tables_microseconds=tables.batched,
        tables_alone_microseconds=tables.single,
    )


def find_crossing(curves: Mapping[int, tuple[float, float]]) -> float | None:
    """Return the size from which the first of two curves is above the second, or None.

    Between the given sizes, the curves are straight on logarithmic axes.
    """
    apart = sorted((size, log(first / second)) for size, (first, second) in curves.items())
    for (size, before), (next_size, after) in pairwise(apart):
        if before <= 0 < after:
            return exp(log(size) + (log(next_size) - log(size)) * before / (before - after))
    return None
