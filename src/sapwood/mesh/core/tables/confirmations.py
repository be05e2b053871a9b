"""Who waits until all brokers have a change of routes.

A neighbour confirms a version of the table that it was told when all brokers on its side have it. So a change
is everywhere when each neighbour has confirmed the version that told it. A neighbour's own change waits for
all *other* neighbours; then it is confirmed to it, and so on back to where the change was made:

    a ──table 7──► b ──table 3──► c        c is a leaf: it confirms 3 at once
      ◄─confirm 7─   ◄─confirm 3─          b then confirms 7, and a answers its subscriber

Versions only grow, so those who wait for a neighbour are a queue: a confirmation takes some from its start.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sapwood.mesh.core.frames import NO_EPOCH, Epoch
from sapwood.mesh.core.tables.route_table import RouteTable


@dataclass(slots=True, eq=False)
class Wait:
    """Versions that neighbours have to confirm before somebody is told."""

    needed: dict[str, int]
    token: object = None
    """who waits, if that is somebody here"""
    link: str | None = None
    """the neighbour that waits, if it is one"""
    epoch: Epoch = NO_EPOCH
    version: int = 0
    """of the table of the neighbour that waits"""


class Confirmations:
    """Who waits until all brokers have a change."""

    def __init__(self, table: RouteTable) -> None:
        self._table = table
        self._waits: dict[Wait, None] = {}
        self._queues: dict[str, deque[tuple[int, Wait]]] = {}
        """by neighbour, the versions that are waited for, ascending"""
        self._over: list[Wait] = []

    def __len__(self) -> int:
        return len(self._waits)

    def versions(self, besides: str | None = None) -> dict[str, int]:
        """Return what neighbours have to confirm, all or all but one, until they have what they were told."""
        return {
            link: told.version
            for link, told in self._table.told.items()
            if link != besides and told.confirmed < told.version
        }

    def add(self, wait: Wait) -> None:
        """Let somebody wait."""
        self._waits[wait] = None
        self._queue(wait)

    def _queue(self, wait: Wait) -> None:
        for link, version in wait.needed.items():
            self._queues.setdefault(link, deque()).append((version, wait))
        self._finish(wait)

    def _finish(self, wait: Wait) -> None:
        if not wait.needed and wait in self._waits:
            del self._waits[wait]
            self._over.append(wait)

    def confirm(self, link: str, version: int) -> None:
        """Note that all brokers on a neighbour's side have a version."""
        told = self._table.told[link]
        told.confirmed = max(told.confirmed, version)
        queue = self._queues.get(link)
        while queue and queue[0][0] <= told.confirmed:
            wait = queue.popleft()[1]
            wait.needed.pop(link, None)
            self._finish(wait)

    def drop(self, link: str) -> None:
        """Wait for a neighbour no more, which is none any more, nor answer it."""
        for _, wait in self._queues.pop(link, ()):
            wait.needed.pop(link, None)
            self._finish(wait)
        self._remove([wait for wait in self._waits if wait.link == link])
        self._over = [wait for wait in self._over if wait.link != link]

    def _remove(self, waits: list[Wait]) -> None:
        for wait in waits:
            del self._waits[wait]
            wait.needed.clear()

    def begin_anew(self) -> None:
        """Let those here wait for all neighbours, because others are behind them than before; what neighbours
        wait for they ask again."""
        self._remove([wait for wait in self._waits if wait.link is not None])
        self._queues.clear()
        self._waits |= dict.fromkeys(wait for wait in self._over if wait.link is None)
        self._over.clear()
        for wait in list(self._waits):
            wait.needed = self.versions()
            self._queue(wait)

    def take(self) -> list[Wait]:
        """Return those whose wait is over, in order."""
        over, self._over = self._over, []
        return over
