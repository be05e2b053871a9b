"""Messages a second of `match_many` with two threads against one, by wall time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from inspect import signature
from typing import Any

from sapwood import Matcher
from sapwood.bench.filter.matching_contenders import PRECISION, load_matcher
from sapwood.bench.harness import Bench, at_least, experiment, scale
from sapwood.bench.harness.datasets import Kind
from sapwood.bench.harness.engines import kernel_missing
from sapwood.bench.harness.timer import match_pass, time_interleaved, wall_seconds

_THREADS = 1, 2
_WORKLOADS: dict[Kind, str] = {"distinct": "distinct paths", "predicates": "with an attribute predicate"}


@experiment("threads", "match_many with two threads against one")
def measure_threads(
    bench: Bench,
    message_count: int = scale(500, 300, 100, 4),
    distinct: int = scale(153_928, 20_000, 10_000, 60),
    predicates: int = scale(100_000, 20_000, 4_000, 30),
) -> Iterator[str]:
    """Measure both numbers of threads in the same rounds; skipped where `match_many` takes no threads."""
    if "threads" not in signature(Matcher.match_many).parameters:
        bench.report.skipped.append("threads: this version's match_many has no parameter threads")
        return
    precision = bench.select(PRECISION)
    messages = bench.dataset.messages(message_count)
    for (kind, label), count in zip(_WORKLOADS.items(), (distinct, predicates), strict=True):
        queries = bench.dataset.queries(kind, count)
        yield f"loading {len(queries):,} {label}"
        matcher = load_matcher(queries)[0]
        match_pass(matcher, messages)
        yield f"{len(queries):,} {label} with threads"
        passes = [partial(wall_seconds, partial(count_matches, matcher, messages, n)) for n in _THREADS]
        one, two = time_interleaved(passes, messages, least=precision.rounds, seconds=precision.seconds)
        bench.ratio(
            "match_many with two threads, against one",
            f"{len(queries):,} {label}",
            at_least(1.7, promised=not kernel_missing()),
            one_microseconds=one.microseconds,
            two_microseconds=two.microseconds,
            rounds=len(one.own),
        )


def count_matches(matcher: Matcher, messages: Sequence[bytes], threads: int) -> int:
    """Return the number of matches of all messages."""
    match_many: Any = matcher.match_many  # the parameter is not there in every version
    return sum(map(len, match_many(messages, threads=threads)))
