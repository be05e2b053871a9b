"""Projection on links: what nobody beyond a link reads is cut from the messages that go there.

    routes beyond the link, of the message's tenant and stream
        one that reads the whole message     nothing is cut
        others                               all but what any of them reads is cut

A plan grows at once when a route comes, and shrinks a while after one has gone. As long as it is not known
what is wanted beyond a link, nothing is cut.

Whether cutting pays is measured for each stream of a link: the bytes that are saved, as they would go over
the wire, against the CPU. Below a fifth of the bytes it does not. What bindings select is evaluated only if
that pays by itself, beside what is cut without them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sapwood.engine.limits import Limits
from sapwood.mesh.projection.pruning_plan import PruningPlan, make_plan, prune
from sapwood.mesh.routing.read_paths import ReadPaths, covers, unite_reads, without_bindings

if TYPE_CHECKING:
    from sapwood.mesh.routing.route import Route

AUTO, ALWAYS, NEVER = "auto", "always", "never"
LEAST_SAVED = 0.2
"""of the bytes of messages, from which on cutting may pay"""
_TRIED = 8
"""messages that are cut before it is decided whether that pays"""
_PROBE = 100
"""messages that are sent whole before one is cut, where it does not pay"""
_SMOOTHING = 0.1
_SHRINK = 1.0
"""seconds after which a plan is made anew without the routes that have gone"""

Clock = Callable[[], float]
StreamReads = tuple[str | None, ReadPaths | None]


class ProjectionReport(NamedTuple):
    """What is cut from the messages of a stream on a link, and why."""

    tenant: str
    stream: str
    is_cut: bool
    reason: str
    """why it is cut, or why not"""
    reads: list[str]
    """the paths that are kept"""
    saved: float | None
    """the share of the bytes that was cut, where that was tried"""
    seconds: float | None
    """to cut a message"""


@dataclass(slots=True)
class ReadUnion:
    """What is read of the messages of one stream."""

    reads: ReadPaths | None
    """None: the whole message"""
    made: float
    is_stale: bool = False
    """whether routes have gone since"""


class ReadUnions:
    """What some routes, all of one tenant, read of the messages of each stream."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[StreamReads] = Counter()
        self._unions: dict[str, ReadUnion] = {}

    def change(self, added: Iterable[Route], removed: Iterable[Route]) -> None:
        """Add and remove routes, each as often as it is given."""
        new: dict[StreamReads, None] = {}
        for route in added:
            entry = route.stream, route.reads
            if not self._counts[entry]:
                new[entry] = None
            self._counts[entry] += 1
        gone = False
        for route in removed:
            entry = route.stream, route.reads
            self._counts[entry] -= 1
            if not self._counts[entry]:
                del self._counts[entry]
                gone = True
        for stream, union in self._unions.items():
            union.is_stale = union.is_stale or gone
            wanted = [reads for of, reads in new if of in (None, stream)]
            if not all(covers(union.reads, reads) for reads in wanted):
                union.reads = unite_reads([union.reads, *wanted])

    def find(self, stream: str) -> ReadPaths | None:
        """Return what is read of a stream's messages; None: all."""
        union = self._unions.get(stream)
        now = self._clock()
        if union is None or (union.is_stale and now - union.made >= _SHRINK):
            union = self._unions[stream] = ReadUnion(self._unite(stream), now)
        return union.reads

    def list_streams(self) -> list[str]:
        """Return the streams of which it was asked what is read."""
        return sorted(self._unions)

    def _unite(self, stream: str) -> ReadPaths | None:
        return unite_reads(reads for of, reads in self._counts if of in (None, stream))


