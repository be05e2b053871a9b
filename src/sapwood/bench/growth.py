"""How the cost of a message grows: experiments 1, 3, 4, 5 and 8 of the YFilter thesis (7 is in `values`).

Experiment 1 uses the source's own queries; the others generate messages and queries from its DTD, with the
parameters of the thesis. Beside Sapwood stands lxml, one query at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from sapwood import Matcher
from sapwood.bench import baseline, timing
from sapwood.bench.report import Chart, Role
from sapwood.bench.setting import Experiment, Setting, details
from sapwood.bench.sources import messages, queries
from sapwood.bench.timing import clock

COST = "cost of a message (× raw parsing)"
WARM = "Sapwood"
FIRST = "Sapwood, first sight of the messages"


def add_points(setting: Setting, chart: Chart, x: float, asked: Sequence[str], sent: Sequence[bytes]) -> None:
    """Measures one population of queries and adds a point to each of the chart's curves."""
    matcher = Matcher()
    matcher.add_many(enumerate(asked))
    _add_loaded(setting, chart, x, matcher, sent)
    chart.curve(baseline.LABEL, Role.BASELINE).add(x, baseline.one_by_one(asked, sent, setting.scale))


def _add_loaded(
    setting: Setting, chart: Chart, x: float, matcher: Matcher, sent: Sequence[bytes], name: str = ""
) -> None:
    first = timing.once(partial(timing.match_pass, matcher, sent), sent)
    warm = setting.warm(matcher, sent)
    matched = round(timing.count(matcher, sent), 1)
    role = Role.OTHER if name else Role.SAPWOOD
    chart.curve(name or WARM, role).add(
        x, warm.multiple, **details(warm, queries=len(matcher), matched=matched)
    )
    if not name:
        chart.curve(FIRST, Role.FIRST).add(x, first.multiple, **details(first))


def by_queries(setting: Setting) -> Iterator[str]:
    """Experiment 1: the number of queries, distinct and with duplicates."""
    chart = setting.chart(
        Chart("queries", "Number of queries", "queries", COST, log_x=True, note=setting.source.label)
    )
    sent = setting.source.messages(setting.scale.messages)
    for sizes, asked, name in (
        (setting.scale.growth_distinct, setting.source.distinct, ""),
        (setting.scale.growth_repeated, setting.source.repeated, "Sapwood, queries with duplicates"),
    ):
        population = asked(max(sizes))
        matcher = Matcher()
        for size in sizes:
            if size > len(population):
                break
            yield f"{size:,} queries" + (" with duplicates" if name else "")
            matcher.add_many((n, population[n]) for n in range(len(matcher), size))
            _add_loaded(setting, chart, size, matcher, sent, name)
            if not name:
                cost = baseline.one_by_one(population[:size], sent, setting.scale)
                chart.curve(baseline.LABEL, Role.BASELINE).add(size, cost)


def by_depth(setting: Setting) -> Iterator[str]:
    """Experiment 3: deeper messages, and queries as deep."""
    dtd, scale = setting.source.dtd, setting.scale
    chart = setting.chart(
        Chart(
            "depth",
            "Depth of messages and queries",
            "levels",
            COST,
            note=f"{scale.growth_queries:,} distinct queries, DTD {dtd.name}",
        )
    )
    for depth in scale.depths:
        yield f"{depth} levels"
        sent = messages(dtd, scale.growth_messages, depth)
        add_points(setting, chart, depth, queries(dtd, scale.growth_queries, depth=depth), sent)


def by_wildcards(setting: Setting) -> Iterator[str]:
    """Experiment 4: the probability of `*`."""
    scale = setting.scale
    make = partial(queries, setting.source.dtd, scale.growth_queries, depth=10, descendant=0.0)
    yield from _by_probability(
        setting, "wildcards", "P(*)", scale.growth_queries, scale.wildcards, lambda p: make(wildcard=p)
    )


