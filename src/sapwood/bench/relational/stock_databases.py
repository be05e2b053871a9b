"""Scales of the stock quotes, and the databases of them that several experiments use."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from sapwood.bench.harness import Bench, Role, run_isolated
from sapwood.bench.relational.database_runs import load_database
from sapwood.bench.relational.subscription_workloads import StockQuotes, SubscriptionWorkload
from sapwood.bench.relational.table_measurements import LoadedFile
from sapwood.relational import Plan
from sapwood.workload.studies.stock_workload import SYMBOLS

ROLES = {Plan.UNROLLED: Role.SAPWOOD, Plan.SHARED: Role.OTHER, Plan.BUCKETS: Role.TWIN}
PLANS = (Plan.SHARED, Plan.BUCKETS, Plan.UNROLLED)
"""in the order of measurement: files are left with the access structures that they had at first"""
_SELECTIVE = -2
"""the position of the number of notifications that experiments use which vary something else"""


class StockScale(NamedTuple):
    """The sizes that all experiments with stock quotes share."""

    rounds: int
    messages: int
    subscriptions: int
    notifications: tuple[int, ...]
    """in all; for each pair of message and subscription as many as in the paper"""
    batch: int
    """messages in a batch where single messages are measured as well"""
    singles: int
    """single messages, which take long with a database"""
    symbols: int = SYMBOLS

    def quotes(self, subscriptions: int, notifications: int | None = None) -> StockQuotes:
        """Return a workload; unless given, it has the same notifications for each pair, whatever its size."""
        if notifications is None:
            notifications = self.notifications_at(subscriptions)
        return StockQuotes(self.symbols, subscriptions, self.messages, notifications)

    def notifications_at(self, subscriptions: int) -> int:
        return subscriptions * self.notifications[_SELECTIVE] // self.subscriptions


STOCKS = (
    StockScale(3, 10_000, 1_000_000, (1_000, 10_000, 100_000, 1_000_000), 1_000, 20),
    StockScale(2, 2_000, 20_000, (4, 40, 400, 4_000), 500, 5),
    StockScale(1, 40, 200, (160, 1_000), 20, 1, symbols=5),
)


def open_database(bench: Bench, workload: SubscriptionWorkload) -> Generator[str, None, LoadedFile]:
    """Load a database in a process of its own, unless an experiment before has loaded it."""
    if workload not in bench.cache:
        file = str(bench.folder / f"{workload.key}.duckdb")
        yield f"loading {workload.subscriptions:,} subscriptions"
        bench.cache[workload] = yield from run_isolated(load_database, file, workload)
    loaded: LoadedFile = bench.cache[workload]
    return loaded


def drop_database(bench: Bench, workload: SubscriptionWorkload) -> None:
    """Delete a database that no experiment needs any more."""
    Path(bench.cache.pop(workload).file).unlink()
