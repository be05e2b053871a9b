"""Recursion: `//a//a//a//a//b` on deeply nested `a`.

There are about n⁴/24 embeddings of such a query into n nested elements, 65 million at 200, so an engine that
enumerates them fails. The time of one message is measured against n, and the degree of its growth reported.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import log
from random import Random

from sapwood.bench.filter.matching_contenders import load_matcher
from sapwood.bench.harness import Bench, ChartAxis, Role, at_most, experiment, scale
from sapwood.bench.harness.timer import Timing, join_timings, match_pass, time_once

PLAIN = "//a//a//a//a//b"
_MAX_DEGREE = 3.0
"""the highest degree that counts as polynomial here: enumerating all embeddings would show 4"""
_TIME_LIMIT = 20.0
"""seconds of one message, above which deeper messages are not tried"""

Pick = Callable[[str], str]


def nested_message(levels: int) -> bytes:
    """Return nested `a`, each with a `c` and a `k` that counts modulo ten, and a `b` at the bottom."""
    opening = "".join(f'<a k="{level % 10}"><c/>' for level in range(levels))
    return f'{opening}<b k="0"/>{"</a>" * levels}'.encode()


def plain_queries(count: int) -> list[str]:
    """Return `PLAIN` and distinct variations of it: some steps `/`, some `*`."""
    return _generate_distinct(count, lambda pick: pick("// // /") + pick("a a *"), lambda _: "//b", PLAIN)


def predicate_queries(count: int) -> list[str]:
    """Return queries with a value predicate at every step; the last one holds in half of them."""
    digits = " ".join("0123456789")
    return _generate_distinct(
        count, lambda pick: f"//a[@k={pick(digits)}]", lambda pick: f"//b[@k={pick('0 1')}]"
    )


def nested_queries(count: int) -> list[str]:
    """Return queries with a nested path at every `a`; one of the seven paths never holds."""
    paths = "c a .//b .//a//c a/a/c .//a[c]//b .//d"
    return _generate_distinct(count, lambda pick: f"//a[{pick(paths)}]", lambda _: "//b")


def _generate_distinct(
    count: int, step: Callable[[Pick], str], last: Callable[[Pick], str], *given: str
) -> list[str]:
    random = Random(1)

    def pick(options: str) -> str:
        return random.choice(options.split())

    found = dict.fromkeys(given)
    while len(found) < count:
        steps = range(random.randint(3, 6))
        found["".join(step(pick) for _ in steps) + last(pick)] = None
    return list(found)


_LEVELS = (25, 50, 100, 200)


@experiment("recursion", "//a//a//a//a//b on nested a: growth of the time")
def measure_recursion(
    bench: Bench,
    count: int = scale(500, 100, 6),
    nestings: tuple[int, ...] = scale(_LEVELS, _LEVELS, (5, 10)),
) -> Iterator[str]:
    """Measure time against nesting."""
    chart = bench.chart(
        "recursion",
        "Recursion: //a//a//a//a//b on nested a",
        "nested a elements",
        ChartAxis("first sight of a message (× raw parsing)", "×"),
        log_x=True,
        note="each message is matched by a matcher that has not matched any before",
    )
    for label, queries, role in (
        ("one query", [PLAIN], Role.SAPWOOD),
        (f"{count:,} such queries", plain_queries(count), Role.OTHER),
        (f"{count:,}, a predicate at every step", predicate_queries(count), Role.FIRST),
        (f"{count:,}, a nested path at every step", nested_queries(count), Role.TWIN),
    ):
        seconds: dict[int, float] = {}
        for levels in nestings:
            yield f"{label}, {levels} levels"
            first = _time_first_sight(queries, nested_message(levels))
            chart.curve(label, role).add(levels, first.multiple, **first.details())
            seconds[levels] = first.microseconds / 1e6
            if seconds[levels] > _TIME_LIMIT:
                break
        yield f"{label}: memory"
        deepest = max(seconds)
        workload = f"{label}, {deepest} deep"
        peak = _peak_megabytes(queries, nested_message(deepest))
        bench.figure("recursion, peak memory", workload, peak, "MB")
        if len(seconds) > 1:
            bench.figure("recursion, degree", workload, growth_degree(seconds), "", at_most(_MAX_DEGREE))


def growth_degree(seconds: dict[int, float]) -> float:
    """Return the exponent d of seconds ~ sizeᵈ between the two largest sizes."""
    (near, less), (far, more) = sorted(seconds.items())[-2:]
    return log(more / less) / log(far / near)


def _time_first_sight(queries: Sequence[str], message: bytes) -> Timing:
    """Time a message that is the first one of its matcher, up to three times."""
    firsts: list[Timing] = []
    while len(firsts) < 3 and all(first.own[0] <= _TIME_LIMIT / 10 for first in firsts):
        matcher = load_matcher(queries)[0]
        firsts.append(time_once(partial(match_pass, matcher, [message]), [message]))
    return join_timings(firsts)


def _peak_megabytes(queries: Sequence[str], message: bytes) -> float:
    """Return the megabytes that matching the message allocates on top of the loaded matcher."""
    matcher = load_matcher(queries)[0]
    tracemalloc.start()
    try:
        len(matcher.match(message))
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