@dataclass(slots=True)
class _Saving:
    """What a way of cutting saves of the messages of a stream, on average."""

    tried: int = 0
    before: float = 0.0
    cut: float = 0.0
    """bytes of a message, and of what was cut"""
    seconds: float = 0.0
    """that it takes"""

    def add(self, before: int, cut: int, seconds: float) -> None:
        weight = max(_SMOOTHING, 1.0 / (self.tried + 1))
        self.tried += 1
        self.before += weight * (before - self.before)
        self.cut += weight * (cut - self.cut)
        self.seconds += weight * (seconds - self.seconds)

    @property
    def share(self) -> float:
        """The share of the bytes that is cut."""
        return self.cut / self.before if self.before else 0.0

    def find_loss(self, seconds_per_byte: float | None) -> str | None:
        """Return why it does not pay; None: it does, or that is not known yet."""
        if self.tried < _TRIED:
            return None
        if self.share < LEAST_SAVED:
            return f"only {self.share:.0%} of the bytes would be cut"
        if seconds_per_byte is not None and self.cut * seconds_per_byte < self.seconds:
            gained = self.cut * seconds_per_byte
            return f"it takes {self.seconds * 1e6:.0f} µs to save {gained * 1e6:.0f} µs on the link"
        return None


@dataclass(slots=True)
class _Measure:
    """What cutting the messages of a stream saves on a link."""

    done: _Saving = field(default_factory=_Saving)
    """in the ways that were chosen"""
    pruned: _Saving = field(default_factory=_Saving)
    """without bindings"""
    selected: _Saving = field(default_factory=_Saving)
    """by bindings, in addition"""
    passed: int = 0
    """messages since one was cut in all ways"""
    is_trial: bool = True
    """whether the next message is cut in all ways, to compare them"""

    def begin(self, has_bindings: bool) -> None:
        """Note that there is another message."""
        self.passed += 1
        tried = self.selected.tried if has_bindings else self.pruned.tried
        self.is_trial = tried < _TRIED or self.passed >= _PROBE
        if self.is_trial:
            self.passed = 0

    def choose(self, plan: PruningPlan, seconds_per_byte: float | None) -> tuple[PruningPlan, str | None]:
        """Return the plan of those that a plan allows that saves the most, and why not even that pays."""
        pruned, selected = self.pruned, self.selected
        if plan.bindings is None:
            return plan, pruned.find_loss(seconds_per_byte)
        if selected.find_loss(seconds_per_byte) is None:
            cut, seconds = pruned.cut + selected.cut, pruned.seconds + selected.seconds
            both = _Saving(selected.tried, pruned.before, cut, seconds)
            return plan, both.find_loss(seconds_per_byte)
        return make_plan(without_bindings(plan.reads)), pruned.find_loss(seconds_per_byte)


@dataclass(slots=True)
class _Link:
    """What is known of a link."""

    unions: dict[str, ReadUnions] = field(default_factory=dict)
    """by tenant"""
    measures: dict[tuple[str, str], _Measure] = field(default_factory=dict)
    """by tenant and stream"""


