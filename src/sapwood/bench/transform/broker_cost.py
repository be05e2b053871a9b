"""Cost of a broker with for-where-return queries: publishing a message, adding and removing a query."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from statistics import mean, median

from sapwood import Broker
from sapwood.bench.harness import RAW, Bench, at_most, experiment, scale
from sapwood.bench.harness.datasets import NitfFolder, generate_transformations
from sapwood.bench.harness.engines import by_engine
from sapwood.bench.harness.timer import clock, cpu_seconds, time_interleaved
from sapwood.bench.transform.evaluators import shared_evaluator
from sapwood.bench.transform.result_cost import writing_pass
from sapwood.bench.transform.thesis_workload import MANY_VALUES, book, compile_all

_MESSAGES = 50
"""between which queries are added and removed"""


@experiment("cost", "cost of publishing a message")
def measure_publishing(
    bench: Bench,
    query_count: int = scale(10_000, 2_000, 50),
    message_count: int = scale(180, 50, 3),
    rounds: int = scale(9, 5, 2),
) -> Iterator[str]:
    """Measure published NITF messages, if given, and generated ones; one query in a hundred has a result."""
    dataset = bench.dataset
    if isinstance(dataset, NitfFolder):  # whose messages have twenty values
        queries = generate_transformations(dataset.dtd, query_count, binding_depth=2, values=20)
        messages = dataset.messages(message_count)
        yield from measure_cost(bench, "published NITF messages", queries, messages, rounds, promised=True)
    workload = book()
    queries = workload.queries(query_count, predicate_paths=2, values=25)
    messages = workload.messages(message_count, values=25)
    name = f"DTD {workload.dtd.name}"
    yield from measure_cost(bench, name, queries, messages, rounds, promised=False)


def measure_cost(
    bench: Bench, name: str, queries: Sequence[str], messages: Sequence[bytes], rounds: int, *, promised: bool
) -> Iterator[str]:
    """Measure publishing and the writing of results in the same rounds."""
    workload = f"{len(queries):,} queries, {name}"
    yield f"loading {workload}"
    shared = shared_evaluator()
    shared.load(compile_all(queries))
    with Broker() as broker:
        broker.subscribe_many(enumerate(queries))
        yield workload
        passes = [partial(publish_pass, broker, messages), partial(writing_pass, shared, messages)]
        publishing, writing = time_interleaved(passes, messages, least=rounds, warm_up=2)
        matched = mean(len(broker.publish(message)) for message in messages)
    rest = publishing.subtract(writing)
    details = publishing.details(matched=matched, share=matched / len(queries))
    bar = at_most(by_engine(5, 15), promised)
    bench.figure("publishing, without writing results", workload, rest.multiple, RAW, bar, **rest.details())
    bench.figure("publishing", workload, publishing.multiple, RAW, **details)
    bench.figure("writing results", workload, writing.multiple, RAW, **writing.details())


def publish_pass(broker: Broker, messages: Sequence[bytes]) -> float:
    """Return the seconds of publishing all messages."""
    start = clock()
    for message in messages:
        len(broker.publish(message))
    return clock() - start


@experiment("adding", "adding and removing a query, among few and many")
def measure_changes(
    bench: Bench,
    sizes: tuple[int, int] = scale((100, 50_000), (100, 5_000), (5, 40)),
    changes: int = scale(300, 100, 6),
) -> Iterator[str]:
    """Measure the same queries added to few and to many, between messages, so that caches are warm."""
    workload = book()
    few, many = sizes
    queries = workload.queries(changes + many, values=MANY_VALUES)
    added, population = queries[:changes], queries[changes:]
    messages = workload.messages(_MESSAGES, MANY_VALUES)
    times: dict[int, dict[str, list[float]]] = {}
    for size in sizes:
        yield f"loading {size:,} queries"
        with Broker() as broker:
            broker.subscribe_many(enumerate(population[:size]))
            yield f"queries added to {size:,}, and removed"
            publish_pass(broker, messages)
            publish_pass(broker, messages)
            times[size] = _time_changes(broker, added, messages)
    for measure in ("adding a query", "removing a query"):
        among_few, among_many = times[few][measure], times[many][measure]
        bench.ratio(
            measure,
            f"{many:,} queries against {few:,}",
            at_most(5),
            many_microseconds=median(among_many),
            few_microseconds=median(among_few),
            many_mean_microseconds=mean(among_many),
            many_highest_microseconds=max(among_many),
            changes=changes,
        )
    measure = "first message after a query was added"
    for size, timed in times.items():
        ratios = [after / again for after, again in zip(timed[measure], timed["again"], strict=True)]
        bench.figure(
            measure,
            f"{size:,} queries, against the same message again",
            median(ratios),
            after_microseconds=median(timed[measure]),
            quiet_microseconds=median(timed["again"]),
        )


def _time_changes(broker: Broker, added: Sequence[str], messages: Sequence[bytes]) -> dict[str, list[float]]:
    """Return the microseconds of changes, and of messages right after them, which include deferred work."""
    times: dict[str, list[float]] = defaultdict(list)

    def time(name: str, work: Callable[[], object]) -> None:
        times[name].append(cpu_seconds(work) * 1e6)

    gc.collect()
    for query, message in zip(added, cycle(messages), strict=False):
        publish = partial(broker.publish, message)
        time("adding a query", partial(broker.subscribe, "new", query))
        time("first message after a query was added", publish)
        time("removing a query", partial(broker.unsubscribe, "new"))
        publish()
        time("again", publish)
    return times
