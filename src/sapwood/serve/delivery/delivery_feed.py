"""The feed: what was committed last, for all who read an inbox while it grows.

Readers that keep up read from memory: each inbox that is being read has a window of its newest entries, and
the contents are cached. A reader that is behind reads from the log, in a thread, and never delays others.

    committed ──► entries of inboxes that are read ──► windows ──► readers that keep up
              └─► contents, up to some bytes             │
    the log  ─────────────────────────────────────────► readers that are behind
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sapwood.serve.delivery.acknowledgement_waits import DeliveredWaits
from sapwood.serve.delivery.delivery_content import ContentCache, ContentKey, Delivery, DeliveryContent
from sapwood.serve.delivery.subscription_names import SubscriptionNames
from sapwood.serve.engine.frames import Committed, Publish, Started
from sapwood.serve.log.entries import ENTRY, MESSAGE, Entries, InboxEntry
from sapwood.serve.log.inbox_table import InboxTable
from sapwood.serve.log.log_batch import Gap
from sapwood.serve.log.log_reader import LogReader

_WINDOW = 4_096
"""entries of an inbox in memory, while it is read"""
_GAPS = 100


@dataclass(slots=True)
class InboxWindow:
    """The newest entries of an inbox that is being read, with consecutive numbers."""

    entries: deque[InboxEntry] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    gaps: deque[Gap] = field(default_factory=lambda: deque(maxlen=_GAPS))
    gap_count: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """set, and replaced, at each change"""
    readers: int = 0

    def wake(self) -> None:
        """Wake all who wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class DeliveryFeed:
    """The inboxes as the log has them, and the way to read them."""

    def __init__(self, log: LogReader, names: SubscriptionNames, cache_bytes: int) -> None:
        self._log = log
        self._names = names
        self.inboxes = InboxTable()
        self._windows: dict[int, InboxWindow] = {}
        self._read: NDArray[np.bool_] = np.zeros(64, np.bool_)
        """by inbox, whether it has a window"""
        self._contents = ContentCache(cache_bytes)
        self.delivered = DeliveredWaits(self.inboxes)
        self.is_stopped = False
        """whether readers should wait no more"""
        self.on_inboxes: Callable[[Iterable[int]], None] = lambda numbers: None
        """called with inboxes that were created or changed"""

    def stop(self) -> None:
        """Let all readers wait no more."""
        self.is_stopped = True
        for window in self._windows.values():
            window.wake()

    # -- what the engine says --------------------------------------------------------------------------

    def restart(self, event: Started) -> None:
        """Begin with the state of the log."""
        present = {row.number for row in event.inboxes}
        for number in set(self.inboxes.names) - present:
            self._forget(number)
        self.inboxes.load(event.inboxes)
        for window in self._windows.values():
            window.entries.clear()
            window.wake()
        self.delivered.check(self.inboxes.names)
        self.on_inboxes(present)

    def add(self, event: Committed, publications: Callable[[int], Publish | None]) -> None:
        """Take over a transaction of the log."""
        entries = np.frombuffer(event.entries, ENTRY)
        self._add_contents(event, publications)
        if event.inboxes:
            self.inboxes.load(event.inboxes)
        for number in event.deleted_inboxes:
            self._forget(number)
        if len(entries):
            np.maximum.at(self.inboxes.last, entries["inbox"], entries["number"])
            self._fill_windows(entries)
            self._note_waiting(event, publications, entries)
        for gap in event.gaps:
            if gap.inbox in self._windows:
                self._windows[gap.inbox].gaps.append(gap)
                self._windows[gap.inbox].gap_count += 1
        changed = [row.number for row in event.inboxes]
        for number in (*changed, *event.deleted_inboxes):
            if number in self._windows:
                self._windows[number].wake()
        self.delivered.check((*changed, *event.deleted_inboxes))
        if changed:
            self.on_inboxes(changed)

    def _forget(self, number: int) -> None:
        if number in self.inboxes.names:
            self.inboxes.delete(number)

    def _add_contents(self, event: Committed, publications: Callable[[int], Publish | None]) -> None:
        for seq, request, position, received, moment, has_time in event.sources:
            command = publications(request)
            if command is None:
                continue
            message = command.messages[position]
            time = moment if has_time else None
            content = DeliveryContent(message.id, message.stream, time, received, message.body)
            self._contents.add((seq, MESSAGE), content)
        for (seq, number), (name, body) in event.outputs.items():
            source = self._contents.get((seq, MESSAGE))
            if source is not None:
                content = DeliveryContent(name, source.stream, source.time, source.published, body)
                self._contents.add((seq, number), content)

    def _note_waiting(
        self, event: Committed, publications: Callable[[int], Publish | None], entries: Entries
    ) -> None:
        waiting: dict[int, list[int]] = {}
        for seq, request, *_ in event.sources:
            command = publications(request)
            if command is not None and command.wait:
                waiting.setdefault(request, []).append(seq)
        for request, seqs in waiting.items():
            self.delivered.note(request, entries, seqs)

    def _fill_windows(self, entries: Entries) -> None:
        if not self._windows:
            return
        if len(self._read) < len(self.inboxes.last):
            self._read = np.resize(self._read, len(self.inboxes.last))
            self._read[:] = False
            self._read[list(self._windows)] = True
        touched: set[int] = set()
        for inbox, output, seq, place, number in entries[self._read[entries["inbox"]]].tolist():
            self._windows[inbox].entries.append(InboxEntry(number, seq, place, output))
            touched.add(inbox)
        for inbox in touched:
            self._windows[inbox].wake()

    # -- reading ---------------------------------------------------------------------------------------

    def open_window(self, inbox: int) -> InboxWindow:
        """Return the window of an inbox, which exists until all its readers have closed it."""
        window = self._windows.get(inbox)
        if window is None:
            window = self._windows[inbox] = InboxWindow()
            if inbox < len(self._read):
                self._read[inbox] = True
        window.readers += 1
        return window

    def close_window(self, inbox: int) -> None:
        """End the use of a window."""
        window = self._windows[inbox]
        window.readers -= 1
        if not window.readers:
            del self._windows[inbox]
            if inbox < len(self._read):
                self._read[inbox] = False

    async def read(self, inbox: int, after: int, limit: int) -> list[InboxEntry]:
        """Return entries of an inbox after a number, up to `limit` of them, without waiting for new ones."""
        window = self._windows.get(inbox)
        if window is not None and window.entries and window.entries[0].number <= after + 1:
            start = after + 1 - window.entries[0].number
            return list(islice(window.entries, start, start + limit))
        if inbox not in self.inboxes.names or self.inboxes.last[inbox] <= after:
            return []
        return await asyncio.to_thread(self._log.read_entries, inbox, after, limit)

    async def build(self, inbox: int, groups: Sequence[Sequence[InboxEntry]]) -> list[Delivery]:
        """Return the deliveries of groups of entries with one content each; what is not kept is missing."""
        places = {entry.place for group in groups for entry in group}
        names = self._names.find_known(places)
        if names is None:
            names = await asyncio.to_thread(self._names.find, places)
        keys = [(group[0].seq, group[0].output) for group in groups]
        contents = {key: content for key in keys if (content := self._contents.get(key)) is not None}
        missing = [key for key in keys if key not in contents]
        if missing:
            contents |= await asyncio.to_thread(self._read_contents, missing)
        return [
            Delivery(inbox, group[-1].number, key[0], [names[entry.place] for entry in group], contents[key])
            for group, key in zip(groups, keys, strict=True)
            if key in contents
        ]

    def _read_contents(self, keys: Iterable[ContentKey]) -> dict[ContentKey, DeliveryContent]:
        wanted = list(keys)
        messages = self._log.read_messages({seq for seq, _ in wanted})
        outputs = self._log.read_outputs({key for key in wanted if key[1] != MESSAGE})
        found: dict[ContentKey, DeliveryContent] = {}
        for key in wanted:
            seq, number = key
            if seq not in messages or (number != MESSAGE and key not in outputs):
                continue
            row = messages[seq]
            name, body = (row.id, row.body) if number == MESSAGE else outputs[key]
            time = row.time if row.has_time else None
            found[key] = DeliveryContent(name, row.stream, time, row.received, body)
        return found
