"""What a node keeps across restarts."""

from __future__ import annotations

from dataclasses import dataclass, field

from sapwood.mesh.core.actions import Store, StoredMessage, TableChange
from sapwood.mesh.core.frames import Epoch, MessageKey, Route
from sapwood.mesh.core.messages.number_sets import SortedNumbers


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
    _numbers: dict[str, SortedNumbers] = field(default_factory=dict, init=False, repr=False, compare=False)
    """by source, those of the messages"""

    def __post_init__(self) -> None:
        for source, number in sorted(self.messages):
            self._add_number(source, number)

    def _add_number(self, source: str, number: int) -> None:
        numbers = self._numbers.get(source)
        if numbers is None:
            numbers = self._numbers[source] = SortedNumbers()
        numbers.add(number)

    def apply(self, store: Store) -> None:
        """Add what a node wants to be stored."""
        if store.reset is not None:
            self.reset = store.reset
        if store.message is not None:
            self.messages[store.message.key] = store.message
            self._add_number(*store.message.key)
        self.cursors |= store.cursors
        for change in store.tables:
            self._change_table(change)
        for source, floor in store.floors.items():
            self.floors[source] = max(floor, self.floors.get(source, 0))
            numbers = self._numbers.get(source)
            for number in numbers.remove_upto(floor) if numbers is not None else ():
                self.messages.pop(MessageKey(source, number), None)

    def _change_table(self, change: TableChange) -> None:
        if change.is_dropped:
            self.tables.pop(change.link, None)
            return
        table = self.tables.setdefault(change.link, StoredTable())
        table.version, table.is_complete, table.is_open = change.version, change.is_complete, change.is_open
        for key in change.removed:
            table.routes.pop(key, None)
        table.routes.update((route.key, route) for route in change.added)
