"""The results of publishing a message: deliveries, and the evaluation that they are built from."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from sapwood.engine.automaton.protocol import MatchedSlots
from sapwood.engine.failures import Failure, QueryProblem
from sapwood.engine.matches import Matches
from sapwood.engine.message.message_reader import Message
from sapwood.join.results import Meeting, Meetings


class Delivery(NamedTuple):
    """A message or query output for one subscription.

    `message` is the id that the message was published with, or else its number, counted from 1. `body` is the
    message itself for a filter, and the output of a transformation or a join, XML in UTF-8. A join delivers
    when the last of its messages is published; `meeting` is then the join result: the messages, and the nodes
    that its variables are bound to.
    """

    subscription: Hashable
    message: Hashable
    body: bytes
    meeting: Meeting | None = None


class GroupedDelivery(NamedTuple):
    """A join result, what it is delivered as, and the subscriptions to the query."""

    meeting: Meeting
    body: bytes
    subscriptions: list[Hashable]


class Deliveries(list[Delivery]):
    """The deliveries of a published message, with the failures of queries and callbacks."""

    def __init__(self, deliveries: Iterable[Delivery] = (), failures: Iterable[Failure] = ()) -> None:
        super().__init__(deliveries)
        self.failures = list(failures)
        """the subscriptions whose query could not be evaluated or whose callback failed, with the reason;
        rarely any"""

    def __reduce__(self) -> tuple[type[Deliveries], tuple[list[Delivery], list[Failure]]]:
        return type(self), (list(self), self.failures)


class Published(NamedTuple):
    """A message that a query publishes."""

    stream: str
    id: str
    """made of the stream and the joined messages, so several may have the same"""
    query: int
    """the number of the query that publishes it"""
    message: Message
    time: float


def delivery_id(id: str, copy: int) -> str:
    """Return the id of one of several published messages with the same base id, counted from 1."""
    return id if copy == 1 else f"{id}#{copy}"


class PublishResult(NamedTuple):
    """The evaluation of a message: filters that match, output of transformations, and join results."""

    matches: Matches
    made: list[tuple[int, bytes]]
    """the output of transformations by the subscription's number, in no order"""
    joined: Meetings | None = None
    """the join results, if there are joins"""
    problems: Sequence[tuple[int, QueryProblem]] = ()
    """the transformations that failed, by the subscription's number"""
    slots: MatchedSlots | None = None
    """the slots of all owners that the message matches in the index; to be read before the queries change"""


class EvaluatedMessage(NamedTuple):
    """The deliveries of a message, and what else follows from it."""

    deliveries: Deliveries
    published: list[Published]
    """messages that queries publish because of it and that are not evaluated, each with an id of its own"""
    slots: MatchedSlots
    """see `PublishResult`"""
    late: str | None
    """why joins did not receive the message"""
