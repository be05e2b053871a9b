"""What the server and its engine send each other: pickled objects, each after its length."""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

from sapwood.serve.log.log_batch import Gap, InboxRow
from sapwood.serve.mesh.mesh_frames import (
    AdoptSubscription,
    MeshInput,
    MeshOutput,
    MeshRequest,
    MeshStatus,
    MeshStored,
)
from sapwood.serve.tenants.evaluation import Publication

LENGTH = struct.Struct("!Q")


# -- from the server to the engine -------------------------------------------------------------------------


@dataclass(slots=True)
class Publish:
    """Messages to evaluate and store; the result is a list with a Receipt or a problem for each."""

    request: int
    messages: list[Publication]
    wait: bool = False
    """whether the publisher waits for the deliveries"""


@dataclass(slots=True)
class Acknowledge:
    """Deliveries of an inbox up to a number were received; the result is the number acknowledged."""

    request: int
    inbox: int
    upto: int


@dataclass(slots=True)
class AddDeadLetter:
    """A delivery that a webhook's target refuses for good; it is acknowledged with that."""

    request: int
    inbox: int
    number: int
    record: str
    attempts: int
    reason: str


@dataclass(slots=True)
class DeleteDeadLetters:
    """Dead letters that were replayed, or are not wanted."""

    request: int
    numbers: list[int]


@dataclass(slots=True)
class ConfigureInbox:
    """The settings of a subscriber's inbox, which is created if it is absent; the result is its number."""

    request: int
    tenant: str
    subscriber: str
    settings: str | None
    """JSON; None: as they are"""
    resume: bool = False
    """whether a suspended inbox gets deliveries again"""


@dataclass(slots=True)
class DeleteInbox:
    """An inbox to delete with all that is in it; the result tells whether that was possible."""

    request: int
    tenant: str
    subscriber: str


@dataclass(slots=True)
class ChangeStore:
    """A change of a tenant's subscriptions; the result is that of the operation."""

    request: int
    tenant: str
    operation: str
    """a method of SubscriptionChanges"""
    arguments: dict[str, Any]


@dataclass(slots=True)
class Inspect:
    """A question about what the engine holds; the result is its answer."""

    request: int
    tenant: str
    what: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Stop:
    """Finish what was begun, write a snapshot, and end."""


Command = (
    Publish
    | Acknowledge
    | AddDeadLetter
    | DeleteDeadLetters
    | ConfigureInbox
    | DeleteInbox
    | ChangeStore
    | Inspect
    | MeshInput
    | MeshRequest
    | AdoptSubscription
    | MeshStored
    | Stop
)


# -- from the engine to the server -------------------------------------------------------------------------


@dataclass(slots=True)
class Receipt:
    """A message that is in the log."""

    id: str
    seq: int
    version: int
    """of the store that it was evaluated with"""
    deliveries: int
    time: float
    duplicate: bool = False
    """whether it was published before"""
    late: str | None = None
    """why joins did not receive it"""
    failures: int = 0
    """subscriptions whose query failed on it"""


@dataclass(slots=True)
class MessageProblem:
    """A message that is refused."""

    id: str
    reason: str
    line: int | None = None
    column: int | None = None
    conflict: bool = False
    """whether another message has this id"""
    backlog: bool = False
    """whether it would be accepted later, when a subscriber has received more"""


@dataclass(slots=True)
class Started:
    """The engine is ready: the state of the log, from which it goes on."""

    seq: int
    version: int
    inboxes: list[InboxRow]
    seconds: float
    """the time that it took"""


@dataclass(slots=True)
class Committed:
    """A transaction of the log: what to deliver, and what to answer."""

    entries: bytes
    outputs: dict[tuple[int, int], tuple[str, bytes]]
    """by sequence number of the message and number of the output: the id of the message, and the body"""
    sources: list[tuple[int, int, int, float, float, bool]]
    """the new messages: sequence number, request, position in it, time received, event time, whether given"""
    inboxes: list[InboxRow]
    deleted_inboxes: list[int]
    gaps: list[Gap]
    answers: list[tuple[int, Any]]
    """by request, the result"""
    mesh_store: int = 0
    """up to which `Store` of the node everything is durable, if it is more than before"""


@dataclass(slots=True)
class Answer:
    """The result of a request that is not part of a transaction of the log."""

    request: int
    result: Any


@dataclass(slots=True)
class LogState:
    """The log cannot be written at present, or can be again."""

    problem: str | None
    """why it cannot"""


@dataclass(slots=True)
class EngineStatus:
    """The state of the engine, sent from time to time."""

    version: int
    seq: int
    memory: int
    """bytes"""
    subscriptions: dict[str, dict[str, int]]
    """by tenant and language"""
    join_messages: int
    """messages that joins hold"""
    tail_entries: int
    problem: str | None = None
    """why the log cannot be written at present"""
    counters: dict[str, float] = field(default_factory=dict)


Event = Started | Committed | Answer | LogState | EngineStatus | MeshOutput | MeshStatus


def encode_frame(value: object) -> bytes:
    """Return an object as bytes, with their length before them."""
    pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(pickled)) + pickled


def receive_frame(connection: socket.socket) -> Any:
    """Return the next object, or None when the other side has ended."""
    head = _receive(connection, LENGTH.size)
    if head is None:
        return None
    body = _receive(connection, LENGTH.unpack(head)[0])
    return pickle.loads(body) if body is not None else None


def _receive(connection: socket.socket, size: int) -> bytearray | None:
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size:
        count = connection.recv_into(view[done:])
        if not count:
            return None
        done += count
    return buffer
