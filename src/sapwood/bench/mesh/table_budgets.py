"""Tables under a budget: their entries, and the messages that cross a link in addition, by the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from time import process_time
from typing import NamedTuple

from sapwood.bench.harness import Bench, ChartAxis, Role, experiment, run_isolated, scale
from sapwood.bench.mesh.link_traffic import make_local
from sapwood.mesh.routing.message_sample import MOST_MESSAGES, SampleMessage, find_hits
from sapwood.mesh.routing.route import Route, routes_of
from sapwood.mesh.routing.route_generaliser import RouteGeneraliser

_TENANT, _STREAM = "default", "news"
_PLACE = "b2"
"""the site whose table is generalised, in the workload of local interests"""


class BudgetRun(NamedTuple):
    """A table under a budget."""

    entries: int
    size: int
    forwarded: float
    """the share of messages that are not those of the sample and cross the link"""
    seconds: float
    """of CPU, to generalise all routes"""


@experiment("table-budget", "entries of a table and messages on its link, by the table's budget")
def measure_budgets(
    bench: Bench,
    messages: int = scale(300, 300, 100, 20),
    counts: tuple[int, ...] = scale((5, 20, 1_000), (5, 20, 1_000), (5, 200), (10,)),
    shares: tuple[float, ...] = scale(
        (1.0, 0.5, 0.25, 0.1, 0.05, 0.02), (1.0, 0.5, 0.25, 0.1, 0.05, 0.02), (1.0, 0.25, 0.05), (1.0, 0.2)
    ),
) -> Iterator[str]:
    """Generalise the routes of one neighbour to shares of their size, with one half of the messages as the
    sample, and count which of the others are forwarded."""
    title = "messages on a link by the budget of its table"
    axis = ChartAxis("share of messages", "%")
    chart = bench.chart("table-budget", title, "budget, % of the exact table", axis, log_x=True)
    columns = ("entries", "bytes", "forwarded, %", "in addition, %", "CPU, s")
    listing = bench.listing("table-budget", "tables under a budget", columns, bench.dataset.label)
    for count in counts:
        for label, role in (("local", Role.SAPWOOD), ("random", Role.OTHER)):
            queries, bodies = _draw(bench, label, count, messages)
            workload = f"{label} interests, {len(queries):,} queries"
            exact: BudgetRun | None = None
            for share in shares:
                yield f"{workload}, budget {share:.0%}"
                run = yield from run_isolated(run_budget, queries, bodies, share)
                exact = exact or run
                added = 100 * (run.forwarded - exact.forwarded)
                name = f"{workload}, budget {share:.0%}"
                listing.add(name, run.entries, run.size, 100 * run.forwarded, added, run.seconds)
                chart.curve(workload, role).add(100 * share, max(0.1, 100 * run.forwarded), **run._asdict())
                if share == shares[1]:
                    bench.figure("messages that cross in addition", name, added, "%", None, **run._asdict())


def _draw(bench: Bench, label: str, count: int, messages: int) -> tuple[list[str], list[bytes]]:
    if label == "local":
        queries, bodies, _ = make_local(count, 2 * messages)
        return queries[_PLACE], bodies
    return list(bench.dataset.queries("predicates", count)), list(bench.dataset.messages(2 * messages))


def run_budget(queries: Sequence[str], bodies: Sequence[bytes], share: float) -> Iterator[str | BudgetRun]:
    """Generalise the routes of queries to a share of their size."""
    yield "generalising"
    routes = list(dict.fromkeys(route for query in queries for route in routes_of(query, {}, _TENANT)))
    half = len(bodies) // 2
    messages = [SampleMessage(_TENANT, _STREAM, body) for body in bodies]
    generaliser = RouteGeneraliser(0)
    generaliser.set_sample(messages[:half][:MOST_MESSAGES])
    size = sum(map(generaliser.size, routes))
    entries, began = routes, process_time()
    if share < 1:
        covering = generaliser.generalise(routes, int(share * size))
        entries = list(dict.fromkeys(_own(covering.cover(route)) for route in routes))
    seconds = process_time() - began
    hits = reduce(or_, find_hits(messages[half:], entries), 0)
    forwarded = hits.bit_count() / (len(bodies) - half)
    yield BudgetRun(len(entries), sum(map(generaliser.size, entries)), forwarded, seconds)


def _own(route: object) -> Route:
    assert isinstance(route, Route)
    return route
