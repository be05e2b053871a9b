"""Value predicates: how many in a query (experiment 7 of the YFilter thesis), and how many on one value.

Both also with the index of values switched off, which shows what it is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

from sapwood import Matcher, Tuning
from sapwood.bench import baseline, timing
from sapwood.bench.growth import COST, add_points
from sapwood.bench.report import Chart, Role
from sapwood.bench.setting import Experiment, Setting, details
from sapwood.bench.sources import messages, queries
from sapwood.bench.timing import Timing

_NO_INDEX = Tuning(index_values=False)


def by_predicates(setting: Setting) -> Iterator[str]:
    """Experiment 7: attribute predicates in each query, also with the index of values switched off."""
    dtd, scale = setting.source.dtd, setting.scale
    chart = setting.chart(
        Chart(
            "predicates",
            "Value predicates",
            "attribute predicates in each query",
            COST,
            note=f"{scale.growth_branching:,} distinct queries, 20 values, DTD {dtd.name}",
        )
    )
    sent = messages(dtd, scale.growth_messages)
    for number in scale.predicate_counts:
        yield f"{number} predicates"
        asked = queries(dtd, scale.growth_branching, predicates=number)
        add_points(setting, chart, number, asked, sent)
        if number in scale.twin_predicate_counts:
            yield f"{number} predicates, without the index of values"
            twin = Matcher(tuning=_NO_INDEX)
            twin.add_many(enumerate(asked))
            first = timing.once(partial(timing.match_pass, twin, sent), sent)
            chart.curve("first sight, each test tried by itself", Role.TWIN).add(
                number, first.multiple, **details(first)
            )


def by_ranges(setting: Setting) -> Iterator[str]:
    """Ranges on one value, which no message has had before: remembering values is of no help."""
    scale = setting.scale
    chart = setting.chart(
        Chart(
            "ranges",
            "Ranges on one value",
            "queries /quote[price > k]",
            COST,
            log_x=True,
            note="distinct k; every message has a new price, half of the queries match on average",
        )
    )
    for size in scale.ranges:
        asked = [f"/quote[price > {k}.5]" for k in range(size)]
        yield f"{size:,} ranges"
        indexed = _new_prices(setting, Matcher(), asked)
        chart.curve("Sapwood", Role.SAPWOOD).add(size, indexed.multiple, **details(indexed))
        if size <= scale.twin_ranges:
            yield f"{size:,} ranges, without the index of values"
            tried = _new_prices(setting, Matcher(tuning=_NO_INDEX), asked)
            chart.curve("Sapwood, each range tried by itself", Role.TWIN).add(
                size, tried.multiple, **details(tried)
            )
        cost = baseline.one_by_one(asked, _quotes(Random(2), size, scale.growth_messages), scale)
        chart.curve(baseline.LABEL, Role.BASELINE).add(size, cost)


def _new_prices(setting: Setting, matcher: Matcher, asked: list[str]) -> Timing:
    matcher.add_many(enumerate(asked))
    random, count = Random(1), setting.scale.growth_messages
    timing.match_pass(matcher, _quotes(random, len(asked), count))
    own: list[float] = []
    raw: list[float] = []
    while len(own) < setting.scale.rounds or sum(own) < setting.scale.seconds:
        sent = _quotes(random, len(asked), count)
        raw.append(timing.raw_pass(sent))
        own.append(timing.match_pass(matcher, sent))
    return Timing(tuple(own), tuple(raw), count)


def _quotes(random: Random, highest: int, count: int) -> list[bytes]:
    return [
        f"<quote><symbol>SAP</symbol><price>{random.random() * highest:.6f}</price></quote>".encode()
        for _ in range(count)
    ]


EXPERIMENTS = (
    Experiment("growth-predicates", "cost against predicates in a query (experiment 7)", by_predicates),
    Experiment("growth-ranges", "cost against ranges on one value", by_ranges),
)
