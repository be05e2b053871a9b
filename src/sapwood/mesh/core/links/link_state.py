"""The two directions of a link: frames that are sent and not received, and frames that wait to be handled.

    outbound    1 … received │ … accepted │ … sent │ … last │ backlog
                  forgotten     kept, to be sent again  │  not numbered: numbers of messages, and frames
                                                        └ not sent: the window is full, or what they tell is
                                                          not stored yet

The receiver handles frames strictly in order: one that is out of order is dropped, and asked for again.

Only so many frames are kept as objects; what comes after them is a *backlog* of segments between two frames
that are not messages. A segment has, by source, the numbers of its messages: 8 bytes for each. The order of
different sources in a segment is free, since order is kept by source, and all were routed by the same table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sapwood.mesh.core.frames import (
    NO_EPOCH,
    ConfirmFrame,
    Epoch,
    Frame,
    Intervals,
    MessageFrame,
    MessageKey,
    TableFrame,
)
from sapwood.mesh.core.messages.number_sets import NumberRanges

WINDOW = 256
"""frames that are sent and not accepted"""
KEPT = 4_096
"""frames that are kept as objects until they are received, before messages wait in the backlog"""
_TURN = 64
"""messages of a source that are taken from the backlog before those of the next source"""

MakeFrame = Callable[[MessageKey, int], MessageFrame | None]
"""returns the frame of a message that was routed by a version of a table; None if nobody needs it any more"""


@dataclass(slots=True)
class OutboundFrame:
    """A frame on its way, which must not be sent before a `Store` is durable."""

    frame: Frame
    store: int


@dataclass(slots=True)
class Segment:
    """Messages in the backlog that were routed by the same version of the neighbour's table."""

    table: int
    store: int
    """the `Store` with which the last of them is durable"""
    numbers: dict[str, deque[int]] = field(default_factory=dict)
    """by source"""


class OutboundLink:
    """The direction to a neighbour."""

    def __init__(self, epoch: Epoch) -> None:
        self.begin(epoch)

    def begin(self, epoch: Epoch) -> None:
        """Begin with an epoch, without frames; it is open when the receiver says so."""
        self.epoch = epoch
        self.is_open = False
        self.received = self.accepted = self.sent = self.last = 0
        self.frames: deque[OutboundFrame] = deque()
        """those after `received`"""
        self._backlog: deque[OutboundFrame | Segment] = deque()
        self._backlogged = 0
        self._have: dict[str, NumberRanges] = {}
        self._backoff = 0.0
        self.retry_at = 0.0
        """when sending goes on after a failure"""

    def open(self, have: Mapping[str, Intervals]) -> None:
        """Note that the receiver waits for frames, and which messages it has."""
        self.is_open = True
        self._have = {source: NumberRanges(ranges) for source, ranges in have.items()}

    def has(self, key: MessageKey) -> bool:
        """Return whether the receiver had a message when the link was opened."""
        ranges = self._have.get(key.source)
        return ranges is not None and key.number in ranges

    def __len__(self) -> int:
        """The number of frames that the receiver has not received."""
        return len(self.frames) + self._backlogged

    @property
    def is_unsent(self) -> bool:
        """Whether there are frames that the transport was not given."""
        return self.sent < self.last or self._backlogged > 0

    # -- adding ----------------------------------------------------------------------------------------

    def add(self, frame: TableFrame | ConfirmFrame, store: int = 0) -> None:
        """Add a frame after all others."""
        self._backlog.append(OutboundFrame(frame, store))
        self._backlogged += 1

    def add_message(self, key: MessageKey, table: int, store: int) -> None:
        """Add a message after all others of its source and all other frames."""
        last = self._backlog[-1] if self._backlog else None
        if not isinstance(last, Segment) or last.table != table:
            last = Segment(table, store)
            self._backlog.append(last)
        last.store = max(last.store, store)
        numbers = last.numbers.get(key.source)
        if numbers is None:
            numbers = last.numbers[key.source] = deque()
        numbers.append(key.number)
        self._backlogged += 1

    def refill(self, make: MakeFrame) -> None:
        """Number as many messages of the backlog as are to be kept, and all other frames before them: the
        receiver has a table only when it has all parts, however many."""
        while self._backlog:
            first = self._backlog[0]
            if isinstance(first, OutboundFrame):
                self._backlog.popleft()
                self._append(first)
            elif not first.numbers:
                self._backlog.popleft()
            elif len(self.frames) < KEPT:
                self._take_turn(first, make)
            else:
                return

    def _take_turn(self, segment: Segment, make: MakeFrame) -> None:
        source, numbers = next(iter(segment.numbers.items()))
        for _ in range(min(_TURN, KEPT - len(self.frames), len(numbers))):
            frame = make(MessageKey(source, numbers.popleft()), segment.table)
            if frame is None:
                self._backlogged -= 1
            else:
                self._append(OutboundFrame(frame, segment.store))
        del segment.numbers[source]
        if numbers:
            segment.numbers[source] = numbers

    def _append(self, frame: OutboundFrame) -> None:
        self.frames.append(frame)
        self.last += 1
        self._backlogged -= 1

    def messages_of(self, source: str) -> set[int]:
        """Return the messages of a source that are not received."""
        found = {
            each.frame.key.number
            for each in self.frames
            if isinstance(each.frame, MessageFrame) and each.frame.key.source == source
        }
        for segment in self._backlog:
            if isinstance(segment, Segment):
                found.update(segment.numbers.get(source, ()))
        return found

    # -- sending ---------------------------------------------------------------------------------------

    def take(self, stored: int) -> Iterator[tuple[int, Frame]]:
        """Yield the frames that may be sent now, with their numbers."""
        while self.sent < self.last and self.sent - self.accepted < WINDOW:
            waiting = self.frames[self.sent - self.received]
            if waiting.store > stored:
                return
            self.sent += 1
            yield self.sent, waiting.frame

    def acknowledge(self, received: int) -> list[Frame]:
        """Forget the frames that the receiver has stored, and return them."""
        gone: list[Frame] = []
        while self.received < min(received, self.last):
            gone.append(self.frames.popleft().frame)
            self.received += 1
        self.accepted = max(self.accepted, self.received)
        self.sent = max(self.sent, self.received)
        return gone

    def accept(self, number: int) -> None:
        """Note that the transport has frames up to a number."""
        if self.accepted < number <= self.sent:
            self.accepted = number
            self._backoff = 0.0

    def go_back(self, number: int) -> None:
        """Send again what comes after a number."""
        number = max(number, self.received)
        self.sent = min(self.sent, number)
        self.accepted = min(self.accepted, number)

    def fail(self, now: float) -> None:
        """Send again, after a while, what the transport has not accepted."""
        self.go_back(self.accepted)
        self._backoff = min(max(2 * self._backoff, 0.1), 2.0)
        self.retry_at = now + self._backoff


