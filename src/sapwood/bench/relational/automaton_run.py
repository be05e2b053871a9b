"""Isolated measurement of the automaton with the subscriptions of a workload, in a process without DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from sapwood import Matcher
from sapwood.bench.harness.memory_usage import peak_megabytes, resident_megabytes
from sapwood.bench.harness.timer import wall_seconds
from sapwood.bench.relational.subscription_workloads import SubscriptionWorkload
from sapwood.bench.relational.table_measurements import ServingCost, digest_answers


def serve_automaton(
    workload: SubscriptionWorkload, bodies: Sequence[bytes], rounds: int
) -> Iterator[str | ServingCost]:
    """Load all subscriptions and match messages one at a time."""
    yield f"loading {workload.subscriptions:,} subscriptions into memory"
    matcher = Matcher()
    loading = wall_seconds(partial(matcher.add_many, enumerate(workload.queries())))
    yield f"{len(bodies):,} messages one at a time"
    digest = digest_answers(map(matcher.match, bodies))
    seconds = min(wall_seconds(partial(_count_matches, matcher, bodies)) for _ in range(rounds))
    microseconds = seconds / len(bodies) * 1e6
    notifications = _count_matches(matcher, bodies)
    memory = resident_megabytes(), peak_megabytes()
    yield ServingCost(loading, microseconds, microseconds, notifications, digest, *memory)


def _count_matches(matcher: Matcher, bodies: Sequence[bytes]) -> int:
    return sum(len(matcher.match(body)) for body in bodies)
