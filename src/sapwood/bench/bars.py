"""The bars: what a message may cost at most, and loading, changing and holding the queries.

A bar is a promise about the published workload at full scale; elsewhere it is shown for reference.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

from sapwood import Matcher
from sapwood.bench import memory as fresh_process
from sapwood.bench import timing
from sapwood.bench.baseline import compile_all
from sapwood.bench.report import RAW
from sapwood.bench.setting import Experiment, Setting, details
from sapwood.bench.timing import Timing, clock

LXML = "× lxml compiling"
WARM = "× warm cost"
_LIVES = 50
"""messages that a query stays which comes only to go again"""


def load(queries: Sequence[str]) -> tuple[Matcher, float]:
    """A matcher with all queries, and the seconds that loading took."""
    gc.collect()
    matcher = Matcher()
    start = clock()
    matcher.add_many(enumerate(queries))
    return matcher, clock() - start


def paths(setting: Setting) -> Iterator[str]:
    """Plain paths, few and many: loading, first pass, warm, churn."""
    scale = setting.scale
    messages = setting.source.messages(scale.messages)
    queries = setting.source.distinct(scale.distinct)
    few, many = queries[: scale.few], f"{len(queries):,} distinct paths"
    yield f"{len(few):,} paths"
    matcher = load(few)[0]
    _report_warm(setting, matcher, messages, f"{len(few):,} distinct paths", 5)

    firsts: list[Timing] = []
    ratios: list[float] = []
    for number in range(1, scale.loads + 1):
        yield f"loading {many}, {number} of {scale.loads}"
        del matcher  # its memory, and its weight on the garbage collector
        compiling = compile_all(queries)
        matcher, loading = load(queries)
        ratios.append(loading / compiling)
        yield f"first pass, {number} of {scale.loads}"
        firsts.append(timing.once(partial(timing.match_pass, matcher, messages), messages))
    yield many
    _report_warm(setting, matcher, messages, many, 6)
    first = Timing(tuple(t.own[0] for t in firsts), tuple(t.raw[0] for t in firsts), len(messages))
    setting.figure("first pass", many, first.multiple, RAW, 100, **details(first))
    _report_loading(setting, many, ratios, loading, compiling, 6)
    yield "queries that come and go"
    _churn(setting, matcher, messages, queries)
    yield "loading, garbage collector off"
    del matcher
    _report_loading_uncollected(setting, many, queries)


def _churn(setting: Setting, matcher: Matcher, messages: Sequence[bytes], queries: Sequence[str]) -> None:
    """One query added and one removed before every message.

    Every added query is new to the matcher. By turns, the one that goes is the oldest of those loaded or one
    that came not long ago.
    """
    kept = min(setting.scale.churned, len(queries) * 99 // 100)
    for number in range(kept, len(queries)):
        matcher.remove(number)
    arriving = iter(enumerate(queries[kept:], start=kept))
    leaving = iter(range(kept))
    recent: deque[int] = deque()
    messages = messages[: len(queries) - kept]
    warm = setting.warm(matcher, messages)

    def one_pass() -> float:
        start = clock()
        for place, message in enumerate(messages):
            number, query = next(arriving)
            matcher.add(number, query)
            recent.append(number)
            matcher.remove(recent.popleft() if place % 2 and len(recent) > _LIVES else next(leaving))
            len(matcher.match(message))
        return clock() - start

    # No more rounds than there are new queries for: one that comes back would find its way prepared.
    churned = timing.rounds(
        one_pass, messages, least=min(setting.scale.rounds, (len(queries) - kept) // len(messages))
    )
    setting.figure(
        "churn, an add and a remove per message",
        f"{kept:,} distinct paths",
        churned.multiple / warm.multiple,
        WARM,
        3,
        **details(churned, multiple=round(churned.multiple, 2), warm=round(warm.multiple, 2)),
    )


def repeated(setting: Setting) -> Iterator[str]:
    """Plain paths with many duplicates: warm."""
    queries = setting.source.repeated(setting.scale.repeated)
    yield from _warm_alone(setting, queries, f"{len(queries):,} paths with duplicates", 6)


def nested(setting: Setting) -> Iterator[str]:
    """Queries with a nested path: warm."""
    queries = setting.source.nested(setting.scale.nested)
    yield from _warm_alone(setting, queries, f"{len(queries):,} with a nested path", 30)


def _warm_alone(setting: Setting, queries: Sequence[str], workload: str, bar: float) -> Iterator[str]:
    messages = setting.source.messages(setting.scale.messages)
    yield f"loading {workload}"
    matcher = load(queries)[0]
    yield workload
    _report_warm(setting, matcher, messages, workload, bar)


def predicates(setting: Setting) -> Iterator[str]:
    """Queries with an attribute predicate: warm, loading."""
    messages = setting.source.messages(setting.scale.messages)
    queries = setting.source.predicates(setting.scale.predicates)
    workload = f"{len(queries):,} with an attribute predicate"
    ratios: list[float] = []
    matcher = Matcher()
    for number in range(1, setting.scale.loads + 1):
        yield f"loading {workload}, {number} of {setting.scale.loads}"
        del matcher
        compiling = compile_all(queries)
        matcher, loading = load(queries)
        ratios.append(loading / compiling)
    yield workload
    _report_warm(setting, matcher, messages, workload, 25)
    _report_loading(setting, workload, ratios, loading, compiling, 25)
    yield "loading, garbage collector off"
    del matcher
    _report_loading_uncollected(setting, workload, queries)


def memory(setting: Setting) -> Iterator[str]:
    """Resident memory with plain paths, warm."""
    queries = setting.source.distinct(setting.scale.distinct)
    workload = f"{len(queries):,} distinct paths"
    yield f"a fresh process with {workload}"
    used = fresh_process.measure(queries, setting.source.messages(setting.scale.messages))
    setting.figure(
        "resident memory, warm",
        workload,
        used.resident,
        "MB",
        400,
        before_loading=round(used.empty, 1),
        peak=round(used.peak, 1),
    )


def _report_warm(
    setting: Setting, matcher: Matcher, messages: Sequence[bytes], workload: str, bar: float
) -> None:
    warm = setting.warm(matcher, messages)
    matched = round(timing.count(matcher, messages), 1)
    setting.figure("warm", workload, warm.multiple, RAW, bar, **details(warm, matched=matched))


def _report_loading_uncollected(setting: Setting, workload: str, queries: Sequence[str]) -> None:
    """Loading with Python's garbage collector off, on both sides.

    The collector looks through all that is kept again and again, and lxml's objects, made in no time, suffer
    from that more than ours: most of what lxml needs for very many queries is that.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        compiling = compile_all(queries)
        loading = load(queries)[1]
    finally:
        if collecting:
            gc.enable()
    setting.figure(
        "loading, garbage collector off",
        workload,
        loading / compiling,
        LXML,
        seconds=round(loading, 2),
        lxml_seconds=round(compiling, 2),
    )


def _report_loading(
    setting: Setting, workload: str, ratios: Sequence[float], own: float, lxml: float, bar: float
) -> None:
    setting.figure(
        "loading",
        workload,
        median(ratios),
        LXML,
        bar,
        seconds=round(own, 2),
        lxml_seconds=round(lxml, 2),
        ratios=[round(ratio, 2) for ratio in ratios],
    )


EXPERIMENTS = (
    Experiment("paths", "plain paths: warm, first pass, loading, churn", paths),
    Experiment("duplicates", "plain paths with many duplicates: warm", repeated),
    Experiment("predicates", "an attribute predicate in each query: warm, loading", predicates),
    Experiment("nested", "a nested path in each query: warm", nested),
    Experiment("memory", "resident memory with plain paths, in a process of its own", memory),
)
