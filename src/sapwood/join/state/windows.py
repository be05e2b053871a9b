"""What queries that share a row of a template still differ in: windows, and who gets what is met."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.ragged_array import grow_array
from sapwood.join.state.message_state import Floats


class Members:
    """Windows by number, in columns."""

    def __init__(self) -> None:
        self._window: Floats = np.zeros(16, np.float64)
        self._ordered: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self._since: NDArray[np.int64] = np.zeros(16, np.int64)
        self.entry: Ints = np.zeros(16, np.int32)
        self._used = 0
        self._unused: list[int] = []
        self.unordered = 0
        """how many do not care which message is first"""

    def add(self, ordered: bool, window: float, since: int, entry: int) -> int:
        """A member that sees only messages from a sequence number on; `entry` is -1 for parts of chains."""
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
        self.unordered -= not self._ordered[number]
        self._unused.append(number)

    def hold(self, members: Ints, before: Any, after: Any, sequence: Any) -> NDArray[np.bool_]:
        """Whether the times of the left and the right side, and the first sequence number, suit them."""
        apart = after - before
        ordered = self._ordered.take(members)
        close = np.abs(apart) <= self._window.take(members)
        held: NDArray[np.bool_] = close & (~ordered | (apart > 0)) & (self._since.take(members) <= sequence)
        return held


class Waiting:
    """How long the values of each variable have to be kept."""

    def __init__(self) -> None:
        self._windows: dict[int, Counter[float]] = {}
        self._followers: Counter[int] = Counter()
        self._longest: Floats = np.full(16, -inf)
        self._follows: NDArray[np.bool_] = np.zeros(16, np.bool_)

    def add(self, variable: int, window: float) -> None:
        """A variable waits for messages within a window after it."""
        self._reserve(variable)
        windows = self._windows.setdefault(variable, Counter())
        windows[window] += 1
        if window > self._longest[variable]:
            self._longest[variable] = window

    def remove(self, variable: int, window: float) -> None:
        windows = self._windows[variable]
        windows[window] -= 1
        if not windows[window]:
            del windows[window]
        if not windows:
            del self._windows[variable]
        if window == self._longest[variable] and window not in windows:
            self._longest[variable] = max(windows, default=-inf)

    def add_follower(self, variable: int) -> None:
        """A variable waits for messages that are before it in time, and come late."""
        self._reserve(variable)
        self._followers[variable] += 1
        self._follows[variable] = True

    def remove_follower(self, variable: int) -> None:
        self._followers[variable] -= 1
        self._follows[variable] = bool(self._followers[variable])

    def until(self, variables: Ints, time: float | Floats) -> Floats:
        """For each variable, the last watermark at which its value may still be wanted."""
        # a little more, since times and windows are rounded
        longest: Floats = np.nextafter(time + self._longest.take(variables), inf)
        follows = self._follows.take(variables)
        return np.maximum(longest, np.where(follows, np.nextafter(time, -inf), -inf))

    def _reserve(self, variable: int) -> None:
        while variable >= len(self._longest):
            self._longest = np.concatenate((self._longest, np.full(len(self._longest), -inf)))
            self._follows = np.concatenate((self._follows, np.zeros_like(self._follows)))
