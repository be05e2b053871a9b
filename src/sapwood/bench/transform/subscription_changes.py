"""Cost of adding and removing a for-where-return query, among few and among many others."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from statistics import mean, median

from sapwood import Broker
from sapwood.bench.harness.experiment import Bench, at_most, experiment
from sapwood.bench.harness.timing import cpu_seconds
from sapwood.bench.transform.publishing_cost import publish_pass
from sapwood.bench.transform.thesis_workload import MANY_VALUES, book

_MESSAGES = 50


@dataclass(frozen=True, slots=True)
class ChangeTimes:
    """Seconds of each change, and of messages."""

    adding: list[float] = field(default_factory=list)
    removing: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    """the first message after a query was added, which includes deferred work"""
    unchanged: list[float] = field(default_factory=list)
    """the same message without a change before it"""


@experiment(
    "adding",
    "adding and removing a query, among few and many",
    sizes=((100, 50_000), (100, 5_000), (5, 40)),
    changes=(300, 100, 6),
)
def measure_changes(bench: Bench, sizes: tuple[int, int], changes: int) -> Iterator[str]:
    """Measure the same queries added to few and to many, between messages, so that caches are warm."""
    workload = book()
    few, many = sizes
    queries = workload.queries(changes + many, values=MANY_VALUES)
    added, population = queries[:changes], queries[changes:]
    messages = workload.messages(_MESSAGES, MANY_VALUES)
    times: list[ChangeTimes] = []
    for size in sizes:
        yield f"loading {size:,} queries"
        with Broker() as broker:
            broker.subscribe_many(enumerate(population[:size]))
            yield f"queries added to {size:,}, and removed"
            publish_pass(broker, messages)
            publish_pass(broker, messages)
            times.append(_time_changes(broker, added, messages))
    least, most = times
    for measure, among_few, among_many in (
        ("adding a query", least.adding, most.adding),
        ("removing a query", least.removing, most.removing),
    ):
        bench.figure(
            measure,
            f"{many:,} queries against {few:,}",
            median(among_many) / median(among_few),
            "times",
            at_most(5),
            few_microseconds=median(among_few) * 1e6,
            many_microseconds=median(among_many) * 1e6,
            many_mean_microseconds=mean(among_many) * 1e6,
            many_highest_microseconds=max(among_many) * 1e6,
            changes=changes,
        )
    for size, timed in zip(sizes, times, strict=True):
        bench.figure(
            "first message after a query was added",
            f"{size:,} queries, against the same message again",
            median(after / again for after, again in zip(timed.after, timed.unchanged, strict=True)),
            after_microseconds=median(timed.after) * 1e6,
            quiet_microseconds=median(timed.unchanged) * 1e6,
        )


def _time_changes(broker: Broker, added: Sequence[str], messages: Sequence[bytes]) -> ChangeTimes:
    times = ChangeTimes()
    gc.collect()
    for query, message in zip(added, cycle(messages), strict=False):
        times.adding.append(cpu_seconds(partial(broker.subscribe, "new", query)))
        times.after.append(cpu_seconds(partial(broker.publish, message)))
        times.removing.append(cpu_seconds(partial(broker.unsubscribe, "new")))
        len(broker.publish(message))
        times.unchanged.append(cpu_seconds(partial(broker.publish, message)))
    return times
