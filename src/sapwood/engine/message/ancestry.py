"""The ancestors of elements in a message, for many elements at once."""

from __future__ import annotations

from itertools import chain

import numpy as np

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.message.document import Document


class Ancestry:
    """The chains from the document to each element of a message, end to end in one array."""

    def __init__(self, document: Document) -> None:
        chains: list[list[int]] = [[0]]
        parents = document.parents
        for element in range(1, len(parents)):
            chains.append([*chains[parents[element]], element])
        self._lines = chains
        self._chains = np.fromiter(chain.from_iterable(chains), np.int32)
        self.depths = np.array(document.depths, np.int32)
        self._start = np.zeros(len(chains), np.int32)
        np.cumsum(self.depths[:-1] + 1, out=self._start[1:])

    def line(self, element: int) -> list[int]:
        """Return the elements from the document down to this one."""
        return self._lines[element]

    def at(self, elements: Ints, levels: Ints) -> Ints:
        """Return the ancestor of each element at that depth."""
        return self._chains.take(self._start.take(elements) + levels)
