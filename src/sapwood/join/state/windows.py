"""The windows of links, and how long values must be retained because of them."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.ragged_array import grow_array
from sapwood.join.state.message_state import Floats


class LinkWindows:
    """The members of template rows by number, in columns: what queries with one row still differ in."""

    def __init__(self) -> None:
        self._window: Floats = np.zeros(16, np.float64)
        self._ordered: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self._since: NDArray[np.int64] = np.zeros(16, np.int64)
        self.entry: Ints = np.zeros(16, np.int32)
        self._used = 0
        self._unused: list[int] = []
        self.unordered = 0
        """the number of members for which either side may be first"""

    def add(self, ordered: bool, window: float, since: int, entry: int) -> int:
        """Add a member that sees messages visible from version `since` on; in chains, `entry` is -1."""
        number = self._unused.pop() if self._unused else self._used
        if number == self._used:
            self._used += 1
            if number == len(self._window):
                self._window = grow_array(self._window, 2 * number)
                self._ordered = grow_array(self._ordered, 2 * number)
                self._since = grow_array(self._since, 2 * number)
                self.entry = grow_array(self.entry, 2 * number)
        self._window[number], self._ordered[number], self._since[number] = window, ordered, since
        self.entry[number] = entry
        self.unordered += not ordered
        return number

    def remove(self, number: int) -> None:
        """Remove a member; its number may be given to another."""
        self.unordered -= not self._ordered[number]
        self._unused.append(number)

    def check(self, members: Ints, left: Any, right: Any, visible_from: Any) -> NDArray[np.bool_]:
        """Return for each member whether the times of its left and right side, and their version, suit it."""
        apart = right - left
        ordered = self._ordered.take(members)
        close = np.abs(apart) <= self._window.take(members)
        visible = self._since.take(members) <= visible_from
        holds: NDArray[np.bool_] = close & (~ordered | (apart > 0)) & visible
        return holds

    def holds_for_all(self, member: int, current_is_last: bool, oldest_version: int) -> bool:
        """Return whether the current item suits a member with whatever item of the state: its window is not
        bounded, and the order and version suit it anyway."""
        if self._window[member] != inf or self._since[member] > oldest_version:
            return False
        return current_is_last or not self._ordered[member]


class Retention:
    """The time for which the values of each variable are needed, by the windows of links that compare it."""

    def __init__(self) -> None:
        self._windows: dict[int, Counter[float]] = {}
        self._followers: Counter[int] = Counter()
        self._longest: Floats = np.full(16, -inf)
        self._follows: NDArray[np.bool_] = np.zeros(16, np.bool_)

    def add(self, variable: int, window: float) -> None:
        """Retain a variable for messages within a window after it."""
        self._reserve(variable)
        windows = self._windows.setdefault(variable, Counter())
        windows[window] += 1
        if window > self._longest[variable]:
            self._longest[variable] = window

    def remove(self, variable: int, window: float) -> None:
        """Undo an `add`."""
        windows = self._windows[variable]
        windows[window] -= 1
        if not windows[window]:
            del windows[window]
        if not windows:
            del self._windows[variable]
        if window == self._longest[variable] and window not in windows:
            self._longest[variable] = max(windows, default=-inf)

    def add_follower(self, variable: int) -> None:
        """Retain a variable for messages that precede it in time and arrive after it."""
        self._reserve(variable)
        self._followers[variable] += 1
        self._follows[variable] = True

    def remove_follower(self, variable: int) -> None:
        """Undo an `add_follower`."""
        self._followers[variable] -= 1
        self._follows[variable] = bool(self._followers[variable])

    def expiry(self, variables: Ints, time: float | Floats) -> Floats:
        """Return for each variable the last watermark at which its value at a time is needed."""
        # a little more, since times and windows are rounded
        longest: Floats = np.nextafter(time + self._longest.take(variables), inf)
        follows = self._follows.take(variables)
        return np.maximum(longest, np.where(follows, np.nextafter(time, -inf), -inf))

    def _reserve(self, variable: int) -> None:
        while variable >= len(self._longest):
            self._longest = np.concatenate((self._longest, np.full(len(self._longest), -inf)))
            self._follows = np.concatenate((self._follows, np.zeros_like(self._follows)))
