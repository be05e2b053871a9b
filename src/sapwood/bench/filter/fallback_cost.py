"""Cost of a message against the share of queries that lxml evaluates on the candidates of the index.

A predicate that always holds, and that Sapwood does not evaluate natively, is added to some of the queries:
the matches stay the same. lxml runs in a process of its own, so this experiment uses wall time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial

from sapwood.bench.filter.warm_match_cost import COST, load_matcher
from sapwood.bench.harness.benchmark_report import RAW, Role
from sapwood.bench.harness.experiment import Bench, BenchError, experiment
from sapwood.bench.harness.timing import Timing, match_pass, mean_matches, raw_pass, wall_seconds

_ALWAYS_TRUE = "[count(*) >= 0]"


_PERCENTAGES = (0, 1, 5, 20, 100)


@experiment(
    "fallback",
    "cost against the share of queries that lxml evaluates",
    message_count=(100, 20, 3),
    query_count=(10_000, 1_000, 100),
    rounds=(5, 3, 1),
    percentages=(_PERCENTAGES, _PERCENTAGES, (0, 20, 100)),
)
def measure_fallback(
    bench: Bench, message_count: int, query_count: int, rounds: int, percentages: tuple[int, ...]
) -> Iterator[str]:
    """Measure the cost with a growing share of queries that need lxml."""
    messages = bench.dataset.messages(message_count)
    plain = bench.dataset.distinct(query_count)
    workload = f"{len(plain):,} distinct paths"
    chart = bench.chart(
        "fallback", "Queries evaluated by lxml", "% of the queries", COST, note=f"{workload}; wall time"
    )
    costs: dict[int, float] = {}
    matches: set[float] = set()
    for percentage in percentages:
        yield f"{percentage} % of {workload}"
        queries = [q + _ALWAYS_TRUE if n % 100 < percentage else q for n, q in enumerate(plain)]
        with load_matcher(queries)[0] as matcher:
            matched = mean_matches(matcher, messages)
            gc.collect()
            own, raw = [], []
            for _ in range(rounds):
                raw.append(wall_seconds(partial(raw_pass, messages)))
                own.append(wall_seconds(partial(match_pass, matcher, messages)))
        timing = Timing(tuple(own), tuple(raw), len(messages))
        matches.add(matched)
        costs[percentage] = timing.multiple
        curve = chart.curve("Sapwood", Role.SAPWOOD)
        curve.add(percentage, timing.multiple, **timing.details(matched=matched))
    if len(matches) > 1:
        raise BenchError("queries evaluated natively and by lxml do not agree on their matches")
    few, many = percentages[1], percentages[-1]
    for percentage in (few, many):
        measure = f"warm, {percentage} % of the queries evaluated by lxml"
        bench.figure(measure, workload, costs[percentage], RAW, native=costs[percentages[0]])
