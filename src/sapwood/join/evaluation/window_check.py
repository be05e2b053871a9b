"""The window check: which members of template rows the times of two items suit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.join.graph.templates import TemplateRelations
from sapwood.join.results import LinkMatches
from sapwood.join.state.message_state import CurrentItem, MessageState
from sapwood.join.state.windows import LinkWindows


class WindowCheck:
    """Checks windows, order and version of members, for the current item and items of the state."""

    def __init__(
        self, windows: LinkWindows, current: CurrentItem, state: MessageState, state_is_left: bool
    ) -> None:
        self.current = current
        self.state = state
        self.state_is_left = state_is_left
        self._windows = windows

    def match_members(self, members: Ints, items: Ints) -> LinkMatches:
        """Return the members that suit the item beside them."""
        holds = self._holds(members, items)
        members = members[holds]
        return self._matches(members, self._windows.entry.take(members), items[holds])

    def match_rows(self, relations: TemplateRelations, rows: Ints, items: Ints) -> LinkMatches:
        """Return the members of rows that suit the item beside their row."""
        members, source = relations.members(rows)
        return self.match_members(members, items.take(source))

    def match_row(self, relations: TemplateRelations, row: int, items: Ints) -> Iterator[LinkMatches]:
        """Yield the members of a row that suit each of many items."""
        members, _ = relations.members(np.array([row], np.int32))
        is_last = self.state_is_left and self.state.latest < self.current.time
        version = min(self.state.oldest_version, self.current.visible_from)
        checked: list[int] = []
        for member in members.tolist():
            if self._windows.holds_for_all(member, is_last, version):
                numbers = np.full(len(items), member, np.int32)
                yield self._matches(
                    numbers, np.full(len(items), self._windows.entry[member], np.int32), items
                )
            else:
                checked.append(member)
        if checked:
            repeated = np.repeat(np.array(checked, np.int32), len(items))
            yield self.match_members(repeated, np.tile(items, len(checked)))

    def suits_any(self, relations: TemplateRelations, rows: Ints, items: Ints) -> NDArray[np.bool_]:
        """Return for each row whether any of its members suits the item beside it."""
        members, source = relations.members(rows)
        found = np.zeros(len(rows), np.bool_)
        found[source[self._holds(members, items.take(source))]] = True
        return found

    def _holds(self, members: Ints, items: Ints) -> NDArray[np.bool_]:
        times = self.state.item_time.take(items)
        visible_from = np.minimum(self.state.item_visible_from.take(items), self.current.visible_from)
        left, right = (times, self.current.time) if self.state_is_left else (self.current.time, times)
        return self._windows.check(members, left, right, visible_from)

    def _matches(self, members: Ints, entries: Ints, items: Ints) -> LinkMatches:
        return LinkMatches(
            members, entries, items, self.state.records, self.current.records, self.state_is_left
        )


def _repeat(number: int, items: Ints) -> Ints:
    return np.full(len(items), number, np.int32)
