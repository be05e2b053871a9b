"""The cost of messages between which queries are added and removed, against the warm cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

from sapwood import Matcher
from sapwood.bench.filter.matching_contenders import PRECISION
from sapwood.bench.harness import Bench
from sapwood.bench.harness.engines import (
    KERNEL,
    KERNEL_EXPAT,
    PYTHON,
    UNCLASSED,
    Engine,
    limit_of,
    report_classes,
)
from sapwood.bench.harness.timer import Pass, clock, match_pass, time_interleaved

WARM = "× warm cost"
_LIFETIME = 50
"""messages that a query stays which is added only to be removed again"""
_BARS = {UNCLASSED: 3.0, PYTHON: 3.0, KERNEL_EXPAT: 2.0, KERNEL: 2.0}


def report_churn(
    bench: Bench,
    kept: int,
    matchers: Mapping[Engine, Matcher],
    messages: Sequence[bytes],
    queries: Sequence[str],
) -> None:
    """Measure one query added and one removed before every message, beside the same messages without that.

    Matchers are given with all queries, of which only the first `kept` stay before the measurement.
    """
    kept = min(kept, len(queries) * 99 // 100)
    messages = messages[: len(queries) - kept]
    passes: list[Pass] = []
    for matcher in matchers.values():
        for number in range(kept, len(queries)):
            matcher.remove(number)
        match_pass(matcher, messages)
        passes.append(partial(match_pass, matcher, messages))
        passes.append(_churn_pass(matcher, kept, messages, queries))
    # Not more rounds than there are new queries for: a query that returns would find its states prepared.
    rounds = min(bench.select(PRECISION).rounds, (len(queries) - kept) // len(messages))
    timings = time_interleaved(passes, messages, least=rounds)
    measure, workload = "churn, an add and a remove per message", f"{kept:,} distinct paths"
    costs = {}
    for engine, warm, churned in zip(matchers, timings[::2], timings[1::2], strict=True):
        details = churned.details(multiple=churned.multiple, warm=warm.multiple)
        ratio, bar = churned.ratio_to(warm), limit_of(engine, _BARS)
        bench.figure(measure, f"{workload}, {engine.label}", ratio, WARM, bar, **details)
        costs[engine] = churned.multiple
    report_classes(bench, "churn", workload, costs)


def _churn_pass(matcher: Matcher, kept: int, messages: Sequence[bytes], queries: Sequence[str]) -> Pass:
    """Return a pass in which every added query is new to the matcher.

    In alternation, the removed one is the oldest of those loaded at first, or one added a short time ago.
    """
    additions = iter(enumerate(queries[kept:], start=kept))
    removals = iter(range(kept))
    recent: deque[int] = deque()

    def one_pass() -> float:
        start = clock()
        for position, message in enumerate(messages):
            number, query = next(additions)
            matcher.add(number, query)
            recent.append(number)
            matcher.remove(recent.popleft() if position % 2 and len(recent) > _LIFETIME else next(removals))
            len(matcher.match(message))
        return clock() - start

    return one_pass
