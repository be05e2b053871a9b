"""Timing on machines that run other programs at the same time.

Measurements are taken in rounds. Each round is a pass of raw parsing, followed by a pass of every contender,
over the same messages: a slow minute of the machine slows them all. Other programs only ever add to a pass,
so the fastest pass of each is taken, and the ratio of two is that of their fastest passes.

The clock is the processor time of this thread. With another process on the same core, rounds of one workload
spread from 12 to 32 by wall time and from 18 to 24 by processor time; without it, both clocks showed 20. None
of the timed passes waits for anything, so processor time misses nothing. Measurements that use several
threads or processes use `wall_seconds`.

Garbage is collected before a measurement starts, and as Python schedules it during the measurement.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import get_clock_info, perf_counter, thread_time
from typing import TYPE_CHECKING
from xml.parsers import expat

from sapwood.bench.harness.benchmark_report import Chart, Detail, Role

if TYPE_CHECKING:
    from sapwood import Matcher, Matches

MAX_ROUNDS = 60

CLOCK = "thread_time" if get_clock_info("thread_time").resolution < 1e-5 else "perf_counter"
"""the clock in use: processor time, or wall time where (on Windows) processor time is too coarse"""
clock = thread_time if CLOCK == "thread_time" else perf_counter

Pass = Callable[[], float]
"""performs the measured work once and returns its seconds"""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each round's pass over `messages` messages, and of the raw parsing beside it."""

    own: tuple[float, ...]
    raw: tuple[float, ...]
    messages: int

    @property
    def multiple(self) -> float:
        """The cost as a multiple of raw parsing."""
        return self.best / min(self.raw)

    @property
    def best(self) -> float:
        """The seconds of the fastest pass."""
        return min(self.own)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest multiple of any round."""
        return min(self._ratios()), max(self._ratios())

    @property
    def microseconds(self) -> float:
        """The time of one message."""
        return self.best / self.messages * 1e6

    @property
    def milliseconds(self) -> float:
        """The time of one message in the unit of the papers."""
        return self.microseconds / 1e3

    def ratio_to(self, other: Timing) -> float:
        """Divide by another timing of the same rounds."""
        return self.best / other.best

    def subtract(self, part: Timing) -> Timing:
        """Return the timing without a part of it that was timed in the same rounds."""
        return Timing((self.best - part.best,), (min(self.raw),), self.messages)

    def details(self, **more: Detail) -> dict[str, Detail]:
        """Return the numbers that accompany the timing in a report."""
        return {
            "microseconds": self.microseconds,
            "raw_microseconds": min(self.raw) / self.messages * 1e6,
            "lowest": self.spread[0],
            "highest": self.spread[1],
            "rounds": len(self.own),
            **more,
        }

    def _ratios(self) -> list[float]:
        return [own / raw for own, raw in zip(self.own, self.raw, strict=True)]


def raw_pass(messages: Sequence[bytes]) -> float:
    """Return the seconds that expat takes to parse all messages without handlers."""
    start = clock()
    for message in messages:
        expat.ParserCreate().Parse(message, True)
    return clock() - start


def match_pass(matcher: Matcher, messages: Sequence[bytes], read: Callable[[Matches], object] = len) -> float:
    """Return the seconds of matching all messages; the matches are counted unless `read` lists them."""
    match = matcher.match
    start = clock()
    for message in messages:
        read(match(message))
    return clock() - start


def mean_matches(matcher: Matcher, messages: Sequence[bytes]) -> float:
    """Return how many subscriptions a message matches on average."""
    return sum(len(matcher.match(message)) for message in messages) / len(messages)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of some work by the clock of this module."""
    start = clock()
    work()
    return clock() - start


def wall_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of some work by wall time."""
    start = perf_counter()
    work()
    return perf_counter() - start


def time_once(own_pass: Pass, messages: Sequence[bytes]) -> Timing:
    """Time work that cannot be repeated.

    Raw parsing is timed just before and just after it, and its fastest pass taken: a disturbance of the
    machine makes the multiple too high rather than too low.
    """
    gc.collect()
    before = [raw_pass(messages) for _ in range(3)]
    own = own_pass()
    after = [raw_pass(messages) for _ in range(3)]
    return Timing((own,), (min(before + after),), len(messages))


def join_timings(timings: Sequence[Timing]) -> Timing:
    """Combine timings of the same work into one with all their rounds."""
    own = tuple(seconds for timing in timings for seconds in timing.own)
    raw = tuple(seconds for timing in timings for seconds in timing.raw)
    return Timing(own, raw, timings[0].messages)


def time_rounds(
    own_pass: Pass, messages: Sequence[bytes], *, least: int, seconds: float = 0.0, warm_up: int = 0
) -> Timing:
    """Time a pass in at least `least` rounds, and until the rounds have taken `seconds` in all.

    The first `warm_up` passes are not counted.
    """
    return time_interleaved([own_pass], messages, least=least, seconds=seconds, warm_up=warm_up)[0]


def time_interleaved(
    passes: Sequence[Pass],
    messages: Sequence[bytes],
    *,
    least: int,
    seconds: float = 0.0,
    warm_up: int = 0,
) -> list[Timing]:
    """Time several passes to be compared: every round runs all of them, one after the other.

    Every second round runs them in reverse order: the same pass showed up to 3 % more where it always came
    right after raw parsing.
    """
    for _ in range(warm_up):
        for own_pass in passes:
            own_pass()
    gc.collect()
    raw: list[float] = []
    own: list[tuple[float, ...]] = []
    while len(own) < least or (sum(raw) + sum(map(sum, own)) < seconds and len(own) < MAX_ROUNDS):
        raw.append(raw_pass(messages))
        order = range(len(passes)) if len(own) % 2 == 0 else reversed(range(len(passes)))
        seconds_of = {place: passes[place]() for place in order}
        own.append(tuple(seconds_of[place] for place in range(len(passes))))
    return [Timing(times, tuple(raw), len(messages)) for times in zip(*own, strict=True)]


def plot_interleaved(
    chart: Chart,
    x: float,
    contenders: Mapping[tuple[str, Role], Pass],
    messages: Sequence[bytes],
    *,
    least: int,
    warm_up: int = 0,
    **details: Detail,
) -> list[Timing]:
    """Time the passes of curves in the same rounds, and add the milliseconds of a message to each curve."""
    timings = time_interleaved(list(contenders.values()), messages, least=least, warm_up=warm_up)
    for (label, role), timing in zip(contenders, timings, strict=True):
        chart.curve(label, role).add(x, timing.milliseconds, **timing.details(**details))
    return timings
