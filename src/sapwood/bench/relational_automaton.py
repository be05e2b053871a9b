"""The automaton with the subscriptions that are in tables elsewhere: its process has no DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter

from sapwood import Matcher
from sapwood.bench.memory import peak, resident
from sapwood.bench.relational_findings import Served, digest
from sapwood.bench.relational_news import news_messages, news_queries
from sapwood.workload.studies.stock_workload import StockWorkload


def stocks_by_automaton(
    symbols: int, subscriptions: int, all_messages: int, notifications: int, messages: int, rounds: int
) -> Iterator[str | Served]:
    """Some of the stock messages, all of which cause so many notifications, one at a time."""
    workload = StockWorkload(symbols)
    queries = workload.queries(subscriptions, all_messages, notifications)
    return _serve(queries, subscriptions, list(workload.messages(messages)), rounds)


def news_by_automaton(subscriptions: int, messages: int, rounds: int) -> Iterator[str | Served]:
    """News one at a time."""
    return _serve(news_queries(subscriptions), subscriptions, news_messages(messages), rounds)


def _serve(
    queries: Iterable[str], subscriptions: int, bodies: Sequence[bytes], rounds: int
) -> Iterator[str | Served]:
    messages = len(bodies)
    yield f"loading {subscriptions:,} subscriptions into memory"
    matcher = Matcher()
    start = perf_counter()
    matcher.add_many(enumerate(queries))
    loading = perf_counter() - start
    yield f"{messages:,} messages one at a time"
    found = digest(map(matcher.match, bodies))
    seconds, count = [], 0
    for _ in range(rounds):
        start = perf_counter()
        count = sum(len(matcher.match(body)) for body in bodies)
        seconds.append(perf_counter() - start)
    yield Served(
        loading=loading,
        single=min(seconds) / messages * 1e6,
        batched=None,
        notifications=count,
        digest=found,
        resident=resident(),
        peak=peak(),
        duckdb=0.0,
    )
