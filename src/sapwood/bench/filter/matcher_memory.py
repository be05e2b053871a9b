"""Resident memory of a matcher with plain paths, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sapwood import Matcher
from sapwood.bench.harness.experiment import Bench, at_most, experiment
from sapwood.bench.harness.isolation import run_isolated
from sapwood.bench.harness.memory_usage import peak_megabytes, resident_megabytes

_PASSES = 3


@dataclass(frozen=True, slots=True)
class MatcherMemory:
    """Megabytes of a process before loading, with warm caches, and at its peak."""

    before: float
    warm: float
    peak: float


@experiment(
    "memory",
    "resident memory with plain paths, in a process of its own",
    message_count=(500, 300, 100, 4),
    query_count=(153_928, 20_000, 10_000, 60),
)
def measure_memory(bench: Bench, message_count: int, query_count: int) -> Iterator[str]:
    queries = bench.dataset.distinct(query_count)
    workload = f"{len(queries):,} distinct paths"
    file = bench.folder / "paths.txt"
    file.write_text("\n".join(queries), encoding="utf-8")
    yield f"a new process with {workload}"
    used = yield from run_isolated(load_and_match, file, bench.dataset.messages(message_count))
    details = {"before_loading": used.before, "peak": used.peak}
    bench.figure("resident memory, warm", workload, used.warm, "MB", at_most(400), **details)


def load_and_match(file: Path, messages: list[bytes]) -> Iterator[str | MatcherMemory]:
    """Load the queries of a file and match the messages three times."""
    before = resident_megabytes()
    matcher = Matcher()
    with file.open(encoding="utf-8") as lines:  # read line by line: only the matcher holds the queries
        matcher.add_many((number, line.rstrip("\n")) for number, line in enumerate(lines))
    for _ in range(_PASSES):
        for message in messages:
            len(matcher.match(message))
    yield MatcherMemory(before, resident_megabytes(), peak_megabytes())
