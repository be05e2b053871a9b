"""A first look: news messages and subscriptions are made up, matched, and shown as a table and a chart."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from xml.parsers import expat

from lxml import etree
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from sapwood import Matcher, MessageError
from sapwood.workload import MessageGenerator, QueryGenerator, load_dtd

SIZES = (100, 1_000, 10_000)
"""How many subscriptions are tried, the last also for the table."""
_BROKEN = (b"<news><head>never closed</news>", b"<news>&undeclared;</news>", b"not XML at all")


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds a message, with so many subscriptions."""

    subscriptions: int
    sapwood: float
    one_by_one: float


def run(console: Console, out: Path, messages: int = 300) -> Path:
    """Runs the demo; returns the chart that it drew."""
    dtd = load_dtd("news")
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("making messages and subscriptions", total=None)
        bodies = MessageGenerator(dtd, seed=1).take(messages)
        queries = _queries(SIZES[-1])
        progress.update(task, description="matching")
        costs = [_cost(queries[:size], bodies) for size in SIZES]
        matcher = Matcher()
        matcher.add_many(enumerate(queries, 1))
        counts, rejects, popular = _match_all(matcher, _with_broken(bodies))
    parsing = _microseconds(bodies, lambda body: expat.ParserCreate().Parse(body, True))
    console.print(_summary(matcher, counts, rejects, costs[-1], parsing))
    console.print(_most_popular(popular, queries, len(counts)))
    for reject in rejects:
        console.print(f"[yellow]refused[/] {reject}", highlight=False)
    chart = _chart(counts, costs, parsing, out)
    console.print(f"\nThe chart is in [bold]{chart}[/].", highlight=False)
    return chart


def _queries(count: int) -> list[str]:
    """A third each of plain paths, paths with value predicates, and paths with nested paths."""
    dtd = load_dtd("news")
    third = count // 3
    plain = QueryGenerator(dtd, seed=2).take(count - 2 * third)
    with_values = QueryGenerator(dtd, seed=3, predicates=1, operators=("=", ">=")).take(third)
    nested = QueryGenerator(dtd, seed=4, nested=1).take(third)
    mixed = [query for three in zip(plain, with_values, nested, strict=False) for query in three]
    return mixed + plain[third:]


def _with_broken(bodies: list[bytes]) -> list[bytes]:
    step = len(bodies) // (len(_BROKEN) + 1)
    mixed = list(bodies)
    for i, broken in enumerate(_BROKEN, 1):
        mixed.insert(i * step, broken)
    return mixed


def _match_all(matcher: Matcher, bodies: list[bytes]) -> tuple[list[int], list[str], dict[Hashable, int]]:
    counts: list[int] = []
    rejects: list[str] = []
    popular: dict[Hashable, int] = {}
    for number, body in enumerate(bodies, 1):
        try:
            matches = matcher.match(body)
        except MessageError as error:
            rejects.append(f"message {number}: {error}")
            continue
        counts.append(len(matches))
        for id in matches:
            popular[id] = popular.get(id, 0) + 1
    return counts, rejects, popular


def _cost(queries: list[str], bodies: list[bytes]) -> Cost:
    matcher = Matcher()
    matcher.add_many(enumerate(queries))
    for body in bodies:  # so that paths have been seen once
        matcher.match(body)
    warm = _microseconds(bodies, lambda body: len(matcher.match(body)))
    sample = bodies[:: max(1, len(bodies) * len(queries) // 20_000)]
    compiled = [etree.XPath(query) for query in queries]

    def one_by_one(body: bytes) -> None:
        tree = etree.fromstring(body)
        for query in compiled:
            query(tree)

    return Cost(len(queries), warm, _microseconds(sample, one_by_one))


def _microseconds(bodies: list[bytes], work: Callable[[bytes], object]) -> float:
    started = perf_counter()
    for body in bodies:
        work(body)
    return (perf_counter() - started) / len(bodies) * 1e6


def _summary(matcher: Matcher, counts: list[int], rejects: list[str], cost: Cost, parsing: float) -> Table:
    table = Table(title="Sapwood: every message against every subscription", show_header=False)
    table.add_row("subscriptions", f"{len(matcher):,}")
    table.add_row("messages", f"{len(counts):,} matched, {len(rejects)} refused")
    table.add_row("matches a message", f"{sum(counts) / len(counts):,.0f} of {len(matcher):,}")
    table.add_row("parsing alone", f"{parsing:,.0f} µs a message")
    table.add_row(
        "Sapwood, warm", f"{cost.sapwood:,.0f} µs a message, {cost.sapwood / parsing:.1f} × parsing"
    )
    table.add_row("one XPath at a time", f"{cost.one_by_one:,.0f} µs a message (lxml)")
    table.add_row("", f"[bold green]{cost.one_by_one / cost.sapwood:,.0f} times faster[/]")
    return table


def _most_popular(popular: dict[Hashable, int], queries: list[str], messages: int) -> Table:
    table = Table("id", "subscription", "messages", title="Matched most often, but not always")
    ranked = sorted((-count, id) for id, count in popular.items() if isinstance(id, int) and count < messages)
    for count, id in ranked[:5]:
        table.add_row(str(id), queries[id - 1], f"{-count:,}")
    return table


def _chart(counts: list[int], costs: list[Cost], parsing: float, out: Path) -> Path:
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes = [cost.subscriptions for cost in costs]
    left.loglog(
        sizes, [c.one_by_one for c in costs], "s--", color="#b5651d", label="one XPath at a time (lxml)"
    )
    left.loglog(sizes, [c.sapwood for c in costs], "o-", color="#2e7d32", label="Sapwood")
    left.axhline(parsing, color="#888888", linewidth=1, label="parsing alone")
    left.set(title="Cost of a message", xlabel="subscriptions", ylabel="µs")
    left.grid(alpha=0.3, which="both")
    left.legend(frameon=False)
    right.hist(counts, bins=30, color="#2e7d32")
    right.set(title="Subscriptions that a message matches", xlabel="subscriptions", ylabel="messages")
    right.grid(alpha=0.3)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "demo.png"
    figure.savefig(path, dpi=130)
    return path