class LinkProjection:
    """Decides what is cut from the messages of each link, and cuts it."""

    def __init__(
        self,
        mode: str,
        limits: Limits,
        is_known: Callable[[str], bool],
        seconds_per_byte: Callable[[str], float | None] = lambda link: None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`is_known` says whether all that is wanted beyond a link is known, and `seconds_per_byte` how long
        a link takes for a byte of text, if that is."""
        self._mode = mode
        self._is_known = is_known
        self._limits = limits
        self._seconds_per_byte = seconds_per_byte
        self._clock = clock
        self._links: dict[str, _Link] = {}

    def change(self, link: str, added: Iterable[Route], removed: Iterable[Route]) -> None:
        """Change what is wanted beyond a link."""
        if self._mode == NEVER:
            return
        changes: dict[str, tuple[list[Route], list[Route]]] = {}
        for route in added:
            changes.setdefault(route.tenant, ([], []))[0].append(route)
        for route in removed:
            changes.setdefault(route.tenant, ([], []))[1].append(route)
        unions = self._links.setdefault(link, _Link()).unions
        for tenant, (new, old) in changes.items():
            unions.setdefault(tenant, ReadUnions(self._clock)).change(new, old)

    def keep_only(self, links: Iterable[str]) -> None:
        """Forget the links that are none any more."""
        kept = set(links)
        self._links = {name: link for name, link in self._links.items() if name in kept}

    def find_plan(self, link: str, tenant: str, stream: str) -> PruningPlan | None:
        """Return the plan of all that is read beyond a link; None: whole messages, or it is not known."""
        known = self._links.get(link)
        if self._mode == NEVER or known is None or tenant not in known.unions or not self._is_known(link):
            return None
        reads = known.unions[tenant].find(stream)
        return make_plan(reads) if reads else None

    def choose_plan(
        self, link: str, tenant: str, stream: str, before: PruningPlan | None = None
    ) -> PruningPlan | None:
        """Return the plan by which the next message of a stream is cut, if it was cut by another one before;
        None: it goes over the link as it is."""
        plan = self.find_plan(link, tenant, stream)
        if plan is None:
            return None
        if self._mode == AUTO:
            measure = self._measure(link, tenant, stream)
            measure.begin(plan.bindings is not None)
            if not measure.is_trial:
                plan, loss = measure.choose(plan, self._seconds_per_byte(link))
                if loss is not None:
                    return None
        if before is not None and (before.reads == plan.reads or not covers(before.reads, plan.reads)):
            return None
        return plan

    def cut(self, link: str, tenant: str, stream: str, body: bytes, plan: PruningPlan) -> bytes:
        """Return what a plan leaves of a message, and measure what that saves on a link."""
        measure = self._measure(link, tenant, stream)
        kept, seconds = self._prune(body, plan)
        measure.done.add(len(body), len(body) - len(kept), seconds)
        if plan.bindings is None:
            measure.pruned.add(len(body), len(body) - len(kept), seconds)
        elif self._mode == AUTO and measure.is_trial:
            pruned, alone = self._prune(body, make_plan(without_bindings(plan.reads)))
            measure.pruned.add(len(body), len(body) - len(pruned), alone)
            measure.selected.add(len(body), len(pruned) - len(kept), max(0.0, seconds - alone))
        return kept

    def _prune(self, body: bytes, plan: PruningPlan) -> tuple[bytes, float]:
        """Return what a plan leaves of a message, and the seconds that it took."""
        began = time.perf_counter()
        kept = prune(body, plan, self._limits)
        return kept, time.perf_counter() - began

    def _measure(self, link: str, tenant: str, stream: str) -> _Measure:
        measures = self._links[link].measures
        found = measures.get((tenant, stream))
        if found is None:
            found = measures[tenant, stream] = _Measure()
        return found

    def explain(self, link: str, tenant: str, stream: str) -> ProjectionReport:
        """Return what is cut from the messages of a stream on a link, and why or why not."""
        known = self._links.get(link)
        measure = known.measures.get((tenant, stream)) if known is not None else None
        plan = self.find_plan(link, tenant, stream)
        if self._mode == NEVER:
            reason: str | None = "mesh.project is never"
        elif not self._is_known(link):
            reason = "it is not known yet what is wanted beyond"
        elif plan is None:
            is_whole = (
                known is not None and tenant in known.unions and known.unions[tenant].find(stream) is None
            )
            reason = "somebody beyond reads whole messages" if is_whole else "nobody beyond wants any"
        else:
            reason = None
            if self._mode == AUTO and measure is not None:
                plan, reason = measure.choose(plan, self._seconds_per_byte(link))
        done = measure.done if measure is not None and measure.done.tried else None
        return ProjectionReport(
            tenant,
            stream,
            reason is None,
            reason or "nobody beyond reads the rest",
            [] if plan is None else [str(path) for path in plan.paths],
            None if done is None else done.share,
            None if done is None else done.seconds,
        )

    def list_streams(self, link: str, tenant: str) -> list[str]:
        """Return the streams of a tenant of which messages were sent over a link."""
        known = self._links.get(link)
        return known.unions[tenant].list_streams() if known is not None and tenant in known.unions else []
