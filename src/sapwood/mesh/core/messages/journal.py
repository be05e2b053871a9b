"""What a node asks to be stored, in numbered steps, and what may happen only after that.

Changes of cursors, floors and tables are collected, and stored with the next message or, if none comes, with
the next tick. All that a `Store` promises to others, a reply or a release of frames, waits until it is
durable.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from sapwood.mesh.core.actions import Action, Store, StoredMessage, TableChange
from sapwood.mesh.core.frames import Epoch


class Cursor(NamedTuple):
    """The last frame of an inbound link that is handled."""

    link: str
    epoch: Epoch
    handled: int


class Journal:
    """The steps of a node's durable state."""

    def __init__(self) -> None:
        self.last = 0
        """the number of the last `Store`"""
        self.stored = 0
        """the number of the last that is durable"""
        self.last_tables = 0
        """the number of the last with changes of tables"""
        self._cursors: dict[str, tuple[Epoch, int]] = {}
        self._floors: dict[str, int] = {}
        self._tables: list[TableChange] = []
        self._waiting: deque[tuple[int, Action]] = deque()
        self._releases: deque[tuple[int, Cursor]] = deque()

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to be stored."""
        return bool(self._cursors or self._floors or self._tables)

    @property
    def has_tables(self) -> bool:
        """Whether there are changes of tables to be stored."""
        return bool(self._tables)

    def set_cursor(self, link: str, epoch: Epoch, handled: int) -> None:
        """Let the position of an inbound link be stored."""
        self._cursors[link] = epoch, handled

    def drop_cursor(self, link: str) -> None:
        """Let no position be stored of a link that is none any more."""
        self._cursors.pop(link, None)

    def set_floor(self, source: str, floor: int) -> None:
        """Let a floor be stored."""
        self._floors[source] = floor

    def change_table(self, change: TableChange) -> None:
        """Let a change of a table be stored."""
        self._tables.append(change)

    def store(
        self,
        message: StoredMessage | None = None,
        match: int | None = None,
        reset: int | None = None,
        replaces: int | None = None,
    ) -> Store:
        """Return the next step: a message, and all that has changed."""
        self.last += 1
        tables = tuple(self._tables)
        step = Store(self.last, message, match, self._cursors, self._floors, tables, reset, replaces)
        for link, (epoch, handled) in self._cursors.items():
            self._releases.append((self.last, Cursor(link, epoch, handled)))
        if self._tables:
            self.last_tables = self.last
        self._cursors, self._floors = {}, {}
        self._tables.clear()
        return step

    def wait(self, action: Action) -> None:
        """Let an action wait until the last step is durable."""
        self._waiting.append((self.last, action))

    def on_stored(self, number: int) -> tuple[list[Action], list[Cursor]]:
        """Return the actions that have waited for a step, and the frames that are handled for good."""
        self.stored = max(self.stored, number)
        actions: list[Action] = []
        while self._waiting and self._waiting[0][0] <= self.stored:
            actions.append(self._waiting.popleft()[1])
        released: dict[tuple[str, Epoch], Cursor] = {}
        while self._releases and self._releases[0][0] <= self.stored:
            cursor = self._releases.popleft()[1]
            released[cursor.link, cursor.epoch] = cursor
        return actions, list(released.values())
