"""What the server and its engine tell each other about the mesh.

The server has the connection to NATS; the engine has the node, the routes and the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sapwood.mesh.core.frames import Epoch

# -- from the server to the engine -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PayloadArrived:
    """Frames of a neighbour, as bytes; the tag names them for the transport."""

    link: str
    payload: bytes
    tag: int


@dataclass(frozen=True, slots=True)
class ControlArrived:
    """A control of a neighbour, as bytes."""

    link: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class PayloadAccepted:
    """The neighbour's site has the frames of a link up to a number."""

    link: str
    epoch: Epoch
    number: int


@dataclass(frozen=True, slots=True)
class PayloadFailed:
    """Frames of a link could not be sent."""

    link: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class StreamDrained:
    """Nothing of a neighbour waits in the transport."""

    link: str


@dataclass(frozen=True, slots=True)
class TopologySeen:
    """The tree of brokers that the directory has, as JSON."""

    topology: bytes


MeshItem = PayloadArrived | ControlArrived | PayloadAccepted | PayloadFailed | StreamDrained | TopologySeen


@dataclass(slots=True)
class MeshInput:
    """What came over the mesh."""

    items: list[MeshItem]

    @property
    def size(self) -> int:
        """The bytes of all payloads."""
        return sum(len(item.payload) for item in self.items if isinstance(item, PayloadArrived))


@dataclass(slots=True)
class MeshStored:
    """A transaction is durable; from the thread that commits, to the node."""

    number: int


@dataclass(slots=True)
class MeshRequest:
    """Something to be done or told by the node; the result is that of the operation."""

    request: int
    operation: str
    """a method of MeshOperations"""
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class AdoptSubscription:
    """A subscription of another broker that goes on here; the result is a `Changed`, and how many deliveries
    it has got of messages that its former host has not handled."""

    request: int
    tenant: str
    id: str
    subscriber: str
    positions: dict[str, int]
    """by source, the last message that the former host has handled"""


# -- from the engine to the server -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PayloadOut:
    """Frames for a neighbour, up to a number."""

    link: str
    epoch: Epoch
    number: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ControlOut:
    """A control for a neighbour."""

    link: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class TagReleased:
    """What came from a neighbour up to a tag is stored, or is not needed."""

    link: str
    tag: int


@dataclass(frozen=True, slots=True)
class RoutesConfirmed:
    """All brokers have the routes of the subscriptions up to a version of the store."""

    version: int


@dataclass(frozen=True, slots=True)
class RequestDone:
    """A change that all brokers have, or a barrier that they have passed; by the number of the request."""

    request: int


MeshOutputItem = PayloadOut | ControlOut | TagReleased | RoutesConfirmed | RequestDone


@dataclass(slots=True)
class MeshOutput:
    """What is to be sent over the mesh, and who may go on."""

    items: list[MeshOutputItem]


@dataclass(slots=True)
class MeshStatus:
    """The state of the node, sent every second."""

    topology: bytes
    incarnation: int
    links: dict[str, dict[str, Any]]
    counters: dict[str, int]
    unsettled: int
    unconfirmed: int
    waiting: int
    routes: int
    local_routes: int
    floors: dict[str, int]
    positions: dict[str, int]
