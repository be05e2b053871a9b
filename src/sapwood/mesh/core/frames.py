"""What brokers send each other.

*Frames* are numbered on their link: none is missing and none is out of order for the one that handles them.
*Controls* may be lost, repeated and late; each says all that it means by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol


class Route(Protocol):
    """A necessary condition of some subscription; equal ones are interchangeable."""

    @property
    def key(self) -> int:
        """128 bits that no other route has."""


class MessageKey(NamedTuple):
    """The identity of a message: its root broker, and its number among the messages published there."""

    source: str
    number: int


class Epoch(NamedTuple):
    """The identity of a run of numbered frames in one direction of a link; a later one is greater."""

    edge: int
    """the version of the topology that made the link"""
    incarnation: int
    """of the sender: how often it was started"""
    attempt: int = 0


NO_EPOCH = Epoch(0, 0, 0)

EVERYTHING = -1
"""in place of a table's version: it is not known, so everything is sent"""
UNNUMBERED = -2
"""in place of a table's version: that of a former run of its owner"""

Intervals = tuple[tuple[int, int], ...]
"""numbers as ranges, first and last, ascending"""


class Content(Enum):
    """In place of a message's content: where it is."""

    STORED = "stored"
    """with the sender, which is to take it from there"""
    WHOLE = "whole"
    """with the sender, too, and nothing may be cut from it"""


# -- frames -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageFrame:
    """A message; without content if the receiver has it, so that only its place in the order counts."""

    key: MessageKey
    content: object
    table: int = 0
    """the version of the receiver's table by which it was routed"""
    floor: int = 0
    """messages of the source up to this number are settled everywhere"""
    is_partial: bool = False
    """whether parts of the content that nobody beyond the link reads were cut; before the content is taken
    from where it is, whether that was done on the way to the sender"""


@dataclass(frozen=True, slots=True)
class TableFrame:
    """A change of what is wanted on the sender's side of the link.

    A whole table is sent in parts: the first one `begins` it, the last one `ends` it. A change is one part
    that ends and does not begin.
    """

    version: int
    added: tuple[Route, ...] = ()
    removed: tuple[int, ...] = ()
    """keys"""
    begins: bool = False
    ends: bool = True
    is_open: bool = False
    """whether more may be wanted than the table has, because the sender lacks other tables"""


@dataclass(frozen=True, slots=True)
class ConfirmFrame:
    """All brokers on the sender's side of the link have a version of the receiver's table."""

    epoch: Epoch
    """that of the table's frames"""
    version: int


Frame = MessageFrame | TableFrame | ConfirmFrame


# -- controls -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """The sender wants to send frames of an epoch."""

    epoch: Epoch
    needs_table: bool = True
    """whether the sender has no table of the receiver"""


@dataclass(frozen=True, slots=True)
class Opened:
    """The receiver waits for frames of an epoch after a number."""

    epoch: Epoch
    received: int = 0
    have: Mapping[str, Intervals] = field(default_factory=dict)
    """by source, the messages above its floor that need not be sent again"""
    floors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refused:
    """The receiver does not wait for frames of an epoch; the sender has to open another."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Ack:
    """What was received and stored, and what is settled on the sender's side of the link."""

    epoch: Epoch
    received: int
    reset: int
    """the version of the topology since which the settled numbers hold"""
    settled: Mapping[str, int] = field(default_factory=dict)
    """by source, the number up to which all messages that were sent are stored wherever they are wanted"""


@dataclass(frozen=True, slots=True)
class Nack:
    """Frames are missing from this number on."""

    epoch: Epoch
    expected: int


@dataclass(frozen=True, slots=True)
class Beat:
    """The state of a link's sender, sent every second."""

    epoch: Epoch
    sent: int
    """the last frame that the transport has accepted"""
    version: int = 0
    digest: int = 0
    """of the table that was sent up to this version: its keys, each bit added modulo 2"""
    count: int = 0
    floors: Mapping[str, int] = field(default_factory=dict)
    """of sources on the sender's side, those that have changed"""


@dataclass(frozen=True, slots=True)
class NeedTable:
    """The sender's copy of the receiver's table is not what it should be."""

    epoch: Epoch


Control = Open | Opened | Refused | Ack | Nack | Beat | NeedTable
