"""Cost of a message against the share of queries that lxml evaluates on the candidates of the index.

A predicate that always holds, and that Sapwood does not evaluate natively, is added to some of the queries:
the matches stay the same. lxml runs in a process of its own, so this experiment uses wall time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sapwood.bench.filter.matching_contenders import COST, load_matcher
from sapwood.bench.harness import Bench, BenchError, Role, experiment, scale, timer

_ALWAYS_TRUE = "[count(*) >= 0]"
_PERCENTAGES = (0, 1, 5, 20, 100)


@experiment("fallback", "cost against the share of queries that lxml evaluates")
def measure_fallback(
    bench: Bench,
    message_count: int = scale(100, 20, 3),
    query_count: int = scale(10_000, 1_000, 100),
    rounds: int = scale(5, 3, 1),
    percentages: tuple[int, ...] = scale(_PERCENTAGES, _PERCENTAGES, (0, 20, 100)),
) -> Iterator[str]:
    """Measure the cost with a growing share of queries that need lxml."""
    messages = bench.dataset.messages(message_count)
    plain = bench.dataset.queries("distinct", query_count)
    workload = f"{len(plain):,} distinct paths"
    note = f"{workload}; wall time"
    chart = bench.chart("fallback", "Queries evaluated by lxml", "% of the queries", COST, note=note)
    matches: set[float] = set()
    for percentage in percentages:
        yield f"{percentage} % of {workload}"
        queries = [q + _ALWAYS_TRUE if n % 100 < percentage else q for n, q in enumerate(plain)]
        with load_matcher(queries)[0] as matcher:
            matched = timer.mean_matches(matcher, messages)
            passes = partial(timer.match_pass, matcher, messages), partial(timer.raw_pass, messages)
            walls = [partial(timer.wall_seconds, each) for each in passes]
            own, raw = timer.time_interleaved(walls, messages, least=rounds)
        wall = timer.Timing(own.own, raw.own, len(messages))
        matches.add(matched)
        details = wall.details(matched=matched)
        chart.curve("Sapwood", Role.SAPWOOD).add(percentage, wall.multiple, **details)
    if len(matches) > 1:
        raise BenchError("queries evaluated natively and by lxml do not agree on their matches")
