"""The changes of one transaction of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sqlalchemy import Connection

from sapwood.serve.log.entries import NO_ENTRIES, Entries

Row = dict[str, object]


@dataclass(slots=True)
class Gap:
    """Deliveries that a subscriber has missed."""

    inbox: int
    after: int
    """the number of the last delivery before them"""
    count: int
    reason: str
    since: float
    until: float


class MoreChanges(Protocol):
    """Changes of tables that are not those of the log."""

    @property
    def store(self) -> int:
        """The number of the last `Store` of a node that is among them."""

    def write(self, connection: Connection) -> None:
        """Write them, as part of the transaction."""


class InboxRow(NamedTuple):
    """An inbox as the log holds it."""

    number: int
    tenant: str
    subscriber: str
    settings: str
    last: int
    """in the log, that of a segment or later: the tail may have more"""
    acknowledged: int
    dropped: int
    suspended: bool


class EvaluatedMessage(NamedTuple):
    """What the evaluation of a message that was stored before has made known."""

    seq: int
    tenant: str
    stream: str
    id: str
    deliveries: int
    time: float | None
    """the event time that joins were given, if the message came without one"""


@dataclass(slots=True)
class LogBatch:
    """What a transaction adds, changes and deletes; rows are those of the tables."""

    number: int
    seq: int
    """that of the last message, in this batch or before"""
    last_inbox: int
    """the last number that an inbox was given"""
    messages: list[Row] = field(default_factory=list)
    ids: list[Row] = field(default_factory=list)
    evaluated: list[EvaluatedMessage] = field(default_factory=list)
    """messages, of this batch or before, that were evaluated after they were stored"""
    outputs: list[Row] = field(default_factory=list)
    entries: Entries = field(default_factory=lambda: NO_ENTRIES)
    inboxes: dict[int, InboxRow] = field(default_factory=dict)
    deleted_inboxes: list[int] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    rejects: list[Row] = field(default_factory=list)
    dead_letters: list[Row] = field(default_factory=list)
    deleted_dead_letters: list[int] = field(default_factory=list)
    expired: int = 0
    """messages up to this one are deleted, and what only they need"""
    ids_before: float = 0.0
    """ids of messages received before this time are deleted with them"""
    mesh: MoreChanges | None = None
    """what changes in the mesh, if the server is a broker of one"""
