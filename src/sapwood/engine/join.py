"""Leaves that must meet at one element, joined for all queries at once.

While a message is read, leaves are found at elements. For a bundle it matters at which *anchor* they are
found: the element, at or above the leaf's own, that the bundle's branching step stands for. An `Anchoring`
is a leaf seen from such a step; every distinct one has a number, shared by all bundles that contain it.

A message thus yields pairs (anchoring, anchor element), and a bundle is met where the pairs of all its
anchorings share an element. The pairs of each bundle's rarest anchoring, its *access*, are looked up; the
others are then only checked. All of it is done with a dozen array operations per message, whatever the
number of queries.

Where the anchor is, given the leaf's element:
    fixed up     no `//` between anchor and leaf: so many levels up
    fixed depth  no `//` down to the anchor: at that depth
    free         else: the depths are worked out from the path of names, and remembered for that path
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.dfa import tests_passed_by
from sapwood.engine.document import Document
from sapwood.engine.leaves import Bundle, Leaf
from sapwood.engine.nfa import DEEP
from sapwood.engine.rows import Rows
from sapwood.engine.values import NOTHING, Ints

_UP, _DEPTH, _FREE = 0, 1, 2
_LARGEST_ANCESTRY = 1 << 22
_LARGEST_TABLE = 1 << 26  # bytes of the table of pairs; beyond it, pairs are sorted and searched


class Anchorings:
    """Numbers for (leaf, step of the anchor), and how to find the anchor."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Leaf, int], int] = {}
        self._keys: list[tuple[Leaf, int] | None] = []
        self._uses: list[int] = []
        self._unused: list[int] = []
        self.kind: NDArray[np.int8] = np.zeros(16, np.int8)
        self.offset: Ints = np.zeros(16, np.int32)

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, number: int) -> tuple[Leaf, int]:
        key = self._keys[number]
        assert key is not None
        return key

    def use(self, leaf: Leaf, step: int) -> tuple[int, bool]:
        """The number of an anchoring, and whether it is new."""
        key = leaf, step
        number = self._numbers.get(key)
        if number is not None:
            self._uses[number] += 1
            return number, False
        if self._unused:
            number = self._unused.pop()
            self._keys[number], self._uses[number] = key, 1
        else:
            number = len(self._keys)
            self._keys.append(key)
            self._uses.append(1)
            if number == len(self.kind):
                self.kind = np.concatenate((self.kind, np.zeros_like(self.kind)))
                self.offset = np.concatenate((self.offset, np.zeros_like(self.offset)))
        self._numbers[key] = number
        self.kind[number], self.offset[number] = _whereabouts(leaf.path, step)
        return number, True

    def release(self, number: int) -> bool:
        """Takes back one use; whether it was the last."""
        self._uses[number] -= 1
        if self._uses[number]:
            return False
        del self._numbers[self.key(number)]
        self._keys[number] = None
        self._unused.append(number)
        return True


def _whereabouts(path: tuple[str, ...], step: int) -> tuple[int, int]:
    deep = [path[i - 1] == DEEP if i else False for i, symbol in enumerate(path) if symbol != DEEP]
    if not any(deep[step:]):
        return _UP, len(deep) - step
    if not any(deep[:step]):
        return _DEPTH, step
    return _FREE, 0


class TagPaths:
    """Where free anchors stand, by anchoring and path of names: worked out once, remembered for a while."""

    _MOST = 200_000

    def __init__(self) -> None:
        self._depths: dict[int, dict[tuple[str, ...], list[int]]] = {}
        self._size = 0

    def depths(self, number: int, leaf: Leaf, step: int, names: tuple[str, ...]) -> list[int]:
        """The depths at which the anchor may stand for a leaf found at the end of this path."""
        by_names = self._depths.setdefault(number, {})
        known = by_names.get(names)
        if known is None:
            known = by_names[names] = anchor_depths(leaf.path, step, names)
            self._size += 1
            if self._size > self._MOST:
                self._depths.clear()
                self._size = 0
        return known

    def forget(self, number: int) -> None:
        """The number will stand for another anchoring."""
        self._size -= len(self._depths.pop(number, ()))


def anchor_depths(path: tuple[str, ...], step: int, names: Sequence[str]) -> list[int]:
    """All depths at which the step-th step may match in a match of the path that ends at the last name."""
    steps: list[tuple[bool, str]] = []
    for i, symbol in enumerate(path):
        if symbol != DEEP:
            steps.append((i > 0 and path[i - 1] == DEEP, symbol))
    forward = _reachable(steps[:step], names)
    backward = [False] * len(names) + [True]
    for deep, test in reversed(steps[step:]):
        # backward[d]: from depth d, the rest of the steps can be matched to end at the last name
        before = [False] * (len(names) + 1)
        seen = False
        for depth in range(len(names), 0, -1):
            passed = backward[depth] and test in tests_passed_by(names[depth - 1])
            seen = seen or passed
            before[depth - 1] = seen if deep else passed
        backward = before
    return [depth for depth in range(len(names) + 1) if forward[depth] and backward[depth]]


