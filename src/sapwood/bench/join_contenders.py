"""The ways to join that are compared: all queries at once, without sharing values, and one query at a time.

What is timed is the arrival of the second of two messages with equal values: `Broker.answer`, from the bytes
to the number of results. Matching is part of it, for all ways alike.

Publishing changes what is remembered, so no pair of messages meets another: each comes a thousand seconds
after the one before, where all windows are a minute, and has values that were never seen. Nothing is thus
found because it was found before, and what is remembered does not grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from sapwood import Broker, Tuning
from sapwood.bench.join_setting import WINDOW
from sapwood.bench.report import Role
from sapwood.bench.timing import clock
from sapwood.broker.delivery import PublishResult
from sapwood.engine.message.message_reader import Message
from sapwood.join.results import Meetings
from sapwood.workload import JoinSchema

STREAM = "S"
_APART = 1_000.0  # seconds from pair to pair
_SOON = WINDOW / 2  # from the first message of a pair to the second
_MOST_PAIRS = 200


@dataclass(frozen=True, slots=True)
class Way:
    """A way to join, told by what is switched off."""

    label: str
    role: Role
    tuning: Tuning


SHARED = Way("all queries at once", Role.SAPWOOD, Tuning())
APART = Way("without sharing values", Role.TWIN, Tuning(share_values=False))
ALONE = Way("one query at a time", Role.BASELINE, Tuning(share_joins=False))
WAYS = (SHARED, APART, ALONE)


def joined(answer: PublishResult) -> Meetings:
    """What a message meets, where there are joins."""
    assert answer.joined is not None
    return answer.joined


class Results(NamedTuple):
    """What a pair of messages meets for."""

    distinct: int
    """queries; equal ones count once where all queries are joined at once, else each of them does"""
    deliveries: int


class Contender:
    """A broker that joins in one of the ways, and the pairs of messages that come to it."""

    def __init__(self, way: Way, schema: JoinSchema, queries: Sequence[str]) -> None:
        self.way = way
        self.broker = Broker(tuning=way.tuning)
        self.broker.subscribe_many(enumerate(queries))
        self._schema = schema
        self._numbers = count()
        self._pairs = 1

    def settle(self, seconds: float) -> None:
        """Makes everything warm, and a pass about so long."""
        self._pairs = 1
        self.joining_pass()
        spent = min(self.joining_pass() for _ in range(2))
        self._pairs = max(1, min(_MOST_PAIRS, int(seconds / max(spent, 1e-9))))

    def joining_pass(self) -> float:
        """The mean seconds that the second messages of pairs take."""
        answer, seconds = self.broker.answer, 0.0
        for _ in range(self._pairs):
            body, time = self._first()
            len(joined(answer(body, stream=STREAM, time=time)))
            start = clock()
            len(joined(answer(body, stream=STREAM, time=time + _SOON)))
            seconds += clock() - start
        return seconds / self._pairs

    def matching_pass(self) -> float:
        """The mean seconds of what is the same for all ways: to read a message, and find what it matches."""
        find, seconds = self.broker.filters.index.find, 0.0
        for _ in range(self._pairs):
            body = self._schema.message(next(self._numbers))
            start = clock()
            find(Message(body))
            seconds += clock() - start
        return seconds / self._pairs

    def results(self) -> Results:
        """How many queries the two messages of a pair meet for."""
        first, time = self._first()
        self.broker.answer(first, stream=STREAM, time=time)
        found = joined(self.broker.answer(first, stream=STREAM, time=time + _SOON))
        return Results(len(found), found.deliveries)

    @property
    def message(self) -> bytes:
        """One like all that come."""
        return self._schema.message()

    @property
    def templates(self) -> int:
        return len(self.broker.state().templates)

    def _first(self) -> tuple[bytes, float]:
        """The first message of a pair, whose second has the same values, and its time."""
        number = next(self._numbers)
        return self._schema.message(number), (number + 1) * _APART