def by_descendants(setting: Setting) -> Iterator[str]:
    """Experiment 4: the probability of `//`."""
    scale = setting.scale
    make = partial(queries, setting.source.dtd, scale.growth_deep_queries, depth=10, wildcard=0.0)
    yield from _by_probability(
        setting,
        "descendants",
        "P(//)",
        scale.growth_deep_queries,
        scale.descendants,
        lambda p: make(descendant=p),
    )


def _by_probability(
    setting: Setting,
    name: str,
    what: str,
    count: int,
    probabilities: Sequence[float],
    make: Callable[[float], list[str]],
) -> Iterator[str]:
    dtd = setting.source.dtd
    chart = setting.chart(
        Chart(
            name,
            f"Probability of {'a wildcard' if name == 'wildcards' else 'a descendant step'}",
            f"{what} of a step",
            COST,
            note=f"up to {count:,} distinct queries, 10 levels, DTD {dtd.name}",
        )
    )
    sent = messages(dtd, setting.scale.growth_messages, depth=10)
    for probability in probabilities:
        yield f"{what} = {probability:g}"
        add_points(setting, chart, probability, make(probability), sent)


def by_nested(setting: Setting) -> Iterator[str]:
    """Experiment 8: nested paths in each query."""
    dtd, scale = setting.source.dtd, setting.scale
    chart = setting.chart(
        Chart(
            "nesting",
            "Nested paths",
            "nested paths in each query",
            COST,
            note=f"{scale.growth_branching:,} distinct queries, DTD {dtd.name}",
        )
    )
    sent = messages(dtd, scale.growth_messages)
    for number in scale.nested_counts:
        yield f"{number} nested paths"
        add_points(setting, chart, number, queries(dtd, scale.growth_branching, nested=number), sent)


def by_inserts(setting: Setting) -> Iterator[str]:
    """Experiment 5: what one more query costs, as the population grows."""
    scale = setting.scale
    chart = setting.chart(
        Chart(
            "inserts",
            "Adding queries",
            "queries already there",
            "cost of a query (× raw parsing a message)",
            log_x=True,
            note=f"{scale.inserted:,} added at each point; {setting.source.label}",
        )
    )
    sent = setting.source.messages(scale.growth_messages)
    population = setting.source.distinct(max(scale.insert_populations) + scale.inserted)
    matcher = Matcher()
    for size in scale.insert_populations:
        if size + scale.inserted > len(population):
            break
        yield f"into {size:,} queries"
        raw = median(timing.raw_pass(sent) for _ in range(5)) / len(sent)
        start, before = clock(), len(matcher)
        matcher.add_many((n, population[n]) for n in range(before, size))
        bulk = (clock() - start) / (size - before)
        timing.match_pass(matcher, sent)
        arriving = population[size : size + scale.inserted]
        cost = timing.once(partial(_add_one_by_one, matcher, size, arriving), sent)
        compiling = baseline.compile_all(arriving)
        per_query = len(sent) / len(arriving)
        chart.curve("one at a time, into a warm matcher", Role.SAPWOOD).add(size, cost.multiple * per_query)
        chart.curve("many at once, before messages come", Role.FIRST).add(size, bulk / raw)
        chart.curve("lxml, compiling the query", Role.BASELINE).add(size, compiling / cost.raw[0] * per_query)


def _add_one_by_one(matcher: Matcher, first: int, arriving: Sequence[str]) -> float:
    start = clock()
    for number, query in enumerate(arriving, start=first):
        matcher.add(number, query)
    return clock() - start


EXPERIMENTS = (
    Experiment("growth-queries", "cost against number of queries (experiment 1)", by_queries),
    Experiment("growth-depth", "cost against depth (experiment 3)", by_depth),
    Experiment("growth-wildcards", "cost against P(*) (experiment 4)", by_wildcards),
    Experiment("growth-descendants", "cost against P(//) (experiment 4)", by_descendants),
    Experiment("growth-nesting", "cost against nested paths in a query (experiment 8)", by_nested),
    Experiment("growth-inserts", "cost of adding queries (experiment 5)", by_inserts),
)
