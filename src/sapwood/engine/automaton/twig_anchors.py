"""Anchorings: the positions of anchors relative to the elements at which leaves or twigs are found.

The parts of a twig have to meet at an element of a certain step of their paths, the *anchor*. An *anchoring*
is a part with such a step; every distinct one has a number, shared by all twigs that contain it. Given the
element at which the part was found, its anchor is

    fixed up     if no `//` lies between anchor and part: a fixed number of levels up
    fixed depth  if no `//` lies above the anchor: at that depth
    free         else: at any depth where the path of names allows it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sapwood.engine.automaton.dataguide import name_tests_of
from sapwood.engine.automaton.item_numbers import store_item
from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.query_paths import Leaf, Twig, steps_in
from sapwood.engine.automaton.ragged_array import grow_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UP, _DEPTH, _FREE = 0, 1, 2
Part = Leaf | Twig


class Anchorings:
    """Numbers for pairs (part, step of the anchor), and the position of each anchor. Numbers are reused."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Part, int], int] = {}
        self._keys: list[tuple[Part, int] | None] = []
        self._uses: list[int] = []
        self._free_numbers: list[int] = []
        self._kind: NDArray[np.int8] = np.zeros(16, np.int8)
        self._offset: Ints = np.zeros(16, np.int32)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def used(self) -> int:
        """The count of numbers in use."""
        return len(self._numbers)

    def numbers(self) -> Iterator[int]:
        """Yield the numbers in use."""
        return iter(self._numbers.values())

    def uses(self, number: int) -> int:
        return self._uses[number]

    def part(self, number: int) -> Part:
        return self._key(number)[0]

    def _key(self, number: int) -> tuple[Part, int]:
        key = self._keys[number]
        assert key is not None
        return key

    def use(self, part: Part, step: int) -> tuple[int, bool]:
        """Add one use of an anchoring: return its number, and whether it is new."""
        key = part, step
        number = self._numbers.get(key)
        if number is not None:
            self._uses[number] += 1
            return number, False
        number = store_item(key, self._keys, self._uses, self._free_numbers)
        if number == len(self._kind):
            self._kind = grow_array(self._kind, 2 * number)
            self._offset = grow_array(self._offset, 2 * number)
        self._numbers[key] = number
        self._kind[number], self._offset[number] = _anchor_position(part.path, step)
        return number, True

    def release(self, number: int) -> bool:
        """Take back one use, and return whether it was the last."""
        self._uses[number] -= 1
        if self._uses[number]:
            return False
        del self._numbers[self._key(number)]
        self._keys[number] = None
        self._free_numbers.append(number)
        return True

    def reach(self, found: Ints, path: tuple[str, ...]) -> tuple[Ints, Ints]:
        """Return the anchorings found at the end of a path of names, and the depths of their anchors.

        A free one is listed once for each depth at which its anchor may be.
        """
        levels, free = self.levels(found, len(path))
        if not free.any():
            return found, levels
        numbers: list[int] = []
        depths: list[int] = []
        for number in found[free].tolist():
            possible = self.free_depths(number, path)
            numbers += [number] * len(possible)
            depths += possible
        return (
            np.concatenate((found[~free], np.array(numbers, np.int32))),
            np.concatenate((levels[~free], np.array(depths, np.int32))),
        )

    def levels(self, found: Ints, depths: Ints | int) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the depths of the anchors of anchorings found at these depths, and a mask of the free."""
        kind, offset = self._kind.take(found), self._offset.take(found)
        return np.where(kind == _UP, depths - offset, offset), kind == _FREE

    def free_depths(self, number: int, path: tuple[str, ...]) -> list[int]:
        part, step = self._key(number)
        return anchor_depths(part.path, step, path)


def _anchor_position(path: tuple[str, ...], step: int) -> tuple[int, int]:
    deep = [i > 0 and path[i - 1] == DESCENDANT for i, symbol in enumerate(path) if symbol != DESCENDANT]
    if not any(deep[step:]):
        return _UP, steps_in(path) - step
    if not any(deep[:step]):
        return _DEPTH, step
    return _FREE, 0


def anchor_depths(path: tuple[str, ...], step: int, names: Sequence[str]) -> list[int]:
    """Return all depths at which the step-th step may match when the path ends at the last name."""
    steps = [
        (i > 0 and path[i - 1] == DESCENDANT, symbol) for i, symbol in enumerate(path) if symbol != DESCENDANT
    ]
    forward = _reachable(steps[:step], names)
    backward = [False] * len(names) + [True]
    for deep, test in reversed(steps[step:]):
        # backward[d]: from depth d, the rest of the steps can be matched to end at the last name
        before = [False] * (len(names) + 1)
        seen = False
        for depth in range(len(names), 0, -1):
            passed = backward[depth] and test in name_tests_of(names[depth - 1])
            seen = seen or passed
            before[depth - 1] = seen if deep else passed
        backward = before
    return [depth for depth in range(len(names) + 1) if forward[depth] and backward[depth]]


def _reachable(steps: list[tuple[bool, str]], names: Sequence[str]) -> list[bool]:
    """Return, for each depth, whether the steps have a match that ends there."""
    reached = [True] + [False] * len(names)
    for deep, test in steps:
        after = [False] * (len(names) + 1)
        above = False
        for depth in range(1, len(names) + 1):
            above = above or reached[depth - 1]
            start = above if deep else reached[depth - 1]
            after[depth] = start and test in name_tests_of(names[depth - 1])
        reached = after
    return reached
