"""Bytes and CPU of a link beyond which only transformations are, with and without projection."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sapwood.bench.harness import Bench, BenchError, ChartAxis, Role, experiment, run_isolated, scale
from sapwood.bench.harness.benchmark_report import Detail
from sapwood.bench.harness.datasets import Kind
from sapwood.bench.harness.timer import Pass, clock, time_interleaved
from sapwood.bench.mesh.format_workload import DEFAULT, STREAM, TENANT, FormatWorkload, split_published
from sapwood.broker import Broker
from sapwood.engine.limits import Limits
from sapwood.mesh.projection.link_projection import ALWAYS, AUTO, LinkProjection, ProjectionReport
from sapwood.mesh.projection.pruning_plan import PruningPlan
from sapwood.mesh.routing.route import routes_of
from sapwood.mesh.wire.bodies.body_format import EncodedBody, decode_body, encode_body

_LINK = "b"
_RATES = (1, 10, 100)
"""Mbit/s"""


class ProjectionRun(NamedTuple):
    """A link beyond which some transformations are; CPU is that of a message in microseconds."""

    wanted: int
    """messages that any of them wants, which are those that cross the link"""
    text: float
    """the share of their bytes that is left"""
    encoded: float
    """the same in the default format"""
    sender: tuple[float, float]
    """to encode the whole message, and to cut it and encode what is left"""
    receiver: tuple[float, float]
    """to decode and evaluate the whole message, and what is left"""
    whole_bytes: float
    """of a whole message in the default format"""
    fastest: float | None
    """the fastest link that cuts these messages by itself, in Mbit/s; None: none does"""
    reason: str
    """why a link of 100 Mbit/s cuts messages, or why not"""
    load: float


@experiment("projection", "bytes and CPU of a link beyond which only transformations are")
def measure_projection(
    bench: Bench,
    samples: int = scale(200, 200, 200, 20),
    messages: int = scale(300, 300, 100, 20),
    counts: tuple[int, ...] = scale((1, 3, 10, 30, 100), (1, 3, 10, 30, 100), (1, 10, 100), (3,)),
    rounds: int = scale(5, 5, 3, 1),
) -> Iterator[str]:
    """Cut messages for more and more transformations, of plain paths and of paths with a predicate, and check
    that these make the same of what is left."""
    workload = split_published(bench, samples, messages)
    axis = ChartAxis("share of whole messages", "%")
    chart = bench.chart("projection", "bytes on a link with projection", "transformations", axis, log_x=True)
    columns = (
        "text left, %",
        "encoded, %",
        "sender, µs",
        "with projection",
        "receiver, µs",
        "with projection",
        "cut up to, Mbit/s",
    )
    listing = bench.listing("projection", "links with projection", columns, bench.dataset.label)
    kinds: list[tuple[Kind, Role]] = [("distinct", Role.SAPWOOD), ("predicates", Role.OTHER)]
    for kind, role in kinds:
        for count in counts:
            name = f"{count:,} of {'plain paths' if kind == 'distinct' else 'paths with a predicate'}"
            yield name
            queries = make_transformations(bench.dataset.queries(kind, count))
            run = yield from run_isolated(run_projection, workload, queries, rounds)
            if not run.wanted:
                continue
            listing.add(
                name,
                100 * run.text,
                100 * run.encoded,
                *run.sender,
                *run.receiver,
                run.fastest,
            )
            label = "plain paths" if kind == "distinct" else "one predicate"
            chart.curve(f"text, {label}", role).add(count, 100 * run.text, **_note(run))
            chart.curve(f"{DEFAULT.label}, {label}", Role.TWIN).add(count, 100 * run.encoded)
            bench.figure("bytes saved by projection", name, 100 * (1 - run.encoded), "%", None, **_note(run))
            cpu = sum(run.sender[1:] + run.receiver[1:]) / (run.sender[0] + run.receiver[0])
            bench.figure("CPU of both ends, cut against whole", name, cpu, "times", None, **_note(run))


def _note(run: ProjectionRun) -> dict[str, Detail]:
    return {"wanted": run.wanted, "reason": run.reason, "load_average": run.load}


def make_transformations(paths: Sequence[str]) -> list[str]:
    """Return queries that return the elements of paths."""
    return [f"for $x in {path} return <found>{{$x}}</found>" for path in paths]


def run_projection(
    workload: FormatWorkload, queries: Sequence[str], rounds: int
) -> Iterator[str | ProjectionRun]:
    """Time both ends of a link with whole messages and with cut ones, and ask links what they would do."""
    yield "cutting messages"
    broker = Broker()
    for number, query in enumerate(queries):
        broker.subscribe(number, query)
    wanted = [body for body in workload.messages if broker.publish(body, stream=STREAM)]
    load = os.getloadavg()[0]
    if not wanted:
        yield ProjectionRun(0, 1, 1, (0, 0), (0, 0), 0, None, "", load)
        return
    projection = _open_projection(queries, ALWAYS)
    plan = projection.find_plan(_LINK, TENANT, STREAM)
    dictionary = workload.of_texts

    def cut(body: bytes, by: PruningPlan | None) -> bytes:
        return body if by is None else projection.cut(_LINK, TENANT, STREAM, body, by)

    left = [cut(body, plan) for body in wanted]
    for body, kept in zip(wanted, left, strict=True):
        if _deliver(broker, body) != _deliver(broker, kept):
            raise BenchError("a transformation makes something else of a message that was cut")
    whole = [encode_body(body, DEFAULT, dictionary) for body in wanted]
    less = [encode_body(body, DEFAULT, dictionary) for body in left]

    def receive(bodies: Sequence[EncodedBody]) -> None:
        for body in bodies:
            broker.publish(decode_body(body, dictionary), stream=STREAM)

    def send(by: PruningPlan | None) -> None:
        for body in wanted:
            encode_body(cut(body, by), DEFAULT, dictionary)

    yield "timing"
    passes: list[Pass] = [
        lambda: _time(lambda: send(None)),
        lambda: _time(lambda: send(plan)),
        lambda: _time(lambda: receive(whole)),
        lambda: _time(lambda: receive(less)),
    ]
    timings = time_interleaved(passes, wanted, least=rounds, warm_up=1)
    costs = [timing.microseconds for timing in timings]
    encoded = [sum(len(body.data) for body in bodies) for bodies in (whole, less)]
    text = sum(map(len, wanted))
    share = encoded[0] / text
    reports = {rate: _decide(queries, wanted, 8 * share / (rate * 1e6)) for rate in _RATES}
    yield ProjectionRun(
        len(wanted),
        sum(map(len, left)) / text,
        encoded[1] / encoded[0],
        (costs[0], costs[1]),
        (costs[2], costs[3]),
        encoded[0] / len(wanted),
        max((rate for rate, report in reports.items() if report.is_cut), default=None),
        reports[_RATES[-1]].reason,
        load,
    )


def _open_projection(queries: Sequence[str], mode: str, rate: float | None = None) -> LinkProjection:
    projection = LinkProjection(mode, Limits(), lambda link: True, lambda link: rate)
    projection.change(_LINK, [route for query in queries for route in routes_of(query, {}, TENANT)], [])
    return projection


def _decide(queries: Sequence[str], bodies: Sequence[bytes], seconds_per_byte: float) -> ProjectionReport:
    """Return what a link does by itself that takes some time for a byte of text."""
    projection = _open_projection(queries, AUTO, seconds_per_byte)
    for body in bodies:
        plan = projection.choose_plan(_LINK, TENANT, STREAM)
        if plan is not None:
            projection.cut(_LINK, TENANT, STREAM, body, plan)
    return projection.explain(_LINK, TENANT, STREAM)


def _deliver(broker: Broker, body: bytes) -> list[tuple[object, bytes]]:
    return [(each.subscription, each.body) for each in broker.publish(body, stream=STREAM)]


def _time(work: Callable[[], None]) -> float:
    start = clock()
    work()
    return clock() - start
