"""What a node keeps across restarts."""

from __future__ import annotations

from dataclasses import dataclass, field

from sapwood.mesh.core.actions import Store, StoredMessage, TableChange
from sapwood.mesh.core.frames import Epoch, MessageKey, Route


@dataclass(slots=True)
class StoredTable:
    """What is wanted on a neighbour's side."""

    version: int = 0
    is_complete: bool = False
    is_open: bool = False
    routes: dict[int, Route] = field(default_factory=dict)


@dataclass(slots=True)
class NodeState:
    """The durable state of a node: what its `Store` actions add up to.

    A runtime may keep it in any form that gives a node the same state again.
    """

    name: str
    reset: int = 0
    cursors: dict[str, tuple[Epoch, int]] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    messages: dict[MessageKey, StoredMessage] = field(default_factory=dict)
    """in the order in which they were handled"""
    tables: dict[str, StoredTable] = field(default_factory=dict)

    def apply(self, store: Store) -> None:
        """Add what a node wants to be stored."""
        if store.reset is not None:
            self.reset = store.reset
        if store.message is not None:
            self.messages[store.message.key] = store.message
        self.cursors |= store.cursors
        for change in store.tables:
            self._change_table(change)
        for source, floor in store.floors.items():
            self.floors[source] = max(floor, self.floors.get(source, 0))
            settled = [k for k in self.messages if k.source == source and k.number <= floor]
            for key in settled:
                del self.messages[key]

    def _change_table(self, change: TableChange) -> None:
        if change.is_dropped:
            self.tables.pop(change.link, None)
            return
        table = self.tables.setdefault(change.link, StoredTable())
        table.version, table.is_complete, table.is_open = change.version, change.is_complete, change.is_open
        for key in change.removed:
            table.routes.pop(key, None)
        table.routes.update((route.key, route) for route in change.added)
