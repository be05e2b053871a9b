"""How plans are made, and what that is worth: experiments 10 to 16 of the YFilter thesis.

    F, FW, FWR      the paths that are matched for all queries at once: for, where, return
    not optimised, by the query, by query and DTD      what may show that an operator is not needed

The figures of the thesis are lost, save for its tables and what its text says of them.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from sapwood.bench.contenders import OPTIMISED, SHARINGS, Contender, plan_each, shared
from sapwood.bench.report import Chart, Listing, Role
from sapwood.bench.setting import Experiment, details
from sapwood.bench.timing import side_by_side
from sapwood.bench.transform_bars import MILLISECONDS
from sapwood.bench.transform_setting import (
    MANY_VALUES,
    Kind,
    TransformSetting,
    bibliography,
    book,
    compiled,
)
from sapwood.engine.index import Index
from sapwood.engine.message.message_reader import Message
from sapwood.lang.fwr.model import Transformation
from sapwood.transform.per_query.operator_plan import OperatorPlan, Optimise
from sapwood.transform.per_query.plan_per_query import PlanPerQuery

_KINDS = {
    "Matching": "matching",
    "Selection": "selection",
    "DupElim": "DupElim",
    "SemiJoin": "semijoin",
    "OuterJoinSelect": "outer join",
}
Counts = tuple[int, int, int, int, int]
_COUNTS = ("semijoin, hash", "merge", "outer join, hash", "merge", "DupElim")


@dataclass(frozen=True, slots=True)
class Published:
    """What the thesis says of PathSharing-FWR: milliseconds by operator, and how many operators there are."""

    queries: int
    costs: Mapping[Optimise, tuple[int, ...]]
    counts: Mapping[Optimise, tuple[int, ...]]


_BIB = Published(  # tables 8 and 9
    5_000,
    {"none": (28, 61, 451, 140, 235), "query": (27, 51, 15, 67, 112), "dtd": (9, 42, 0, 18, 22)},
    {
        "none": (5000, 0, 5000, 0, 15000),
        "query": (1966, 3034, 1966, 3034, 429),
        "dtd": (0, 5000, 0, 5000, 0),
    },
)
_BOOK = Published(  # tables 10 and 11
    10_000,
    {"none": (36, 101, 560, 225, 287), "query": (31, 101, 82, 184, 252), "dtd": (21, 93, 30, 137, 163)},
    {
        "none": (10000, 0, 10000, 0, 30000),
        "query": (5963, 4037, 5963, 4037, 2833),
        "dtd": (3968, 6032, 3968, 6032, 1500),
    },
)


# -- approaches and operators --------------------------------------------------------------------------


def approaches(setting: TransformSetting) -> Iterator[str]:
    """Experiment 10."""
    said = "thesis: not optimised, FW is fastest and FWR slowest; by query or DTD, FWR leads"
    yield from _approaches(setting, bibliography(), setting.scale.bibliography_queries, "approaches", said)


def operators(setting: TransformSetting) -> Iterator[str]:
    """Experiment 11: where nothing nests, the DTD shows that no plan needs to hash or seek duplicates."""
    kind, count = bibliography(), setting.scale.bibliography_queries
    semi_hash, _, outer_hash, _, dup_elims = yield from _operators(setting, kind, count, "operators", _BIB)
    workload = f"{count:,} queries, DTD {kind.dtd.name}"
    setting.figure("hash joins that the DTD leaves", workload, semi_hash + outer_hash, "", 0)
    setting.figure("DupElims that the DTD leaves", workload, dup_elims, "", 0)


def recursive(setting: TransformSetting) -> Iterator[str]:
    """Experiment 13: both, where elements nest."""
    kind, count = book(), setting.scale.book_queries
    said = "thesis: by the query, FW beats FWR; by the DTD, FWR leads by less"
    yield from _approaches(setting, kind, count, "recursive-approaches", said)
    yield from _operators(setting, kind, count, "recursive-operators", _BOOK)


def _approaches(setting: TransformSetting, kind: Kind, count: int, name: str, said: str) -> Iterator[str]:
    asked, sent = compiled(kind.queries(count)), kind.messages(setting.scale.messages)
    yield f"loading {len(asked):,} queries, ten times"
    ways = [plan_each(kind.dtd, sharing, optimise) for sharing in SHARINGS for optimise in OPTIMISED]
    ways.append(shared())
    for way in ways:
        way.load(asked)
    yield f"{len(asked):,} queries"
    passes = [partial(way.groups_pass, sent) for way in ways]
    timed = side_by_side(passes, sent, least=setting.scale.rounds, warm_up=1)
    milliseconds = [timing.milliseconds for timing in timed]
    listing = setting.listing(
        Listing(
            name,
            f"Approaches: {len(asked):,} queries, DTD {kind.dtd.name}",
            tuple(OPTIMISED.values()),
            f"{MILLISECONDS}; {ways[-1].matched(sent):,.0f} queries make something of it; {said}",
        )
    )
    for place, sharing in enumerate(SHARINGS):
        listing.add(sharing, *milliseconds[3 * place : 3 * place + 3])
    listing.add(ways[-1].label, milliseconds[-1])


def _operators(
    setting: TransformSetting, kind: Kind, count: int, name: str, published: Published
) -> Generator[str, None, Counts]:
    """Returns the counts of plans that are fully optimised."""
    asked, sent = compiled(kind.queries(count)), kind.messages(setting.scale.messages)
    workload = f"FWR, {len(asked):,} queries, DTD {kind.dtd.name}"
    costs = setting.listing(
        Listing(
            f"{name}-costs",
            f"Costs by operator: {workload}",
            tuple(_KINDS.values()),
            f"{MILLISECONDS}, bookkeeping included",
        )
    )
    counts = setting.listing(
        Listing(
            f"{name}-counts",
            f"Operators in plans: {workload}",
            _COUNTS,
            "a predicate on the bound element's own attributes is a selection here, not a semijoin",
        )
    )
    thesis = f"  thesis, of {published.queries:,}"
    for optimise, label in OPTIMISED.items():
        yield f"operators, {label}"
        way = plan_each(kind.dtd, "FWR", optimise)
        way.load(asked)
        assert isinstance(way.plans, PlanPerQuery)
        spent = _billed(setting, way.index, way.plans, sent)
        counted = _counted(way.plans.plans.values())
        costs.add(label, *spent)
        costs.add(thesis, *published.costs[optimise], published=True)
        counts.add(label, *counted)
        counts.add(thesis, *published.counts[optimise], published=True)
    return counted


def _billed(
    setting: TransformSetting, index: Index, plans: PlanPerQuery, sent: Sequence[bytes]
) -> list[float]:
    """Milliseconds a message by kind of operator: the median of the rounds."""
    gc.collect()
    rounds: list[Counter[str]] = []
    for _ in range(setting.scale.rounds):
        rounds.append(Counter())
        for body in sent:
            deque(plans.groups(index.find(Message(body)), rounds[-1]), maxlen=0)
    return [median(costs[kind] for costs in rounds) / len(sent) / 1e6 for kind in _KINDS]


def _counted(plans: Iterable[OperatorPlan]) -> Counts:
    found = Counter((operator.kind, operator.implementation) for plan in plans for operator in plan.operators)
    return (
        found["SemiJoin", "hash"],
        found["SemiJoin", "merge"],
        found["OuterJoinSelect", "hash"],
        found["OuterJoinSelect", "merge"],
        found["DupElim", "hash"] + found["DupElim", "scan"],
    )


# -- curves --------------------------------------------------------------------------------------------


def predicates_and_returns(setting: TransformSetting) -> Iterator[str]:
    """Experiment 12: more predicates, and more return paths, in each query."""
    scale, kind = setting.scale, bibliography()
    sent = kind.messages(scale.messages)
    chart = _chart(
        setting,
        "predicates",
        "Predicates in a query",
        "predicate paths (PP)",
        kind,
        "thesis: with 3, 116 match, and all are close",
    )
    for number in scale.predicate_counts:
        yield f"{number} predicates"
        ways = [*_each(kind), shared()]
        asked = kind.queries(scale.bibliography_queries, predicates=number)
        _add_points(setting, chart, number, ways, compiled(asked), sent)
    chart = _chart(
        setting,
        "returns",
        "Return paths of a query",
        "return paths (RP)",
        kind,
        "thesis: F and FW grow with them, FWR hardly does",
    )
    for number in scale.return_counts:
        yield f"{number} return paths"
        ways = [*_each(kind), shared()]
        asked = kind.queries(scale.bibliography_queries, returns=number)
        _add_points(setting, chart, number, ways, compiled(asked), sent)


def descendant(setting: TransformSetting) -> Iterator[str]:
    """Experiment 14: the probability of //, where elements nest."""
    scale, kind = setting.scale, book()
    sent = kind.messages(scale.messages)
    chart = _chart(
        setting,
        "descendant",
        "Probability of a descendant step",
        "DSProb",
        kind,
        "thesis: all grow; with 0.4, FW beats FWR by 4 %",
    )
    for probability in scale.descendants:
        yield f"DSProb {probability:g}"
        by_query = replace(plan_each(kind.dtd, "FWR", "query"), role=Role.TWIN)
        ways = [by_query, plan_each(kind.dtd, "FW"), plan_each(kind.dtd, "FWR"), shared()]
        asked = kind.queries(scale.book_queries, descendant=probability)
        _add_points(setting, chart, probability, ways, compiled(asked), sent)


