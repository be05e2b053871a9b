"""What an engine is given, and what it makes of a message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.failures import Failure
from sapwood.mesh.core.actions import StoredMessage

if TYPE_CHECKING:  # which takes libraries that a service without a mesh does not need
    from sapwood.mesh.wire.message_content import Projection


@dataclass(slots=True)
class Publication:
    """A message on its way into the log."""

    tenant: str
    stream: str
    id: str
    body: bytes
    time: float | None = None
    """the event time, in seconds since the epoch, if the publisher gives one"""
    is_new: bool = False
    """whether no message can have this id, because it was made for this one"""
    projection: Projection | None = None
    """what was cut from the body on the way from another broker; None: nothing"""
    published_id: str | None = None
    """the id that it was published with, if another message has that id here"""


class QueryResult(Publication):
    """A message that a query has published."""

    @classmethod
    def of(cls, result: Publication) -> QueryResult:
        """Return a result as a message to be published."""
        return cls(result.tenant, result.stream, result.id, result.body, result.time, result.is_new)


class Output(NamedTuple):
    """What is delivered instead of the message."""

    message: str
    """the id of the message, or of one that a query published because of it"""
    body: bytes


_NOBODY = np.empty(0, np.int64)


@dataclass(slots=True)
class Evaluation:
    """The subscriptions that get a message, in the order subscribed, and what they get."""

    time: float | None
    """the event time that joins were given"""
    places: NDArray[np.int64] = field(default_factory=lambda: _NOBODY)
    """those of the subscriptions in the store"""
    inboxes: NDArray[np.int64] = field(default_factory=lambda: _NOBODY)
    outputs: NDArray[np.int64] | None = None
    """by entry, the index of what is delivered; none, if that is the message for all"""
    made: list[Output] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    late: str | None = None
    """why joins did not receive it"""
    links: int = 0
    """the links to other brokers that want the message, as bits"""
    slots: NDArray[np.int32] | None = None
    """what the message matches in the index, as long as no subscription or route has changed"""
    published: list[Publication] = field(default_factory=list)
    """messages that queries publish because of it, in order, which are still to be published: see
    `TenantEngine`"""
    mesh: StoredMessage | None = None
    """its place in the mesh, if there is one"""
    is_local: bool = True
    """whether subscriptions were evaluated: a message may only pass on its way to others"""
    is_deferred: bool = False
    """whether subscriptions are evaluated later, and only links were decided"""


class Deferred(NamedTuple):
    """A stored message that the subscriptions of its tenant have still to see."""

    seq: int
    version: int
    """of the store that it was stored with, and is evaluated with"""
    message: Publication
