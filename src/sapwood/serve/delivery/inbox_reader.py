"""Reading an inbox from a position on, and waiting for more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from sapwood.errors import SapwoodError
from sapwood.serve.delivery.delivery_content import Delivery
from sapwood.serve.delivery.delivery_feed import DeliveryFeed
from sapwood.serve.log.entries import InboxEntry

_MOST_BYTES = 4 * 1024 * 1024
"""of the bodies that are read at once"""


class InboxGone(SapwoodError):
    """Raised to who reads an inbox that is deleted."""


@dataclass(frozen=True, slots=True)
class GapNotice:
    """Deliveries that a reader does not get."""

    after: int
    """the number of the last delivery before them"""
    count: int
    reason: str

    def as_fields(self) -> dict[str, Any]:
        """Return the gap as fields of JSON."""
        return asdict(self)


class InboxReader:
    """A position in an inbox, which moves on as deliveries are read; to be entered."""

    def __init__(self, feed: DeliveryFeed, inbox: int, after: int | None = None) -> None:
        """Begin after a delivery; by default after the last that was acknowledged.

        What was dropped after that is a gap.
        """
        self._feed = feed
        self._inbox = inbox
        begin = int(feed.inboxes.acknowledged[inbox]) if after is None else max(after, 0)
        self.position = min(begin, int(feed.inboxes.last[inbox]))

    def __enter__(self) -> Self:
        self._window = self._feed.open_window(self._inbox)
        self._gaps_seen = self._window.gap_count
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feed.close_window(self._inbox)

    async def next(self, limit: int, wait: float | None) -> tuple[list[GapNotice], list[Delivery]]:
        """Return deliveries after the position, which moves behind them, and gaps before them.

        Waits up to some seconds, or with None for ever, until there are any; raises InboxGone if the inbox
        is deleted.
        """
        loop = asyncio.get_running_loop()
        deadline = None if wait is None else loop.time() + wait
        while True:
            changed = self._window.changed
            found = await self._read(limit)
            if found[0] or found[1] or self._feed.is_stopped:
                return found
            rest = None if deadline is None else deadline - loop.time()
            if rest is not None and rest <= 0:
                return found
            try:
                async with asyncio.timeout(rest):  # `wait_for` may swallow a cancellation in Python 3.11
                    await changed.wait()
            except TimeoutError:
                return [], []

    async def _read(self, limit: int) -> tuple[list[GapNotice], list[Delivery]]:
        inboxes = self._feed.inboxes
        if self._inbox not in inboxes.names:
            raise InboxGone("the inbox was deleted")
        gaps = list(self._take_gaps())
        while True:
            entries = await self._feed.read(self._inbox, self.position, limit)
            if not entries:
                return gaps, []
            merged = bool(inboxes.get_setting(self._inbox, "merge"))
            groups = await self._complete(_group(entries), limit) if merged else [[e] for e in entries]
            deliveries = await self._feed.build(self._inbox, groups)
            deliveries = _bound(deliveries)
            last = groups[-1][-1].number
            missing = not deliveries
            self.position = last if missing else deliveries[-1].number
            if not missing:
                return gaps, deliveries
            # the messages are not kept any longer, which the next transaction will record

    def _take_gaps(self) -> Iterator[GapNotice]:
        dropped = int(self._feed.inboxes.dropped[self._inbox])
        if dropped > self.position:
            yield GapNotice(self.position, dropped - self.position, "dropped")
            self.position = dropped
        new = self._window.gap_count - self._gaps_seen
        for gap in list(self._window.gaps)[-new:] if new else ():
            if gap.reason == "suspended":  # others are seen by their numbers
                yield GapNotice(gap.after, gap.count, gap.reason)
        self._gaps_seen = self._window.gap_count

    async def _complete(self, groups: list[list[InboxEntry]], limit: int) -> list[list[InboxEntry]]:
        """Read on until the last group is complete, since it must not be split."""
        while True:
            more = await self._feed.read(self._inbox, groups[-1][-1].number, limit)
            same = [entry for entry in more if _key(entry) == _key(groups[-1][0])]
            groups[-1] += same
            if not same or len(same) < len(more):
                return groups


def _key(entry: InboxEntry) -> tuple[int, int]:
    return entry.seq, entry.output


def _group(entries: Sequence[InboxEntry]) -> list[list[InboxEntry]]:
    groups: list[list[InboxEntry]] = []
    for entry in entries:
        if groups and _key(groups[-1][0]) == _key(entry):
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return groups


def _bound(deliveries: list[Delivery]) -> list[Delivery]:
    """Return the first deliveries, as many as have few bytes together."""
    size = 0
    for i, delivery in enumerate(deliveries):
        size += len(delivery.content.body)
        if size > _MOST_BYTES and i:
            return deliveries[:i]
    return deliveries
