"""Resident memory of a matcher with plain paths, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sapwood import Matcher
from sapwood.bench.harness import Bench, at_most, experiment, run_isolated, scale
from sapwood.bench.harness.memory_usage import peak_megabytes, resident_megabytes

_PASSES = 3


@experiment("memory", "resident memory with plain paths, in a process of its own")
def measure_memory(
    bench: Bench,
    message_count: int = scale(500, 300, 100, 4),
    query_count: int = scale(153_928, 20_000, 10_000, 60),
) -> Iterator[str]:
    queries = bench.dataset.queries("distinct", query_count)
    workload = f"{len(queries):,} distinct paths"
    file = bench.folder / "paths.txt"
    file.write_text("\n".join(queries), encoding="utf-8")
    yield f"a new process with {workload}"
    warm, others = yield from run_isolated(load_and_match, file, bench.dataset.messages(message_count))
    bench.figure("resident memory, warm", workload, warm, "MB", at_most(400), **others)


def load_and_match(file: Path, messages: list[bytes]) -> Iterator[str | tuple[float, dict[str, float]]]:
    """Load the queries of a file, match the messages three times, and measure megabytes."""
    before = resident_megabytes()
    matcher = Matcher()
    with file.open(encoding="utf-8") as lines:  # read line by line: only the matcher holds the queries
        matcher.add_many((number, line.rstrip("\n")) for number, line in enumerate(lines))
    for _ in range(_PASSES):
        for message in messages:
            len(matcher.match(message))
    yield resident_megabytes(), {"before_loading": before, "peak": peak_megabytes()}
