"""Which slots of an index are somebody's own, so that they are not told as matches of filters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.ragged_array import grow_array


class OwnedSlots:
    """A set of slots, to be asked for many at once."""

    def __init__(self) -> None:
        self._mine: NDArray[np.bool_] = np.zeros(16, np.bool_)

    def add(self, slot: int) -> None:
        if slot + 1 >= len(self._mine):  # the last place stands for all slots beyond
            self._mine = grow_array(self._mine, 2 * (slot + 1))
        self._mine[slot] = True

    def remove(self, slot: int) -> None:
        self._mine[slot] = False

    def among(self, slots: Ints) -> NDArray[np.bool_]:
        """Which of these are in the set."""
        return self._mine.take(slots, mode="clip")
