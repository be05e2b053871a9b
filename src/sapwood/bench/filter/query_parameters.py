"""Cost of a message against a parameter of the queries: experiments 3, 4, 7 and 8 of the YFilter thesis.

Messages and queries are generated from the DTD of the dataset, with the parameters of the thesis. Ranges,
which the thesis does not have, are on one value that differs in every message: caching of values does not
help.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

from sapwood import Tuning
from sapwood.bench.filter.matching_contenders import (
    COST,
    PRECISION,
    add_baseline_point,
    add_matcher_points,
    load_matcher,
)
from sapwood.bench.harness import Bench, Role, experiment, scale
from sapwood.bench.harness.datasets import generate_messages, generate_queries
from sapwood.bench.harness.timer import Timing, match_pass, time_once, time_rounds

INDEXED = Tuning(kernel=False)
TESTED = Tuning(kernel=False, index_values=False)
"""The predicate index and its null twin; both in Python, since the kernel cannot do without the index."""


def _sweep(
    labels: tuple[str, str, str],
    parameter: str,
    bench: Bench,
    values: tuple[float, ...],
    query_count: int,
    message_count: int = scale(200, 50, 3),
    unindexed: tuple[float, ...] = (),
    **fixed: Any,
) -> Iterator[str]:
    """Add a point to each curve for each value of an option of `generate_queries`; `fixed` are the others.

    The values `unindexed` are measured in Python as well, with and without the predicate index.
    """
    dtd = bench.dataset.dtd
    note = f"up to {query_count:,} distinct queries, DTD {dtd.name}"
    chart = bench.chart(*labels, COST, note=note)
    for value in values:
        yield f"{chart.x_label}: {value:g}"
        options = fixed | {parameter: value}
        messages = generate_messages(dtd, message_count, int(options.get("depth", 6)))
        queries = generate_queries(dtd, query_count, **options)
        add_matcher_points(bench, chart, value, load_matcher(queries)[0], messages)
        add_baseline_point(bench, chart, value, queries, messages)
        if value in unindexed:
            yield f"{chart.x_label}: {value:g}, with and without the predicate index"
            for label, role, tuning in (
                ("first sight, in Python", Role.OTHER, INDEXED),
                ("first sight, in Python, each predicate tested by itself", Role.TWIN, TESTED),
            ):
                matcher, _ = load_matcher(queries, tuning)
                first = time_once(partial(match_pass, matcher, messages), messages)
                chart.curve(label, role).add(value, first.multiple, **first.details())


DEPTH = experiment("growth-depth", "cost against depth (experiment 3)")(
    partial(
        _sweep,
        ("depth", "Depth of messages and queries", "levels"),
        "depth",
        values=scale((6, 7, 8, 9, 10), (6, 8, 10), (6, 7)),
        query_count=scale(50_000, 20_000, 5_000, 30),
    )
)
WILDCARDS = experiment("growth-wildcards", "cost against P(*) (experiment 4)")(
    partial(
        _sweep,
        ("wildcards", "Probability of a wildcard, 10 levels", "P(*) of a step"),
        "wildcard",
        values=scale((0.0, 0.2, 0.4, 0.6, 0.8), (0.0, 0.4, 0.8), (0.0, 0.5)),
        query_count=scale(50_000, 20_000, 5_000, 30),
        depth=10,
        descendant=0.0,
    )
)
DESCENDANTS = experiment("growth-descendants", "cost against P(//) (experiment 4)")(
    partial(
        _sweep,
        ("descendants", "Probability of a descendant step, 10 levels", "P(//) of a step"),
        "descendant",
        values=scale((0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.0, 0.5, 1.0), (0.0, 1.0)),
        query_count=scale(10_000, 2_000, 20),
        depth=10,
        wildcard=0.0,
    )
)
NESTING = experiment("growth-nesting", "cost against nested paths in a query (experiment 8)")(
    partial(
        _sweep,
        ("nesting", "Nested paths", "nested paths in each query"),
        "nested",
        values=scale((0, 1, 2, 3), (0, 1, 2, 3), (0, 1)),
        query_count=scale(20_000, 10_000, 1_500, 15),
    )
)
PREDICATES = experiment("growth-predicates", "cost against predicates in a query (experiment 7)")(
    partial(
        _sweep,
        ("predicates", "Value predicates, 20 values", "attribute predicates in each query"),
        "predicates",
        values=scale((0, 1, 2, 5, 10, 20), (0, 1, 5, 20), (0, 2)),
        query_count=scale(20_000, 10_000, 1_500, 15),
        unindexed=scale((1, 5, 10), (1, 5), (2,)),
    )
)


@experiment("growth-ranges", "cost against ranges on one value")
def measure_ranges(
    bench: Bench,
    message_count: int = scale(200, 50, 3),
    ranges: tuple[int, ...] = scale((10, 100, 1_000, 10_000, 100_000), (10, 100, 1_000, 10_000), (10, 20)),
    unindexed: int = scale(10_000, 1_000, 10),
) -> Iterator[str]:
    """Measure the cost against the number of ranges; up to `unindexed` with and without the index, too."""
    note = "distinct k; every message has a new price, half of the queries match on average"
    x_label = "queries /quote[price > k]"
    chart = bench.chart("ranges", "Ranges on one value", x_label, COST, log_x=True, note=note)
    for size in ranges:
        queries = [f"/quote[price > {k}.5]" for k in range(size)]
        yield f"{size:,} ranges"
        own = _time_new_prices(bench, message_count, Tuning(), queries)
        chart.curve("Sapwood", Role.SAPWOOD).add(size, own.multiple, **own.details())
        if size <= unindexed:
            yield f"{size:,} ranges, with and without the predicate index"
            for label, role, tuning in (
                ("Sapwood in Python", Role.OTHER, INDEXED),
                ("Sapwood in Python, each range tested by itself", Role.TWIN, TESTED),
            ):
                timing = _time_new_prices(bench, message_count, tuning, queries)
                chart.curve(label, role).add(size, timing.multiple, **timing.details())
        add_baseline_point(bench, chart, size, queries, _generate_quotes(Random(2), size, message_count))


def _time_new_prices(bench: Bench, message_count: int, tuning: Tuning, queries: list[str]) -> Timing:
    precision = bench.select(PRECISION)
    matcher, _ = load_matcher(queries, tuning)
    random = Random(1)

    def one_pass() -> float:
        return match_pass(matcher, _generate_quotes(random, len(queries), message_count))

    sample = _generate_quotes(random, len(queries), message_count)
    return time_rounds(one_pass, sample, least=precision.rounds, seconds=precision.seconds, warm_up=1)


def _generate_quotes(random: Random, highest: int, count: int) -> list[bytes]:
    return [
        f"<quote><symbol>SAP</symbol><price>{random.random() * highest:.6f}</price></quote>".encode()
        for _ in range(count)
    ]
