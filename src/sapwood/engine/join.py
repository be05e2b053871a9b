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
    free         else: the depths are worked out from the path of names
Since a Place, and the Hits of a value there, belong to one path of names, what is worked out is kept there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.document import Document
from sapwood.engine.leaves import Bundle, Leaf
from sapwood.engine.machine import Place, tests_passed_by
from sapwood.engine.nfa import DEEP
from sapwood.engine.rows import Rows
from sapwood.engine.values import NOTHING, Hits, Ints

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

    def reach(self, found: Ints, path: tuple[str, ...]) -> tuple[Ints, Ints]:
        """The anchorings found at the end of a path of names, and the depths of their anchors.

        A free one is listed once for each depth at which its anchor may stand.
        """
        kind, offset = self.kind[found], self.offset[found]
        level = np.where(kind == _UP, len(path) - offset, offset)
        if not (kind == _FREE).any():
            return found, level
        numbers: list[int] = []
        depths: list[int] = []
        for number in found[kind == _FREE].tolist():
            leaf, step = self.key(number)
            possible = anchor_depths(leaf.path, step, path)
            numbers += [number] * len(possible)
            depths += possible
        fixed = kind != _FREE
        return (
            np.concatenate((found[fixed], np.array(numbers, np.int32))),
            np.concatenate((level[fixed], np.array(depths, np.int32))),
        )


def _whereabouts(path: tuple[str, ...], step: int) -> tuple[int, int]:
    deep = [path[i - 1] == DEEP if i else False for i, symbol in enumerate(path) if symbol != DEEP]
    if not any(deep[step:]):
        return _UP, len(deep) - step
    if not any(deep[:step]):
        return _DEPTH, step
    return _FREE, 0


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
        return [(number, leaf) for number, leaf in keys if self.anchorings.release(number)]

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
        if not anchored:
            bundles = self._all_there(_anchorings_found(document))
        else:
            anchoring, anchor = self._found(document)
            bundles = self._together(anchoring, anchor, len(document))
        return self.slots.gather(bundles)[0]

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
            return NOTHING
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
        """All (anchoring, anchor element) of the message."""
        anchorings: list[Ints] = []
        levels: list[Ints] = []
        at: list[int] = []
        paths = _tag_paths(document)
        for element, place in enumerate(document.places):
            if place.read_anchors() is not NOTHING:
                self._reach(place, paths[element], element, anchorings, levels, at)
        for hit, element in zip(document.hits, document.hit_at, strict=True):
            if hit.anchors is not NOTHING:
                self._reach(hit, paths[element], element, anchorings, levels, at)
        if not at:
            return NOTHING, NOTHING
        chains, start = _ancestry(document)
        element_of = np.repeat(np.array(at, np.int32), [len(run) for run in anchorings])
        return np.concatenate(anchorings), chains[start[element_of] + np.concatenate(levels)]

    def _reach(
        self,
        owner: Place | Hits,
        path: tuple[str, ...],
        element: int,
        anchorings: list[Ints],
        levels: list[Ints],
        at: list[int],
    ) -> None:
        """Lists the anchorings found at an element, with the depths of their anchors."""
        reach = owner.reach
        if reach is None:
            assert owner.anchors is not None
            reach = owner.reach = self.anchorings.reach(owner.anchors, path)
        anchorings.append(reach[0])
        levels.append(reach[1])
        at.append(element)


def _anchorings_found(document: Document) -> Ints:
    """The anchorings whose leaf is found anywhere in the message."""
    runs = [hit.anchors for hit in document.hits]
    for place in set(document.places):
        runs.append(place.read_anchors())
    return np.unique(np.concatenate(runs))


def rarity(leaf: Leaf) -> tuple[int, int]:
    """A guess at how rarely a leaf is found, rarest first: by its test, then by how specific its path is."""
    if leaf.test is None:
        by_test = 3
    else:
        by_test = {"=": 0, "contains": 1, "starts-with": 1, "!=": 3}.get(leaf.test.op, 2)
    specific = sum(symbol not in ("*", DEEP) for symbol in leaf.path)
    return by_test, -specific


def _ancestry(document: Document) -> tuple[Ints, Ints]:
    """The chains from the document to each element, end to end, and where each starts."""
    chains: list[list[int]] = [[0]]
    parents = document.parents
    for element in range(1, len(parents)):
        chains.append([*chains[parents[element]], element])
    start = np.zeros(len(chains), np.int32)
    np.cumsum(np.array(document.depths[:-1], np.int32) + 1, out=start[1:])
    return np.fromiter(chain.from_iterable(chains), np.int32), start


def _tag_paths(document: Document) -> list[tuple[str, ...]]:
    """For each element, the names from the root element down to it."""
    paths: list[tuple[str, ...]] = [()]
    names = document.names
    for element, parent in enumerate(document.parents):
        if element:
            paths.append((*paths[parent], names[element]))
    return paths