def growth(setting: TransformSetting) -> Iterator[str]:
    """Experiments 15 and 16 without recursion: the number of queries."""
    scale, kind = setting.scale, bibliography()
    sent = kind.messages(scale.messages, MANY_VALUES)
    chart = _chart(
        setting,
        "growth",
        "Number of queries",
        "distinct queries",
        kind,
        "thesis: F, FW and FWR are linear, F the steepest",
        log_x=True,
    )
    ways = [*_each(kind), shared()]
    population = kind.queries(max(scale.growth_sizes), values=MANY_VALUES)
    before = 0
    for size in scale.growth_sizes:
        yield f"{size:,} queries"
        _add_points(setting, chart, size, ways, compiled(population[before:size]), sent)
        before = size


def _each(kind: Kind) -> list[Contender]:
    return [plan_each(kind.dtd, sharing) for sharing in SHARINGS]


def _chart(
    setting: TransformSetting, name: str, title: str, x: str, kind: Kind, said: str, log_x: bool = False
) -> Chart:
    note = f"DTD {kind.dtd.name}, until the last group; {said}"
    return setting.chart(Chart(name, title, x, MILLISECONDS, log_x, note, unit=" ms"))


def _add_points(
    setting: TransformSetting,
    chart: Chart,
    x: float,
    ways: Sequence[Contender],
    asked: Sequence[Transformation],
    sent: Sequence[bytes],
) -> None:
    """Gives all ways more queries, and adds a point to the curve of each."""
    for way in ways:
        way.load(asked)
    passes = [partial(way.groups_pass, sent) for way in ways]
    timed = side_by_side(passes, sent, least=setting.scale.rounds, warm_up=1)
    matched = round(ways[-1].matched(sent), 1)
    for way, timing in zip(ways, timed, strict=True):
        found = details(timing, plans=len(way.plans), matched=matched)
        chart.curve(way.label, way.role).add(x, timing.milliseconds, **found)


EXPERIMENTS = (
    Experiment("approaches", "F, FW and FWR, and what optimises them (experiment 10)", approaches),
    Experiment("operators", "costs and numbers of operators (experiment 11)", operators),
    Experiment(
        "predicates-and-returns",
        "against their number (experiment 12)",
        predicates_and_returns,
    ),
    Experiment("recursive", "experiments 10 and 11 where elements nest (experiment 13)", recursive),
    Experiment("descendant", "against P(//) (experiment 14)", descendant),
    Experiment("growth", "against the number of queries (experiments 15, 16)", growth),
)
