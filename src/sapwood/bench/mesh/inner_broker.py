"""The CPU of a message at the first broker of a chain, and at inner ones, beside transport and log."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from sapwood.bench.harness import Bench, BenchError, ChartAxis, Role, at_most, experiment, run_isolated, scale
from sapwood.bench.harness.timer import Pass, cpu_seconds, time_interleaved
from sapwood.bench.mesh.format_workload import (
    DEFAULT,
    STREAM,
    TENANT,
    FormatWorkload,
    split_published,
)
from sapwood.engine.limits import Limits
from sapwood.mesh.core.actions import SetRoutes
from sapwood.mesh.core.frames import Epoch, Frame, MessageFrame, MessageKey, TableFrame
from sapwood.mesh.core.tables.route_table import RouteTable
from sapwood.mesh.routing.route import Route, routes_of
from sapwood.mesh.wire.bodies.body_format import BodyFormat
from sapwood.mesh.wire.frame_codec import decode_payload, encode_payload
from sapwood.mesh.wire.link_codec import LinkCodec
from sapwood.mesh.wire.message_content import Hits, MessageContent
from sapwood.mesh.wire.skeletons.skeleton_router import SkeletonRouter
from sapwood.serve.mesh.node.link_routes import LinkRoutes
from sapwood.serve.mesh.node.message_hits import MessageHits
from sapwood.serve.tenants.evaluation import Evaluation, Publication
from sapwood.serve.tenants.tenant_engine import TenantEngine

if TYPE_CHECKING:
    from sapwood.serve.tenants.tenant_engines import TenantEngines

_FIRST, _INNER, _NEXT, _BEYOND = "first", "inner", "next", "beyond"
_CHAIN = (_FIRST, _INNER, _NEXT, _BEYOND)
_EPOCH = Epoch(1, 1)
_MOST_EXCHANGES = 20
_MATCHING, _SKELETON, _HITS = "", " and skeleton", " and hits"
"""how inner brokers decide whom a message is for"""
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
    """Measure payloads that come, are decided on by hits, by skeletons or by matching, and go on."""
    workload = split_published(bench, samples, messages)
    title = "CPU of a message at brokers, beside transport and log"
    chart = bench.chart("inner", title, "routes", ChartAxis("µs a message", ""), log_x=True)
    for count in routes:
        queries = bench.dataset.queries("distinct", count)
        found: dict[str, HopRun] = {}
        for format, routing in (
            (DEFAULT, _HITS),
            (DEFAULT, _SKELETON),
            (DEFAULT, _MATCHING),
            (BodyFormat.TEXT, _MATCHING),
        ):
            name = f"{format.label}{routing}"
            yield f"{len(queries):,} routes, {name}"
            run = yield from run_isolated(run_hops, workload, queries, batch, format, routing, rounds)
            found[name] = run
            for part in ("first broker", "inner broker"):
                is_baseline = format is not DEFAULT
                role = Role.BASELINE if is_baseline else Role.SAPWOOD if routing == _HITS else Role.OTHER
                chart.curve(f"{part}, {name}", role).add(len(queries), run.parts[part], load_average=run.load)
        size = f"{len(queries):,} routes, payloads of {batch}"
        listing = bench.listing(f"inner-{count}", f"{title}, µs: {size}", tuple(found), bench.dataset.label)
        for part in next(iter(found.values())).parts:
            listing.add(part, *(run.parts[part] for run in found.values()))
        listing.add("size, share of text", *(run.share for run in found.values()))
        _report(bench, found, len(queries))


def _report(bench: Bench, found: dict[str, HopRun], routes: int) -> None:
    """Report the promises, about what links do by themselves, which is to carry hits; on inner brokers also
    about those that route by skeletons."""
    by_hits, by_skeleton, by_matching, _ = found
    for name, run in found.items():
        is_default, is_inner = name == by_hits, name in (by_hits, by_skeleton)
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
    for name in (by_hits, by_skeleton):
        label = f"{name}, {routes:,} routes"
        bench.ratio(
            "inner broker against matching",
            label,
            at_most(0.5, False),
            "times",
            inner=found[name].parts["inner broker"],
            matching=found[by_matching].parts["inner broker"],
        )


def run_hops(
    workload: FormatWorkload,
    queries: Sequence[str],
    batch: int,
    format: BodyFormat,
    routing: str,
    rounds: int,
) -> Iterator[str | HopRun]:
    """Time the whole work of brokers, and its parts, in the same rounds."""
    chain = _Chain(workload.samples, queries, format, routing)
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
    _check(inner, received, routing)
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


def _check(inner: _Broker, received: Sequence[list[MessageContent]], routing: str) -> None:
    """Check that messages came with skeletons and hits where they should, and are forwarded as they came."""
    for contents in received:
        matched = zip(contents, inner.match(contents), strict=True)
        wanted = [content.id for content, is_wanted in matched if is_wanted]
        if [content.id for content in inner.select(contents)] != wanted:
            raise BenchError("a message is routed to other links than it matches")
        for content in contents:
            if (content.skeleton is not None) != (routing == _SKELETON):
                raise BenchError("a message has no skeleton, or one that nobody wants")
            if (content.hits is not None) != (routing == _HITS):
                raise BenchError("a message has no hits, or some that nobody wants")
            if routing != _MATCHING and inner.decide(content) is None:
                raise BenchError("a message has to be read to be routed")
            if inner.codec.encode(_NEXT, content) is not content:
                raise BenchError("a message is not forwarded as it came")


def encode_contents(contents: Sequence[MessageContent]) -> bytes:
    """Return messages as a payload."""
    frames: list[Frame] = [
        MessageFrame(MessageKey(_FIRST, number), content) for number, content in enumerate(contents)
    ]
    return encode_payload(_EPOCH, 1, frames)


class _Engines:
    """The engine of the only tenant, for what asks by tenant."""

    def __init__(self) -> None:
        self.engine = TenantEngine(Limits())

    def of(self, tenant: str) -> TenantEngine:
        """Return the engine."""
        return self.engine


class _Broker:
    """What a broker does with messages, beside transport and log; it has no subscriptions of its own."""

    def __init__(self, name: str, format: BodyFormat, routing: str, samples: int) -> None:
        place = _CHAIN.index(name)
        self._before = _CHAIN[place - 1] if place else None
        self._after = _CHAIN[place + 1] if place + 1 < len(_CHAIN) else ""
        self.router = SkeletonRouter() if routing == _SKELETON else None
        self.codec = LinkCodec(
            format, self.router, Limits(), samples, _DirectExecutor(), always_skeletons=True
        )
        neighbours = [each for each in (self._before, self._after) if each]
        inner = [each for each in neighbours if each not in (_FIRST, _BEYOND)]
        self.codec.set_neighbours(neighbours, inner)
        self.table = RouteTable()
        self.table.change_local((), ())
        for each in neighbours:
            self.table.add_link(each)
        engines = _Engines()
        self._engine = engines.engine
        self._routes = LinkRoutes(cast("TenantEngines", engines), None, self.router)
        mode = "auto" if routing == _HITS else "never"
        self._hits = MessageHits(self.table, self._routes, cast("TenantEngines", engines), Counter(), mode)
        self._hits.set_inner(inner)

    def set_routes(self, routes: Sequence[Route]) -> None:
        """Set what the next neighbour wants, and tell the one before."""
        change = self.table.receive(self._after, TableFrame(1, tuple(routes), begins=True))
        self._routes.change(SetRoutes(self._after, tuple(change.added)))
        if self._before is not None:
            self.table.receive(self._before, TableFrame(1, begins=True))
            self.table.take_all(self._before)
        while self.router is not None and not self.router.take_over():
            pass

    def publish(self, contents: Sequence[MessageContent]) -> bytes:
        """Match messages that are published here, and return the payload for the next broker."""
        return self._encode(self._match(contents))

    def _encode(self, contents: Iterable[MessageContent | None]) -> bytes:
        encode, link = self.codec.encode, self._after
        return encode_contents([encode(link, content) for content in contents if content is not None])

    def match(self, contents: Sequence[MessageContent]) -> list[bool]:
        """Return which messages the next neighbour wants, by parsing and matching them together."""
        return [content is not None for content in self._match(contents)]

    def _match(self, contents: Sequence[MessageContent]) -> Iterator[MessageContent | None]:
        """Yield each message as it goes on, or None."""
        publications = [Publication(TENANT, STREAM, content.id, content.body) for content in contents]
        evaluations = self._engine.evaluate(publications)
        for content, publication, evaluation in zip(contents, publications, evaluations, strict=True):
            assert isinstance(evaluation, Evaluation)
            yield self._send_on(content, publication, evaluation, None) if evaluation.links else None

    def _send_on(
        self, content: MessageContent, message: Publication, evaluation: Evaluation, used: Hits | None
    ) -> MessageContent:
        found = self._hits.find(message, evaluation, self._before, used).get(self._after)
        return content if found is None and content.hits is None else content._replace(hits=found)

    def decode(self, payload: bytes) -> list[MessageContent]:
        """Return the messages in a payload."""
        contents = []
        for frame in decode_payload(payload, self.codec.dictionaries).frames:
            assert isinstance(frame, MessageFrame) and isinstance(frame.content, MessageContent)
            contents.append(frame.content)
        return contents

    def select(self, contents: Sequence[MessageContent]) -> list[MessageContent]:
        """Return the messages that the next neighbour wants, as they go on."""
        decided = [self.decide(content) for content in contents]
        undecided = [content for content, links in zip(contents, decided, strict=True) if links is None]
        matched = iter(self._match(undecided) if undecided else ())
        selected: list[MessageContent] = []
        for content, links in zip(contents, decided, strict=True):
            if links is None:
                found = next(matched)
                if found is not None:
                    selected.append(found)
            elif links:
                message = Publication(TENANT, STREAM, content.id, content.body)
                evaluation = Evaluation(None, links=links)
                selected.append(self._send_on(content, message, evaluation, content.hits))
        return selected

    def decide(self, content: MessageContent) -> int | None:
        """Return the links that want a message, if that is known without reading it."""
        if content.hits is not None:
            return self._hits.decide(content, self._before, is_local=True)
        if self.router is None or content.skeleton is None:
            return None
        dictionary = self.codec.dictionaries[content.skeleton.dictionary]
        return self.router.decide(TENANT, STREAM, content.skeleton, dictionary, is_local=True)

    def forward(self, payload: bytes) -> bytes:
        """Return the payload for the next broker."""
        return self._encode(self.select(self.decode(payload)))


class _Chain:
    """Brokers of a chain that have exchanged the dictionary of the first, all with the same routes."""

    def __init__(
        self, samples: Sequence[bytes], queries: Sequence[str], format: BodyFormat, routing: str
    ) -> None:
        self.brokers = {name: _Broker(name, format, routing, len(samples)) for name in _CHAIN}
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
