"""The CPU of each format of links at both ends, and of the first routing decision, as in ONYX's figure 8."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from sapwood.bench.harness import Bench, BenchError, ChartAxis, Role, experiment, run_isolated, scale
from sapwood.bench.harness.engines import kernel_missing
from sapwood.bench.harness.timer import Pass, clock, time_interleaved
from sapwood.bench.mesh.format_workload import DEFAULT, STREAM, TENANT, FormatWorkload, split_published
from sapwood.engine import kernel
from sapwood.engine.kernel.loader import SWITCH
from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.mesh.routing.route import Route, routes_of
from sapwood.mesh.wire.bodies.body_format import BodyFormat, decode_body, encode_body
from sapwood.mesh.wire.skeletons.message_skeleton import read_skeleton
from sapwood.mesh.wire.skeletons.skeleton_index import SkeletonIndex
from sapwood.serve.tenants.evaluation import Publication
from sapwood.serve.tenants.tenant_engine import TenantEngine

Item = TypeVar("Item")
_LINKS = 8
_MATCH, _MAKE, _DECIDE = "parse and match", "make a skeleton", "decide on a skeleton"
_VERDICT = "ONYX: text pays parsing; compressed formats cost significantly"


class ProcessingRun(NamedTuple):
    """CPU of a message in microseconds."""

    with_kernel: bool
    raw: float
    """to parse it with expat, without handlers"""
    encode: dict[str, float]
    """by format"""
    decode: dict[str, float]
    decisions: dict[str, float]
    """by _MATCH, _MAKE and _DECIDE"""
    load: float


@experiment("format-processing", "CPU to encode, decode and route a message in all formats of links")
def measure_processing(
    bench: Bench,
    samples: int = scale(200, 200, 200, 20),
    messages: int = scale(300, 300, 100, 5),
    routes: tuple[int, ...] = scale((1_000, 10_000), (1_000, 10_000), (1_000,), (20,)),
    rounds: int = scale(9, 9, 5, 1),
) -> Iterator[str]:
    """Measure every format in the same rounds, with the compiled kernel and without."""
    workload = split_published(bench, samples, messages)
    title = "first routing decision by routes"
    chart = bench.chart("format-decisions", title, "routes", ChartAxis("µs a message", ""), log_x=True)
    for number, count in enumerate(routes):
        queries = bench.dataset.queries("distinct", count)
        for switch in ("",) if kernel_missing() else ("", "0"):
            yield f"{len(queries):,} routes, {'pure Python' if switch else 'as installed'}"
            with _switch_kernel(switch):
                run = yield from run_isolated(run_processing, workload, queries, rounds)
            engine = "kernel" if run.with_kernel else "Python"
            for name, cost in run.decisions.items():
                role = Role.BASELINE if name == _MATCH else Role.SAPWOOD if name == _DECIDE else Role.OTHER
                chart.curve(f"{name}, {engine}", role if run.with_kernel else Role.TWIN).add(
                    len(queries), cost, raw_us=run.raw, load_average=run.load
                )
            _report(bench, run, f"{len(queries):,} routes, {engine}")
            if number == 0:
                _list(bench, run, f"{engine}, {len(queries):,} routes, {bench.dataset.label}")


@contextmanager
def _switch_kernel(switch: str) -> Iterator[None]:
    """Set whether processes that are started meanwhile do without the kernel."""
    before = os.environ.get(SWITCH)
    if switch:
        os.environ[SWITCH] = switch
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(SWITCH, None)
        else:
            os.environ[SWITCH] = before


def _list(bench: Bench, run: ProcessingRun, workload: str) -> None:
    columns = ("encode", "decode", "both ends", "+ parse and match", "+ skeleton instead")
    engine = "kernel" if run.with_kernel else "python"
    title = f"CPU of a message by format, µs: {workload}"
    listing = bench.listing(f"format-processing-{engine}", title, columns, _VERDICT)
    skeleton = run.decisions[_MAKE] + run.decisions[_DECIDE]
    for format in BodyFormat:
        encode, decode = run.encode[format.label], run.decode[format.label]
        ends = encode + decode
        listing.add(format.label, encode, decode, ends, ends + run.decisions[_MATCH], ends + skeleton)
    listing.add(_MAKE, run.decisions[_MAKE])
    listing.add(_DECIDE, None, run.decisions[_DECIDE])
    listing.add(_MATCH, None, run.decisions[_MATCH])
    listing.add("raw expat", None, run.raw)


def _report(bench: Bench, run: ProcessingRun, workload: str) -> None:
    bench.ratio(
        "decision on a skeleton against parse and match",
        workload,
        None,
        "times",
        skeleton_us=run.decisions[_DECIDE],
        match_us=run.decisions[_MATCH],
        make_us=run.decisions[_MAKE],
        raw_us=run.raw,
        load_average=run.load,
    )
    ends = run.encode[DEFAULT.label] + run.decode[DEFAULT.label]
    bench.figure("body at both ends", f"{DEFAULT.label}, {workload}", ends, "µs", raw_us=run.raw)


def run_processing(
    workload: FormatWorkload, queries: Sequence[str], rounds: int
) -> Iterator[str | ProcessingRun]:
    """Time all formats and decisions in the same rounds."""
    yield "building tables"
    passes: dict[tuple[str, str], Pass] = {}
    for format in BodyFormat:
        passes["encode", format.label], passes["decode", format.label] = _make_passes(workload, format)
    for name, one in _make_decisions(workload, queries).items():
        passes["decision", name] = one
    yield "timing"
    timings = time_interleaved(list(passes.values()), workload.messages, least=rounds, warm_up=1)
    costs: dict[str, dict[str, float]] = {"encode": {}, "decode": {}, "decision": {}}
    for (part, name), timing in zip(passes, timings, strict=True):
        costs[part][name] = timing.microseconds
    raw = min(timings[0].raw) / len(workload.messages) * 1e6
    with_kernel = kernel.KERNEL is not None
    load = os.getloadavg()[0]
    yield ProcessingRun(with_kernel, raw, costs["encode"], costs["decode"], costs["decision"], load)


def _make_passes(workload: FormatWorkload, format: BodyFormat) -> tuple[Pass, Pass]:
    dictionary, bodies = workload.dictionary_of(format), workload.encode(format)
    return (
        _time_each(workload.messages, lambda message: encode_body(message, format, dictionary)),
        _time_each(bodies, lambda body: decode_body(body, dictionary)),
    )


def _make_decisions(workload: FormatWorkload, queries: Sequence[str]) -> dict[str, Pass]:
    """Return the passes of routing decisions, which agree on all messages."""
    engine, index = TenantEngine(Limits()), SkeletonIndex()
    for bit, routes in enumerate(_spread_routes(queries)):
        engine.set_routes(bit, routes)
        for route in routes:
            index.add(bit, route)
    dictionary, limits = workload.of_texts, Limits()
    publications = [Publication(TENANT, STREAM, "", message) for message in workload.messages]
    skeletons = []
    for publication in publications:
        skeleton = read_skeleton(Message(publication.body), limits, dictionary, index.tested)
        masks = index.decide(skeleton, dictionary, STREAM) if skeleton is not None else None
        if masks is None or not masks.definite == masks.possible == engine.find_links(publication):
            raise BenchError("a skeleton and its message are routed to different links")
        assert skeleton is not None
        skeletons.append(skeleton)
    return {
        _MATCH: _time_each(publications, engine.find_links),
        _MAKE: _time_each(
            workload.messages, lambda text: read_skeleton(Message(text), limits, dictionary, index.tested)
        ),
        _DECIDE: _time_each(skeletons, lambda skeleton: index.decide(skeleton, dictionary, STREAM)),
    }


def _spread_routes(queries: Sequence[str]) -> list[list[Route]]:
    """Return the routes of queries, spread over links."""
    return [
        [route for query in queries[link::_LINKS] for route in routes_of(query, {}, TENANT)]
        for link in range(_LINKS)
    ]


def _time_each(items: Sequence[Item], work: Callable[[Item], object]) -> Pass:
    """Return a pass that does some work with each item."""

    def run() -> float:
        start = clock()
        for item in items:
            work(item)
        return clock() - start

    return run