def _reachable(steps: list[tuple[bool, str]], names: Sequence[str]) -> list[bool]:
    """For each depth, whether the steps have a match that ends there."""
    reached = [True] + [False] * len(names)
    for deep, test in steps:
        after = [False] * (len(names) + 1)
        above = False
        for depth in range(1, len(names) + 1):
            above = above or reached[depth - 1]
            start = above if deep else reached[depth - 1]
            after[depth] = start and test in tests_passed_by(names[depth - 1])
        reached = after
    return reached


class BundleJoin:
    """All bundles of two or more leaves, and the join that finds which of them a message meets."""

    def __init__(self) -> None:
        self.anchorings = Anchorings()
        self._numbers: dict[tuple[int, ...], int] = {}  # sorted anchorings → bundle
        self._parts: list[tuple[int, ...]] = []  # access first
        self._unused: list[int] = []
        self._by_access = Rows()
        self._others: Ints = np.full((16, 1), -1, np.int32)
        self.slots = Rows()  # bundle → slots
        self._table: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._tag_paths = TagPaths()

    def add(self, bundle: Bundle, slot: int) -> tuple[int, list[int]]:
        """Lets the bundle decide the slot: the bundle's number, and the anchorings that are new."""
        numbers, new = [], []
        for leaf in bundle.leaves:
            number, is_new = self.anchorings.use(leaf, bundle.anchor)
            numbers.append(number)
            if is_new:
                new.append(number)
        key = tuple(sorted(numbers))
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = self._store(bundle, numbers)
        else:
            for number in numbers:
                self.anchorings.release(number)
        self.slots.append(found, slot)
        return found, new

    def remove(self, bundle: int, slot: int) -> list[tuple[int, Leaf]]:
        """Takes the slot back; the anchorings that nobody needs any more, with their leaves."""
        self.slots.remove(bundle, slot)
        if self.slots.lengths[bundle]:
            return []
        parts = self._parts[bundle]
        del self._numbers[tuple(sorted(parts))]
        self._by_access.remove(parts[0], bundle)
        self._others[bundle] = -1
        self._unused.append(bundle)
        keys = [(number, self.anchorings.key(number)[0]) for number in parts]
        unused = [(number, leaf) for number, leaf in keys if self.anchorings.release(number)]
        for number, _ in unused:
            self._tag_paths.forget(number)
        return unused

    def _store(self, bundle: Bundle, numbers: list[int]) -> int:
        rank = {n: rarity(leaf) for n, leaf in zip(numbers, bundle.leaves, strict=True)}
        parts = tuple(sorted(numbers, key=lambda n: (rank[n], n)))
        if self._unused:
            number = self._unused.pop()
            self._parts[number] = parts
        else:
            number = len(self._parts)
            self._parts.append(parts)
        self._fit(number, len(parts) - 1)
        self._others[number, : len(parts) - 1] = parts[1:]
        self._by_access.append(parts[0], number)
        return number

    def _fit(self, bundle: int, others: int) -> None:
        rows, columns = self._others.shape
        if bundle >= rows or others > columns:
            larger = np.full((max(rows, 2 * bundle), max(columns, others)), -1, np.int32)
            larger[:rows, :columns] = self._others
            self._others = larger

    # -- per message -----------------------------------------------------------------------------------

    def fits(self, document: Document) -> bool:
        """Whether the pairs of a message can be held in memory; only huge and deep ones cannot."""
        return sum(document.depths) <= _LARGEST_ANCESTRY

    def met(self, document: Document, anchored: bool = True) -> Ints:
        """The slots of the bundles that a message meets.

        If not `anchored`, the slots of the bundles whose leaves are all found somewhere in the message:
        candidates, which the caller has to check.
        """
        self._by_access.reserve(len(self.anchorings))
        self.slots.reserve(len(self._parts))
        anchoring, element = self._found(document)
        if not len(anchoring):
            return anchoring
        if not anchored:
            return self._slots_of(self._all_there(np.unique(anchoring)))
        anchoring, anchor = self._anchored(anchoring, element, document)
        return self._slots_of(self._together(anchoring, anchor, len(document)))

    def _slots_of(self, bundles: Ints) -> Ints:
        return self.slots.gather(np.unique(bundles))[0]

    def _all_there(self, anchorings: Ints) -> Ints:
        """The bundles of which every anchoring is among those given."""
        there = np.zeros(len(self.anchorings) + 1, np.bool_)
        there[anchorings] = there[-1] = True  # the last stands for "no other", number -1
        bundles, _ = self._by_access.gather(anchorings)
        found: Ints = bundles[there[self._others[bundles]].all(axis=1)]
        return found

    def _together(self, anchoring: Ints, anchor: Ints, elements: int) -> Ints:
        """The bundles of which every anchoring is found at one anchor."""
        bundles, source = self._by_access.gather(anchoring)
        if not len(bundles):
            return bundles
        anchors = anchor[source]
        keys = anchoring.astype(np.int64) * elements + anchor
        there = self._membership(keys, elements)
        for column in range(self._others.shape[1]):
            other = self._others[bundles, column]
            met = (other < 0) | there(np.maximum(other, 0).astype(np.int64) * elements + anchors)
            bundles, anchors = bundles[met], anchors[met]
        self._forget_pairs(keys)
        return bundles

    def _membership(
        self, keys: NDArray[np.int64], elements: int
    ) -> Callable[[NDArray[np.int64]], NDArray[np.bool_]]:
        size = len(self.anchorings) * elements
        if size > _LARGEST_TABLE:
            ordered = np.unique(keys)

            def search(wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
                place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
                found: NDArray[np.bool_] = ordered[place] == wanted
                return found

            return search
        if size > len(self._table):
            self._table = np.zeros(2 * size, np.bool_)
        self._table[keys] = True
        return self._table.__getitem__

    def _forget_pairs(self, keys: NDArray[np.int64]) -> None:
        if len(self._table) and len(keys) and int(keys.max()) < len(self._table):
            self._table[keys] = False

    def _found(self, document: Document) -> tuple[Ints, Ints]:
        """All (anchoring, element of its leaf) of the message."""
        runs: list[Ints] = []
        at: list[int] = []
        for element, state in enumerate(document.states):
            anchors = state.anchors
            if anchors is None:
                state.machine.read(state)
                anchors = state.anchors
            assert anchors is not None
            if len(anchors):
                runs.append(anchors)
                at.append(element)
        for hit, element in zip(document.hits, document.hit_at, strict=True):
            if len(hit.anchors):
                runs.append(hit.anchors)
                at.append(element)
        if not runs:
            return NOTHING, NOTHING
        lengths = [len(run) for run in runs]
        return np.concatenate(runs), np.repeat(np.array(at, np.int32), lengths)

    def _anchored(self, anchoring: Ints, element: Ints, document: Document) -> tuple[Ints, Ints]:
        """Replaces each leaf's element by its anchor; a free one may have several."""
        chains, start, depth = _ancestry(document.parents, document.depths)
        kind, offset = self.anchorings.kind[anchoring], self.anchorings.offset[anchoring]
        level = np.where(kind == _UP, depth[element] - offset, offset)
        free = np.flatnonzero(kind == _FREE)
        anchor = chains[start[element] + level]
        if not len(free):
            return anchoring, anchor
        fixed = kind != _FREE
        numbers, anchors = self._free(anchoring[free].tolist(), element[free].tolist(), document)
        return (
            np.concatenate((anchoring[fixed], np.array(numbers, np.int32))),
            np.concatenate((anchor[fixed], np.array(anchors, np.int32))),
        )

    def _free(
        self, anchoring: Iterable[int], element: Iterable[int], document: Document
    ) -> tuple[list[int], list[int]]:
        numbers: list[int] = []
        anchors: list[int] = []
        trails: dict[int, tuple[list[int], tuple[str, ...]]] = {}
        for number, at in zip(anchoring, element, strict=True):
            trail = trails.get(at)
            if trail is None:
                trail = trails[at] = _trail(at, document.parents, document.names)
            leaf, step = self.anchorings.key(number)
            for depth in self._tag_paths.depths(number, leaf, step, trail[1]):
                numbers.append(number)
                anchors.append(trail[0][depth])
        return numbers, anchors


def rarity(leaf: Leaf) -> tuple[int, int]:
    """A guess at how rarely a leaf is found, rarest first: by its test, then by how specific its path is."""
    if leaf.test is None:
        by_test = 3
    else:
        by_test = {"=": 0, "contains": 1, "starts-with": 1, "!=": 3}.get(leaf.test.op, 2)
    specific = sum(symbol not in ("*", DEEP) for symbol in leaf.path)
    return by_test, -specific


def _ancestry(parents: list[int], depths: list[int]) -> tuple[Ints, Ints, Ints]:
    """The chains from the document to each element, end to end: chain, where each starts, depths."""
    chains: list[list[int]] = [[0]]
    for element in range(1, len(parents)):
        chains.append([*chains[parents[element]], element])
    depth = np.array(depths, np.int32)
    start = np.zeros(len(chains), np.int32)
    np.cumsum(depth[:-1] + 1, out=start[1:])
    flat = np.fromiter(chain.from_iterable(chains), np.int32)
    return flat, start, depth


def _trail(element: int, parents: list[int], names: list[str]) -> tuple[list[int], tuple[str, ...]]:
    """The elements from the document down to this one, and their names."""
    upwards: list[int] = []
    while element:
        upwards.append(element)
        element = parents[element]
    upwards.reverse()
    return [0, *upwards], tuple(names[e] for e in upwards)
