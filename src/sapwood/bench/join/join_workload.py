"""The workloads of Hong et al. (SIGMOD 2007), and the contenders that join them.

The contenders evaluate all queries at once, without sharing values, and one query at a time. The timed event
is the arrival of the second of two messages with equal values: `Broker.answer`, from the bytes to the number
of results. Matching is included, for all contenders alike.

Publishing changes the state of a broker, so no pair of messages joins with another pair: each comes a
thousand seconds after the one before, where all windows are a minute, and has new values. No result is
cached, and the state does not grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from sapwood import Broker, Tuning
from sapwood.bench.harness import Role
from sapwood.bench.harness.timer import clock
from sapwood.broker.delivery import PublishResult
from sapwood.engine.message.message_reader import Message
from sapwood.join.results import Meetings
from sapwood.workload import JoinGenerator, JoinSchema, flat_schema, levels_schema

STREAM = "S"
WINDOW = 60
"""seconds: messages that are further apart do not join"""
_PAIR_INTERVAL = 1_000.0
_SECOND_DELAY = WINDOW / 2
_MAX_PAIRS = 200


@dataclass(frozen=True, slots=True)
class JoinWorkload:
    """Messages of a schema, and queries that join two of them."""

    schema: JoinSchema
    equalities: int
    skew: float
    """the Zipf exponent of the number of equalities"""

    def queries(self, count: int) -> list[str]:
        """Generate queries as many users would leave them: some are equal."""
        window = f"{WINDOW} s"
        return JoinGenerator(
            self.schema, seed=1, equalities=self.equalities, skew=self.skew, window=window
        ).take(count)


def flat(leaves: int = 6, skew: float = 0.8) -> JoinWorkload:
    """Return the workload with two levels, and up to as many equalities as leaves."""
    return JoinWorkload(flat_schema(leaves), leaves, skew)


def levels(equalities: int = 4, skew: float = 0.8) -> JoinWorkload:
    """Return the workload with three levels and sixteen leaves."""
    return JoinWorkload(levels_schema(), equalities, skew)


@dataclass(frozen=True, slots=True)
class JoinMethod:
    """A way to evaluate joins: the tuning that switches an optimisation off."""

    label: str
    role: Role
    tuning: Tuning


SHARED = JoinMethod("all queries at once", Role.SAPWOOD, Tuning())
UNSHARED_VALUES = JoinMethod("without sharing values", Role.TWIN, Tuning(share_values=False))
ONE_BY_ONE = JoinMethod("one query at a time", Role.BASELINE, Tuning(share_joins=False))
METHODS = (SHARED, UNSHARED_VALUES, ONE_BY_ONE)


def get_joined(answer: PublishResult) -> Meetings:
    """Return the join results of a message."""
    assert answer.joined is not None
    return answer.joined


class PairResults(NamedTuple):
    """The number of queries that a pair of messages satisfies."""

    distinct: int
    """equal queries count once where all queries are joined at once, and each elsewhere"""
    deliveries: int


class PairJoiner:
    """A broker with queries, and the pairs of messages that are published to it."""

    def __init__(self, method: JoinMethod, schema: JoinSchema, queries: Sequence[str]) -> None:
        self.method = method
        self.broker = Broker(tuning=method.tuning)
        self.broker.subscribe_many(enumerate(queries))
        self._schema = schema
        self._numbers = count()
        self._pairs = 1

    def warm_up(self, seconds: float) -> None:
        """Fill all caches, and choose the number of pairs so that a pass takes about `seconds`."""
        self._pairs = 1
        self.joining_pass()
        spent = min(self.joining_pass() for _ in range(2))
        self._pairs = max(1, min(_MAX_PAIRS, int(seconds / max(spent, 1e-9))))

    def joining_pass(self) -> float:
        """Return the mean seconds of the second messages of pairs."""
        answer, seconds = self.broker.answer, 0.0
        for _ in range(self._pairs):
            body, time = self._next_message()
            len(get_joined(answer(body, stream=STREAM, time=time)))
            start = clock()
            len(get_joined(answer(body, stream=STREAM, time=time + _SECOND_DELAY)))
            seconds += clock() - start
        return seconds / self._pairs

    def matching_pass(self) -> float:
        """Return the mean seconds of parsing and matching a message, which all methods share."""
        find, seconds = self.broker.filters.index.find, 0.0
        for _ in range(self._pairs):
            body = self._schema.message(next(self._numbers))
            start = clock()
            find(Message(body))
            seconds += clock() - start
        return seconds / self._pairs

    def results(self) -> PairResults:
        """Return how many queries the two messages of a pair satisfy."""
        body, time = self._next_message()
        self.broker.answer(body, stream=STREAM, time=time)
        found = get_joined(self.broker.answer(body, stream=STREAM, time=time + _SECOND_DELAY))
        return PairResults(len(found), found.deliveries)

    @property
    def message(self) -> bytes:
        """A message like all others."""
        return self._schema.message()

    @property
    def templates(self) -> int:
        return len(self.broker.state().templates)

    def _next_message(self) -> tuple[bytes, float]:
        """Return the message of a pair, both of which are equal, and the time of the first."""
        number = next(self._numbers)
        return self._schema.message(number), (number + 1) * _PAIR_INTERVAL
