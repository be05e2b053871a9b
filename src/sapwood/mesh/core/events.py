"""What may happen to a node: the input of its state machine."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from sapwood.mesh.core.frames import Control, Epoch, Frame, Route
from sapwood.mesh.core.topology import Topology

Token = Hashable


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; `now` is in seconds, never less than before."""

    now: float


@dataclass(frozen=True, slots=True)
class Published:
    """A message was published at this broker."""

    token: Token
    """names the publisher that waits for a reply"""
    content: object


@dataclass(frozen=True, slots=True)
class Matched:
    """A message was matched: the answer to `Match`."""

    token: int
    links: frozenset[str]
    """the neighbours on whose side somebody may want it"""
    problem: str | None = None
    """why the message is refused"""


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything up to the `Store` of this number is durable."""

    number: int


@dataclass(frozen=True, slots=True)
class Received:
    """A frame has come from a neighbour."""

    link: str
    epoch: Epoch
    number: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Controlled:
    """A control has come from a neighbour."""

    link: str
    control: Control


@dataclass(frozen=True, slots=True)
class Accepted:
    """The transport has stored all frames of a link up to a number on the neighbour's site."""

    link: str
    epoch: Epoch
    number: int


@dataclass(frozen=True, slots=True)
class SendFailed:
    """The transport has given up all frames of a link that it has not accepted."""

    link: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Drained:
    """The transport holds no frame of a neighbour that it has not handed over."""

    link: str


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """The routes of local subscriptions have changed; each is in use once more, or once less.

    The first such event after a start has the routes of all subscriptions that stand, none if there are none:
    until then, neighbours send everything.
    """

    token: Token | None
    """names who waits until the change is confirmed, if anybody does"""
    added: tuple[Route, ...] = ()
    removed: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class BarrierSet:
    """Somebody wants to know when all messages published anywhere before have arrived."""

    token: Token


@dataclass(frozen=True, slots=True)
class Sampled:
    """There is another sample of messages, by which losses of generalised tables are measured."""

    messages: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """The tree of brokers is another one."""

    topology: Topology


SingleEvent = (
    Tick
    | Published
    | Matched
    | Stored
    | Received
    | Controlled
    | Accepted
    | SendFailed
    | Drained
    | RoutesChanged
    | BarrierSet
    | Sampled
    | TopologyChanged
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that happened in this order: the node looks only once what it can do then."""

    events: tuple[SingleEvent, ...]


Event = SingleEvent | Batch
