"""The CPU of a message at the first broker of a chain, and at inner ones, beside transport and log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, TypeVar

from sapwood.bench.harness import Bench, BenchError, ChartAxis, Role, at_most, experiment, run_isolated, scale
from sapwood.bench.harness.timer import Pass, cpu_seconds, time_interleaved
from sapwood.bench.mesh.format_workload import (
    DEFAULT,
    STREAM,
    TENANT,
    FormatWorkload,
    split_published,
)
from sapwood.engine.kernel import KERNEL
from sapwood.engine.limits import Limits
from sapwood.mesh.core.frames import Epoch, Frame, MessageFrame, MessageKey
from sapwood.mesh.routing.route import Route, routes_of
from sapwood.mesh.wire.bodies.body_format import BodyFormat
from sapwood.mesh.wire.frame_codec import decode_payload, encode_payload
from sapwood.mesh.wire.link_codec import MANY_ROUTES, LinkCodec
from sapwood.mesh.wire.message_content import MessageContent
from sapwood.mesh.wire.skeletons.skeleton_router import SkeletonRouter
from sapwood.serve.tenants.evaluation import Evaluation, Publication
from sapwood.serve.tenants.tenant_engine import TenantEngine

_FIRST, _INNER, _NEXT, _BEYOND = "first", "inner", "next", "beyond"
_CHAIN = (_FIRST, _INNER, _NEXT, _BEYOND)
_EPOCH = Epoch(1, 1)
_MOST_EXCHANGES = 20
T = TypeVar("T")


class HopRun(NamedTuple):
    """CPU of a message in microseconds, by part of the work, and the share of its size on the wire."""

    parts: dict[str, float]
    share: float
    forwarded: float
    """the share of messages that the inner broker sends on"""
    load: float


@experiment("inner", "CPU of a message at the first broker and at inner ones, without transport and log")
def measure_inner(
    bench: Bench,
    samples: int = scale(200, 200, 200, 20),
    messages: int = scale(300, 300, 100, 10),
    routes: tuple[int, ...] = scale((1_000, 10_000), (1_000, 10_000), (1_000,), (20,)),
    batch: int = scale(50, 50, 50, 5),
    rounds: int = scale(9, 9, 5, 1),
) -> Iterator[str]:
    """Measure payloads of messages that come, are decided on, and go on, by skeletons and without."""
    workload = split_published(bench, samples, messages)
    title = "CPU of a message at brokers, beside transport and log"
    chart = bench.chart("inner", title, "routes", ChartAxis("µs a message", ""), log_x=True)
    for count in routes:
        queries = bench.dataset.queries("distinct", count)
        found: dict[str, HopRun] = {}
        for format, by_skeleton in ((DEFAULT, True), (DEFAULT, False), (BodyFormat.TEXT, False)):
            name = f"{format.label}{' and skeleton' if by_skeleton else ''}"
            yield f"{len(queries):,} routes, {name}"
            run = yield from run_isolated(run_hops, workload, queries, batch, format, by_skeleton, rounds)
            found[name] = run
            for part in ("first broker", "inner broker"):
                role = Role.BASELINE if format is not DEFAULT else Role.SAPWOOD if by_skeleton else Role.OTHER
                chart.curve(f"{part}, {name}", role).add(len(queries), run.parts[part], load_average=run.load)
        size = f"{len(queries):,} routes, payloads of {batch}"
        listing = bench.listing(f"inner-{count}", f"{title}, µs: {size}", tuple(found), bench.dataset.label)
        for part in next(iter(found.values())).parts:
            listing.add(part, *(run.parts[part] for run in found.values()))
        listing.add("size, share of text", *(run.share for run in found.values()))
        _report(bench, found, len(queries))


def _report(bench: Bench, found: dict[str, HopRun], routes: int) -> None:
    """Report the promises: on both ends about what links do by themselves, which is to make skeletons where
    routes are many; on inner brokers about those that route by skeletons."""
    by_skeleton, without, _ = found
    default = by_skeleton if KERNEL is None or routes >= MANY_ROUTES else without
    for name, run in found.items():
        is_default, is_inner = name == default, name == by_skeleton
        parts, label = run.parts, f"{name}, {routes:,} routes"
        details = {"load_average": run.load, "forwarded": run.forwarded}
        first, inner = parts["first broker"], parts["inner broker"]
        bench.figure("payload size against text", label, run.share, "times", at_most(0.25, is_default))
        ends = parts["encode"] + parts["encode payload"] + parts["decode payload"]
        bench.figure("both ends of a link", label, ends, "µs", at_most(60, is_default), **details)
        bench.figure("inner broker", label, inner, "µs", at_most(60, is_inner), **details)
        bar = at_most(0.4, is_inner)
        bench.ratio(
            "inner broker against the first", label, bar, "times", inner=inner, first=first, **details
        )


def run_hops(
    workload: FormatWorkload,
    queries: Sequence[str],
    batch: int,
    format: BodyFormat,
    by_skeleton: bool,
    rounds: int,
) -> Iterator[str | HopRun]:
    """Time the whole work of brokers, and its parts, in the same rounds."""
    chain = _Chain(workload.samples, queries, format, by_skeleton)
    first, inner = chain.brokers[_FIRST], chain.brokers[_INNER]
    contents = [
        MessageContent(TENANT, STREAM, f"m{number}", None, body, True)
        for number, body in enumerate(workload.messages)
    ]
    batches = [contents[start : start + batch] for start in range(0, len(contents), batch)]
    payloads = [first.publish(some) for some in batches]
    received = [inner.decode(payload) for payload in payloads]
    sent = [[first.codec.encode(_INNER, content) for content in some] for some in batches]
    forwarded = sum(len(some) for some in map(inner.select, received))
    _check(inner, received, by_skeleton)
    passes: dict[str, Pass] = {
        "first broker": _time(batches, first.publish),
        "match": _time(batches, first.match),
        "encode": _time(batches, lambda some: [first.codec.encode(_INNER, each) for each in some]),
        "encode payload": _time(sent, encode_contents),
        "inner broker": _time(payloads, inner.forward),
        "decode payload": _time(payloads, inner.decode),
        "decide": _time(received, inner.select),
        "forward": _time(received, lambda some: [inner.codec.encode(_NEXT, each) for each in some]),
    }
    yield "timing"
    timings = time_interleaved(list(passes.values()), workload.messages, least=rounds, warm_up=2)
    parts = {name: timing.microseconds for name, timing in zip(passes, timings, strict=True)}
    parts["raw expat"] = min(timings[0].raw) / len(contents) * 1e6
    chain.close()
    share = sum(map(len, payloads)) / workload.text_bytes
    yield HopRun(parts, share, forwarded / len(contents), os.getloadavg()[0])


def _time(items: Sequence[T], work: Callable[[T], object]) -> Pass:
    return lambda: cpu_seconds(lambda: [work(item) for item in items])


def _check(inner: _Broker, received: Sequence[list[MessageContent]], by_skeleton: bool) -> None:
    """Check that messages came with skeletons where they should, and are forwarded as they came."""
    for contents in received:
        matched = zip(contents, inner.match(contents), strict=True)
        wanted = [content for content, is_wanted in matched if is_wanted]
        if inner.select(contents) != wanted:
            raise BenchError("a skeleton and its message are routed to different links")
        for content in contents:
            if (content.skeleton is not None) != by_skeleton:
                raise BenchError("a message has no skeleton, or one that nobody wants")
            if inner.codec.encode(_NEXT, content) is not content:
                raise BenchError("a message is not forwarded as it came")


def encode_contents(contents: Sequence[MessageContent]) -> bytes:
    """Return messages as a payload."""
    frames: list[Frame] = [
        MessageFrame(MessageKey(_FIRST, number), content) for number, content in enumerate(contents)
    ]
    return encode_payload(_EPOCH, 1, frames)


class _Broker:
    """What a broker does with messages, beside transport and log; it has no subscriptions of its own."""

    def __init__(self, name: str, format: BodyFormat, by_skeleton: bool, samples: int) -> None:
        place = _CHAIN.index(name)
        self._after = _CHAIN[place + 1] if place + 1 < len(_CHAIN) else ""
        self.router = SkeletonRouter() if by_skeleton else None
        self.codec = LinkCodec(
            format, self.router, Limits(), samples, _DirectExecutor(), always_skeletons=True
        )
        neighbours = [_CHAIN[near] for near in (place - 1, place + 1) if 0 <= near < len(_CHAIN)]
        self.codec.set_neighbours(neighbours, [each for each in neighbours if each != _BEYOND])
        self._engine = TenantEngine(Limits())

    def set_routes(self, routes: Sequence[Route]) -> None:
        """Set what the next neighbour wants."""
        self._engine.set_routes(0, routes)
        if self.router is not None:
            self.router.set_bit(self._after, 0)
            self.router.change(0, routes, ())
            while not self.router.take_over():
                pass

    def publish(self, contents: Sequence[MessageContent]) -> bytes:
        """Match messages that are published here, and return the payload for the next broker."""
        wanted = self.match(contents)
        encode, link = self.codec.encode, self._after
        return encode_contents(
            [encode(link, content) for content, is_wanted in zip(contents, wanted, strict=True) if is_wanted]
        )

    def match(self, contents: Sequence[MessageContent]) -> list[bool]:
        """Return which messages the next neighbour wants, by parsing and matching them together."""
        publications = [Publication(TENANT, STREAM, content.id, content.body) for content in contents]
        wanted = []
        for evaluation in self._engine.evaluate(publications):
            assert isinstance(evaluation, Evaluation)
            wanted.append(bool(evaluation.links))
        return wanted

    def decode(self, payload: bytes) -> list[MessageContent]:
        """Return the messages in a payload."""
        contents = []
        for frame in decode_payload(payload, self.codec.dictionaries).frames:
            assert isinstance(frame, MessageFrame) and isinstance(frame.content, MessageContent)
            contents.append(frame.content)
        return contents

    def select(self, contents: Sequence[MessageContent]) -> list[MessageContent]:
        """Return the messages that the next neighbour wants, by their skeletons if they have any."""
        wanted = [self._decide(content) for content in contents]
        undecided = [content for content, links in zip(contents, wanted, strict=True) if links is None]
        matched = iter(self.match(undecided) if undecided else ())
        return [
            content
            for content, links in zip(contents, wanted, strict=True)
            if (next(matched) if links is None else links)
        ]

    def _decide(self, content: MessageContent) -> int | None:
        if self.router is None or content.skeleton is None:
            return None
        dictionary = self.codec.dictionaries[content.skeleton.dictionary]
        return self.router.decide(TENANT, STREAM, content.skeleton, dictionary, is_local=True)

    def forward(self, payload: bytes) -> bytes:
        """Return the payload for the next broker."""
        encode, link = self.codec.encode, self._after
        return encode_contents([encode(link, content) for content in self.select(self.decode(payload))])


class _Chain:
    """Brokers of a chain that have exchanged the dictionary of the first, all with the same routes."""

    def __init__(
        self, samples: Sequence[bytes], queries: Sequence[str], format: BodyFormat, by_skeleton: bool
    ) -> None:
        self.brokers = {name: _Broker(name, format, by_skeleton, len(samples)) for name in _CHAIN}
        routes = [route for query in queries for route in routes_of(query, {}, TENANT)]
        for name in _CHAIN[:-1]:
            self.brokers[name].set_routes(routes)
        for sample in samples:
            self.brokers[_FIRST].codec.learn(MessageContent(TENANT, STREAM, "", None, sample))
        controls = [(_FIRST, *told) for told in self.brokers[_FIRST].codec.tick(0.0)]
        for _ in range(_MOST_EXCHANGES):
            controls = [
                (receiver, *answer)
                for sender, receiver, control in controls
                for answer in self.brokers[receiver].codec.receive(sender, control)
            ]

    def close(self) -> None:
        """End all brokers."""
        for broker in self.brokers.values():
            broker.codec.close()


class _DirectExecutor(Executor):
    """Trains dictionaries at once, so that a measurement begins with them."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **options))
        return future
