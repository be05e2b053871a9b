"""The two directions of a link: frames that are sent and not received, and frames that wait to be handled.

    outbound    1 … received │ … accepted │ … sent │ … last
                 forgotten    kept, to be sent again  not sent: the window is full, or what they tell is
                                                      not stored yet

The receiver handles frames strictly in order: one that is out of order is dropped, and asked for again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from sapwood.mesh.core.frames import NO_EPOCH, Epoch, Frame, Intervals
from sapwood.mesh.core.source_history import NumberRanges

WINDOW = 256
"""frames that are sent and not accepted"""


@dataclass(slots=True)
class OutboundFrame:
    """A frame on its way, which must not be sent before a `Store` is durable."""

    frame: Frame
    store: int


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
        self._have: dict[str, NumberRanges] = {}
        self._backoff = 0.0
        self.retry_at = 0.0
        """when sending goes on after a failure"""

    def open(self, have: dict[str, Intervals]) -> None:
        """Note that the receiver waits for frames, and which messages it has."""
        self.is_open = True
        self._have = {source: NumberRanges(ranges) for source, ranges in have.items()}

    def has(self, source: str, number: int) -> bool:
        """Return whether the receiver had a message when the link was opened."""
        ranges = self._have.get(source)
        return ranges is not None and number in ranges

    def add(self, frame: Frame, store: int = 0) -> None:
        """Add a frame after all others."""
        self.last += 1
        self.frames.append(OutboundFrame(frame, store))

    def take(self, stored: int) -> Iterator[tuple[int, Frame]]:
        """Yield the frames that may be sent now, with their numbers."""
        while self.sent < self.last and self.sent - self.accepted < WINDOW:
            waiting = self.frames[self.sent - self.received]
            if waiting.store > stored:
                return
            self.sent += 1
            yield self.sent, waiting.frame

    def acknowledge(self, received: int) -> None:
        """Forget the frames that the receiver has stored."""
        while self.received < min(received, self.last):
            self.frames.popleft()
            self.received += 1
        self.accepted = max(self.accepted, self.received)
        self.sent = max(self.sent, self.received)

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
