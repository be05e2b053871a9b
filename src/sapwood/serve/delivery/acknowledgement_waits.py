"""Publishers that wait until all deliveries of a message are acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import numpy as np
from cachetools import LRUCache

from sapwood.serve.log.entries import Entries
from sapwood.serve.log.inbox_table import InboxTable

_NOTED = 10_000
"""requests whose publishers may still begin to wait"""


class _Wait:
    """A publisher that waits for inboxes to be acknowledged up to a number."""

    def __init__(self, needed: dict[int, int]) -> None:
        self.needed = needed
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class DeliveredWaits:
    """Waits for acknowledgements; one that is dropped, or is a dead letter, counts, too."""

    def __init__(self, inboxes: InboxTable) -> None:
        self._inboxes = inboxes
        self._waits: dict[int, set[_Wait]] = {}
        self._needed: LRUCache[int, dict[int, int]] = LRUCache(_NOTED)
        """by request, the last number in each inbox"""

    def note(self, request: int, entries: Entries, seqs: Iterable[int]) -> None:
        """Note which deliveries the messages of a request have, for a publisher who will wait for them."""
        self._needed[request] = find_last_numbers(entries, seqs)

    async def wait(self, request: int) -> None:
        """Wait until all deliveries that were noted for a request are acknowledged."""
        needed = self._needed.pop(request, {})
        open = {inbox: number for inbox, number in needed.items() if not self._is_done(inbox, number)}
        if not open:
            return
        wait = _Wait(open)
        for inbox in open:
            self._waits.setdefault(inbox, set()).add(wait)
        try:
            await wait.future
        finally:
            for inbox in open:
                waiting = self._waits.get(inbox)
                if waiting is not None:
                    waiting.discard(wait)
                    if not waiting:
                        del self._waits[inbox]

    def check(self, inboxes: Iterable[int]) -> None:
        """Look at inboxes that have changed."""
        for inbox in inboxes:
            for wait in list(self._waits.get(inbox, ())):
                if inbox in wait.needed and self._is_done(inbox, wait.needed[inbox]):
                    del wait.needed[inbox]
                    if not wait.needed and not wait.future.done():
                        wait.future.set_result(None)

    def _is_done(self, inbox: int, number: int) -> bool:
        return inbox not in self._inboxes.names or self._inboxes.floor(inbox) >= number


def find_last_numbers(entries: Entries, seqs: Iterable[int]) -> dict[int, int]:
    """Return, by inbox, the last number that messages have there."""
    chosen = entries[np.isin(entries["seq"], list(seqs))]
    needed: dict[int, int] = {}
    for inbox, number in zip(chosen["inbox"].tolist(), chosen["number"].tolist(), strict=True):
        needed[inbox] = max(number, needed.get(inbox, 0))
    return needed
