"""Paths through news with a predicate each: a workload in which structure tells most, unlike stock quotes."""

from __future__ import annotations

from sapwood.bench.sources import BenchError, Generated
from sapwood.workload import load_dtd


def news_messages(count: int) -> list[bytes]:
    """The same ones every time."""
    return Generated(load_dtd("news")).messages(count)


def news_queries(count: int) -> list[str]:
    """No two equal."""
    found = Generated(load_dtd("news")).predicates(count)
    if len(found) < count:
        raise BenchError(f"there are only {len(found):,} different queries, not {count:,}")
    return found
