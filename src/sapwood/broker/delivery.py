"""What a broker returns: deliveries, or what a message is to all subscriptions before they are made."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from sapwood.engine.failures import Failure, QueryProblem
from sapwood.engine.matches import Matches
from sapwood.engine.message.message_reader import Message
from sapwood.join.results import Meeting, Meetings


class Delivery(NamedTuple):
    """What a subscription gets of a message.

    `message` is the id that the message was published with, or else its number, counted from 1. `body` is the
    message itself for a filter, and for a transformation what it makes of it: XML in UTF-8. A join gets what
    it makes of several messages as soon as the last of them is there, and `meeting` tells which, and which
    of their nodes.
    """

    subscription: Hashable
    message: Hashable
    body: bytes
    meeting: Meeting | None = None


class Deliveries(list[Delivery]):
    """What subscriptions get of a message."""

    def __init__(self, deliveries: Iterable[Delivery] = (), failures: Iterable[Failure] = ()) -> None:
        super().__init__(deliveries)
        self.failures = list(failures)
        """the subscriptions that have no answer, and why; there are hardly ever any"""

    def __reduce__(self) -> tuple[type[Deliveries], tuple[list[Delivery], list[Failure]]]:
        return type(self), (list(self), self.failures)


class Published(NamedTuple):
    """A message that a query publishes."""

    stream: str
    id: str
    """made of the stream and of the messages that met, so several may have the same"""
    query: int
    """the number of the query that publishes it"""
    message: Message
    time: float


def delivery_id(id: str, copy: int) -> str:
    """The id of one of several published messages that would have the same, counted from 1."""
    return id if copy == 1 else f"{id}#{copy}"


class PublishResult(NamedTuple):
    """What a message is to all subscriptions: the filters it matches, and what others make of it."""

    matches: Matches
    made: list[tuple[int, bytes]]
    """by the subscription's number, in any order"""
    joined: Meetings | None = None
    """what it meets in joins, if there are any"""
    problems: Sequence[tuple[int, QueryProblem]] = ()
    """the transformations that failed, by the subscription's number"""
