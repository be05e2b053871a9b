"""Measuring on machines that are never quiet.

Everything is measured in rounds, each a pass of raw parsing and right after it a pass of what is measured,
over the same messages. A slow moment of the machine then slows both, and the ratio of the two stays. The
median of the rounds' ratios is reported.

The clock is the processor time of this process. When another process wants the same core, wall time is no
measure: with one such neighbour, rounds of one workload spread from 12 to 32 by the wall clock and from 18 to
24 by this one; without, both said 20. Nothing measured here waits for anything, so nothing is left out.

Garbage is collected before measuring starts and as Python pleases while it runs, as for any user.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import get_clock_info, perf_counter, process_time
from xml.parsers import expat

from sapwood import Matcher

MOST_ROUNDS = 60

CLOCK = "process_time" if get_clock_info("process_time").resolution < 1e-5 else "perf_counter"
"""the clock in use: processor time, or wall time where (on Windows) that comes in steps too coarse"""
clock = process_time if CLOCK == "process_time" else perf_counter


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each round's pass over `messages` messages, and of the raw parsing beside it."""

    own: tuple[float, ...]
    raw: tuple[float, ...]
    messages: int

    @property
    def multiple(self) -> float:
        """The cost as a multiple of raw parsing: the median of the rounds."""
        return median(self._ratios())

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest multiple of any round."""
        ratios = self._ratios()
        return min(ratios), max(ratios)

    @property
    def microseconds(self) -> float:
        """The median time of one message."""
        return median(self.own) / self.messages * 1e6

    @property
    def milliseconds(self) -> float:
        """The median time of one message, as papers have it."""
        return self.microseconds / 1e3

    @property
    def raw_microseconds(self) -> float:
        """The median time of parsing one message."""
        return median(self.raw) / self.messages * 1e6

    def times(self, other: Timing) -> float:
        """How many times as long as another, timed side by side, it takes: the median of the rounds."""
        return median(mine / yours for mine, yours in zip(self.own, other.own, strict=True))

    def without(self, part: Timing) -> Timing:
        """What is left without a part of it that was timed side by side."""
        own = tuple(mine - yours for mine, yours in zip(self.own, part.own, strict=True))
        return Timing(own, self.raw, self.messages)

    def _ratios(self) -> list[float]:
        return [own / raw for own, raw in zip(self.own, self.raw, strict=True)]


def raw_pass(messages: Sequence[bytes]) -> float:
    """The seconds that expat takes to parse all messages and tell nobody."""
    start = clock()
    for message in messages:
        expat.ParserCreate().Parse(message, True)
    return clock() - start


def match_pass(matcher: Matcher, messages: Sequence[bytes]) -> float:
    """The seconds that matching all messages takes; the matches are counted, not listed."""
    match = matcher.match
    start = clock()
    for message in messages:
        len(match(message))
    return clock() - start


def count(matcher: Matcher, messages: Sequence[bytes]) -> float:
    """How many subscriptions a message matches on average."""
    return sum(len(matcher.match(message)) for message in messages) / len(messages)


def once(own_pass: Callable[[], float], messages: Sequence[bytes]) -> Timing:
    """Times what cannot be repeated.

    Raw parsing is measured just before and just after it, and its fastest pass taken: if the machine was
    disturbed, the multiple comes out too high rather than too low.
    """
    gc.collect()
    before = [raw_pass(messages) for _ in range(3)]
    own = own_pass()
    after = [raw_pass(messages) for _ in range(3)]
    return Timing((own,), (min(before + after),), len(messages))


def rounds(
    own_pass: Callable[[], float],
    messages: Sequence[bytes],
    *,
    least: int,
    seconds: float = 0.0,
    warm_up: int = 0,
) -> Timing:
    """Times a pass in `least` rounds or more, until the rounds have taken `seconds` in all.

    `own_pass` tells the seconds that its own work took. `warm_up` passes come first and do not count.
    """
    return side_by_side([own_pass], messages, least=least, seconds=seconds, warm_up=warm_up)[0]


def side_by_side(
    passes: Sequence[Callable[[], float]],
    messages: Sequence[bytes],
    *,
    least: int,
    seconds: float = 0.0,
    warm_up: int = 0,
) -> list[Timing]:
    """Times several passes by turns, all of them in every round: what is to be compared."""
    for _ in range(warm_up):
        for own_pass in passes:
            own_pass()
    gc.collect()
    raw: list[float] = []
    own: list[tuple[float, ...]] = []
    while len(own) < least or (sum(raw) + sum(map(sum, own)) < seconds and len(own) < MOST_ROUNDS):
        raw.append(raw_pass(messages))
        own.append(tuple(own_pass() for own_pass in passes))
    return [Timing(times, tuple(raw), len(messages)) for times in zip(*own, strict=True)]


def warm(
    matcher: Matcher, messages: Sequence[bytes], *, least: int, seconds: float = 0.0, warm_up: int = 2
) -> Timing:
    """Times matching when the messages have been seen before."""
    return rounds(
        lambda: match_pass(matcher, messages), messages, least=least, seconds=seconds, warm_up=warm_up
    )
