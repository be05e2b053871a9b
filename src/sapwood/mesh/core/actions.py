"""What a node asks for: the output of its state machine."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from sapwood.mesh.core.frames import Control, Epoch, Frame, MessageKey, Route


@dataclass(frozen=True, slots=True)
class Match:
    """Match a message against the routes of all links and, if that is wanted, local subscriptions.

    Table changes that were asked for before apply, those after do not. `Matched` answers.
    """

    token: int
    content: object
    """None: that of the stored message with this key; if that is stored, one which may replace it"""
    key: MessageKey | None = None
    """None: a message published here, which has no number yet"""
    is_new: bool = True
    """whether the message is not stored yet"""
    is_local: bool = True
    """whether local subscriptions are to be evaluated"""
    link: str | None = None
    """the neighbour that the content came from, if any"""


@dataclass(frozen=True, slots=True)
class SetRoutes:
    """What is wanted on a neighbour's side has changed."""

    link: str
    added: tuple[Route, ...] = ()
    removed: tuple[int, ...] = ()
    """keys"""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as a node keeps it until it is settled."""

    key: MessageKey
    came_by: str | None
    """the neighbour it came from; None: published here"""
    links: frozenset[str] | None
    """the neighbours it is for; None: not known yet"""
    reset: int
    """the version of the topology since which the links hold"""
    is_partial: bool = False
    """whether parts of its content were cut on the way here"""


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of the stored table of a neighbour."""

    link: str
    version: int
    is_complete: bool
    is_open: bool
    added: tuple[Route, ...] = ()
    removed: tuple[int, ...] = ()
    """keys"""
    is_dropped: bool = False
    """whether nothing of the table is valid any more"""


@dataclass(frozen=True, slots=True)
class Store:
    """Make something durable, in the order of the numbers; `Stored` answers."""

    number: int
    message: StoredMessage | None = None
    match: int | None = None
    """the token of the `Match` whose message and local deliveries are stored with it; None: the message is
    known, and only its place in the mesh has changed"""
    cursors: dict[str, tuple[Epoch, int]] = field(default_factory=dict)
    """by neighbour, the last frame that is handled"""
    floors: dict[str, int] = field(default_factory=dict)
    """by source; what is stored of messages up to it is not needed any more"""
    tables: tuple[TableChange, ...] = ()
    reset: int | None = None
    replaces: int | None = None
    """the token of the `Match` whose content replaces the stored one of the message, which was partial"""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame to a neighbour, after those before it. The content of a message is that which is stored,
    unless the receiver is known to have it."""

    link: str
    epoch: Epoch
    number: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class SendControl:
    """Send a control to a neighbour."""

    link: str
    control: Control


@dataclass(frozen=True, slots=True)
class Release:
    """The frames of a neighbour up to a number are stored: the transport need not keep them."""

    link: str
    epoch: Epoch
    number: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the one who waits: a publisher, or somebody who has changed routes or set a barrier."""

    token: Hashable
    key: MessageKey | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Something that an operator has to know."""

    kind: str
    """lost, gap, late, healed, refused, reset"""
    link: str | None = None
    detail: str = ""
    count: int = 1


Action = Match | SetRoutes | Store | Send | SendControl | Release | Reply | Report
