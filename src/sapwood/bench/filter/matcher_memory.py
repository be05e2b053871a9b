"""Resident memory of matchers, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sapwood import Matcher, Tuning
from sapwood.bench.harness import Bench, at_most, experiment, run_isolated, scale
from sapwood.bench.harness.datasets import generate_queries
from sapwood.bench.harness.engines import KERNEL, KERNEL_EXPAT, available_engines, limit_of
from sapwood.bench.harness.memory_usage import peak_megabytes, resident_megabytes

_PASSES = 3
_DEPTH = 8
"""levels of generated paths: six do not give a million of them"""
_PATH_BYTES, _PREDICATE_BYTES = 300.0, 900.0


@experiment("memory", "resident memory with plain paths, in a process of its own")
def measure_memory(
    bench: Bench,
    message_count: int = scale(500, 300, 100, 4),
    query_count: int = scale(153_928, 20_000, 10_000, 60),
) -> Iterator[str]:
    queries = bench.dataset.queries("distinct", query_count)
    workload = f"{len(queries):,} distinct paths"
    file = _write_queries(bench, queries)
    yield f"a new process with {workload}"
    warm, others = yield from run_isolated(load_and_match, file, bench.dataset.messages(message_count))
    bench.figure("resident memory, warm", workload, warm, "MB", at_most(400), **others)


@experiment("query-memory", "resident memory that a query adds, in processes of their own")
def measure_query_memory(
    bench: Bench,
    message_count: int = scale(500, 300, 100, 4),
    paths: tuple[int, ...] = scale((500_000, 1_000_000), (50_000, 100_000), (10_000, 20_000), (50, 100)),
    predicates: int = scale(100_000, 20_000, 4_000, 30),
) -> Iterator[str]:
    """Measure the growth of resident memory by loading, and with the first messages, for every engine."""
    messages = bench.dataset.messages(message_count)
    generated = generate_queries(bench.dataset.dtd, max(paths), depth=_DEPTH)
    populations = [(f"{count:,} distinct paths", generated[:count], _PATH_BYTES) for count in paths]
    with_predicate = bench.dataset.queries("predicates", predicates)
    label = f"{len(with_predicate):,} with an attribute predicate"
    populations.append((label, with_predicate, _PREDICATE_BYTES))
    for workload, queries, limit in populations:
        file = _write_queries(bench, queries)
        for engine in available_engines(bench):
            if engine is KERNEL_EXPAT:  # has the index of the kernel
                continue
            yield f"a new process with {workload}, {engine.label}"
            warm, others = yield from run_isolated(load_and_match, file, messages, engine.tuning)
            before, loaded = others["before_loading"], others["loaded"]
            bench.figure(
                "memory a query",
                f"{workload}, {engine.label}",
                (loaded - before) / len(queries) * 1e6,
                "bytes",
                limit_of(engine, {KERNEL: limit}),
                warm=(warm - before) / len(queries) * 1e6,
                megabytes=loaded,
                peak=others["peak"],
            )


def _write_queries(bench: Bench, queries: Sequence[str]) -> Path:
    file = bench.folder / "queries.txt"
    file.write_text("\n".join(queries), encoding="utf-8")
    return file


def load_and_match(
    file: Path, messages: list[bytes], tuning: Tuning | None = None
) -> Iterator[str | tuple[float, dict[str, float]]]:
    """Load the queries of a file, match the messages three times, and measure megabytes."""
    before = resident_megabytes()
    matcher = Matcher(tuning=tuning)
    with file.open(encoding="utf-8") as lines:  # read line by line: only the matcher holds the queries
        matcher.add_many((number, line.rstrip("\n")) for number, line in enumerate(lines))
    loaded = resident_megabytes()
    for _ in range(_PASSES):
        for message in messages:
            len(matcher.match(message))
    yield resident_megabytes(), {"before_loading": before, "loaded": loaded, "peak": peak_megabytes()}
