"""Recursion: `//a//a//a//a//b` on deeply nested `a`.

The ways to match such a query number about n⁴/24 on n nested elements, 65 million at 200: whoever lists them
is lost. The time of one message is measured against n, and the degree of its growth reported.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import log
from random import Random

from sapwood.bench import timing
from sapwood.bench.bars import load
from sapwood.bench.report import RAW, Chart, Role
from sapwood.bench.setting import Experiment, Setting, details

PLAIN = "//a//a//a//a//b"
_DEGREE = 3.0
"""the highest degree that passes as polynomial here: listing all ways to match would show 4"""
_PATIENCE = 20.0
"""seconds: where one message takes more, deeper ones are not tried"""

Pick = Callable[[str], str]


def nested_message(levels: int) -> bytes:
    """So many nested `a`, each with a `c` and with k counting modulo ten, and a `b` at the bottom."""
    opening = "".join(f'<a k="{level % 10}"><c/>' for level in range(levels))
    return f'{opening}<b k="0"/>{"</a>" * levels}'.encode()


def plain_queries(count: int) -> list[str]:
    """`PLAIN` and distinct variations of it: some steps `/`, some `*`."""
    return _distinct(count, lambda pick: pick("// // /") + pick("a a *"), lambda pick: "//b", PLAIN)


def predicate_queries(count: int) -> list[str]:
    """A value predicate at every step; the last one holds in half of the queries."""
    return _distinct(
        count,
        lambda pick: f"//a[@k={pick('0 1 2 3 4 5 6 7 8 9')}]",
        lambda pick: f"//b[@k={pick('0 1')}]",
    )


def nested_queries(count: int) -> list[str]:
    """A nested path at every `a`; one of the seven holds nowhere."""
    return _distinct(
        count, lambda pick: f"//a[{pick('c a .//b .//a//c a/a/c .//a[c]//b .//d')}]", lambda pick: "//b"
    )


def _distinct(count: int, step: Callable[[Pick], str], last: Callable[[Pick], str], *given: str) -> list[str]:
    random = Random(1)

    def pick(options: str) -> str:
        return random.choice(options.split())

    found = dict.fromkeys(given)
    while len(found) < count:
        steps = range(random.randint(3, 6))
        found["".join(step(pick) for _ in steps) + last(pick)] = None
    return list(found)


def recursion(setting: Setting) -> Iterator[str]:
    """Time against nesting, and the memory that the deepest message takes."""
    count = setting.scale.recursive_queries
    chart = setting.chart(
        Chart(
            "recursion",
            "Recursion: //a//a//a//a//b on nested a",
            "nested a elements",
            "first sight of a message (× raw parsing)",
            log_x=True,
            note="each message is matched by a matcher that has seen none before",
        )
    )
    for label, queries, role in (
        ("one query", [PLAIN], Role.SAPWOOD),
        (f"{count:,} such queries", plain_queries(count), Role.OTHER),
        (f"{count:,}, a predicate at every step", predicate_queries(count), Role.FIRST),
        (f"{count:,}, a nested path at every step", nested_queries(count), Role.TWIN),
    ):
        curve = chart.curve(label, role)
        seconds: dict[int, float] = {}
        for levels in setting.scale.nestings:
            yield f"{label}, {levels} levels"
            first = _first_sight(queries, nested_message(levels))
            curve.add(levels, first.multiple, **details(first))
            seconds[levels] = first.microseconds / 1e6
            if seconds[levels] > _PATIENCE:
                break
        yield f"{label}: memory"
        deepest = max(seconds)
        workload = f"{label}, {deepest} deep"
        if len(seconds) > 1:
            setting.figure("recursion, degree", workload, degree(seconds), "", _DEGREE)
        setting.figure("recursion, first sight", workload, curve.points[-1].y, RAW)
        setting.figure("recursion, peak memory", workload, _peak(queries, nested_message(deepest)), "MB")


def degree(seconds: dict[int, float]) -> float:
    """The exponent d of seconds ~ levelsᵈ between the two deepest messages."""
    (near, less), (deep, more) = sorted(seconds.items())[-2:]
    return log(more / less) / log(deep / near)


def _first_sight(queries: Sequence[str], message: bytes) -> timing.Timing:
    """The time of a message that is the first one, three times over."""
    firsts = []
    for _ in range(3):
        matcher = load(queries)[0]
        firsts.append(timing.once(partial(timing.match_pass, matcher, [message]), [message]))
        if firsts[-1].own[0] > _PATIENCE / 10:
            break
    return timing.Timing(tuple(t.own[0] for t in firsts), tuple(t.raw[0] for t in firsts), 1)


def _peak(queries: Sequence[str], message: bytes) -> float:
    """The megabytes that matching the message allocates at most, on top of the loaded matcher."""
    matcher = load(queries)[0]
    tracemalloc.start()
    try:
        len(matcher.match(message))
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


EXPERIMENTS = (Experiment("recursion", "//a//a//a//a//b on nested a: time and memory", recursion),)