@dataclass(slots=True)
class InboundLink:
    """The direction from a neighbour."""

    epoch: Epoch = NO_EPOCH
    handled: int = 0
    """the last frame that was handled"""
    released: int = 0
    """the last frame of which the transport was told that it is stored"""
    queue: deque[Frame] = field(default_factory=deque)
    """frames that wait to be handled"""
    in_work: int = 0
    """frames that were taken from the queue, and are not handled"""
    confirmed: int = 0
    """the greatest version of the node's table that the neighbour has confirmed"""
    nacked_at: float = -1.0
    frame_at: float = 0.0
    """when the last frame came"""
    is_drained: bool = False
    opened_after: int | None = None
    """the `Store` after which the neighbour is to be told that the link is open"""

    @property
    def expected(self) -> int:
        """The number of the next frame."""
        return self.handled + self.in_work + len(self.queue) + 1

    def begin(self, epoch: Epoch) -> None:
        """Begin with an epoch: what came before is not handled any more."""
        self.epoch = epoch
        self.handled = self.released = self.in_work = self.confirmed = 0
        self.queue.clear()
        self.nacked_at = -1.0
        self.is_drained = False


@dataclass(slots=True)
class Link:
    """A neighbour: both directions, and when what is due."""

    edge: int
    """the version of the topology that made the link"""
    outbound: OutboundLink
    inbound: InboundLink = field(default_factory=InboundLink)
    opening_at: float = 0.0
    acked: tuple[Epoch, int] | None = None
    """the last frame that the neighbour was told is received"""
    ack_all_at: float = 0.0
    beat_all_at: float = 0.0
    floors: dict[str, None] = field(default_factory=dict)
    """sources whose floor has changed since the last beat"""
    behind_at: float | None = None
    """since when the neighbour asks for frames that it had stored"""
    confirmed: ConfirmFrame | None = None
    """the last confirmation of the neighbour's table"""
