"""Cost of publishing a message to for-where-return queries, of which about one in a hundred has a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import mean

from sapwood import Broker
from sapwood.bench.harness.benchmark_report import RAW
from sapwood.bench.harness.datasets import NitfFolder, generate_transformations
from sapwood.bench.harness.experiment import Bench, at_most, experiment
from sapwood.bench.harness.timing import clock, time_interleaved
from sapwood.bench.transform.evaluators import shared_evaluator
from sapwood.bench.transform.result_cost import writing_pass
from sapwood.bench.transform.thesis_workload import book, compile_all


@experiment(
    "cost",
    "cost of publishing a message",
    query_count=(10_000, 2_000, 50),
    message_count=(180, 50, 3),
    rounds=(9, 5, 2),
)
def measure_publishing(bench: Bench, query_count: int, message_count: int, rounds: int) -> Iterator[str]:
    """Measure the published NITF messages, if given, and generated ones."""
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
    bar = at_most(15, promised)
    bench.figure("publishing, without writing results", workload, rest.multiple, RAW, bar, **rest.details())
    bench.figure("publishing", workload, publishing.multiple, RAW, **details)
    bench.figure("writing results", workload, writing.multiple, RAW, **writing.details())


def publish_pass(broker: Broker, messages: Sequence[bytes]) -> float:
    """Return the seconds of publishing all messages."""
    start = clock()
    for message in messages:
        len(broker.publish(message))
    return clock() - start
