"""Parts that must meet at one element, joined for all queries at once.

While a message is read, leaves are found at elements. That yields pairs (anchoring, anchor element), and a
bundle is met at an element where the pairs of all its anchorings meet. The pairs of each bundle's rarest
part, its *access*, are looked up; the others are then only checked. Bundles that are parts of others are met
first, and yield pairs for the next level.

All of it is done with a dozen array operations per message and level, whatever the number of queries.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.dataguide import GuideNode
from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.automaton.predicate_index import NO_INTS, Hits, Ints
from sapwood.engine.automaton.query_paths import Leaf, Twig
from sapwood.engine.automaton.ragged_array import RaggedArray
from sapwood.engine.automaton.twig_anchors import Anchorings, Part
from sapwood.engine.message.ancestry import Ancestry
from sapwood.engine.message.document import Document

_DEEPEST = 64
_LARGEST_ANCESTRY = 1 << 18
_LARGEST_TABLE = 1 << 26  # bytes; beyond it, pairs are sorted and searched


class TwigJoin:
    """All bundles, and the join that finds which of them a message meets."""

    def __init__(self) -> None:
        self.anchorings = Anchorings()
        self._numbers: dict[Twig, int] = {}
        self._bundles: list[tuple[Twig, tuple[int, ...]] | None] = []  # with anchorings, access first
        self._unused: list[int] = []
        self._by_access: list[RaggedArray] = []  # for each level: anchoring → bundles
        self._others = RaggedArray()  # bundle → its anchorings besides the access
        self._slots = RaggedArray()  # bundle → slots that it decides
        self._views = RaggedArray()  # bundle → anchorings of it, as part of others
        self._pairs = _Pairs()

    # -- the population --------------------------------------------------------------------------------

    def add(self, bundle: Twig, slot: int) -> tuple[int, list[int]]:
        """Lets the bundle decide the slot: the bundle's number, and anchorings of leaves that are new."""
        new: list[int] = []
        number = self._use(bundle, new)
        self._slots.append(number, slot)
        return number, new

    def remove(self, number: int, slot: int) -> list[tuple[int, Leaf]]:
        """Takes the slot back; the anchorings that nobody needs any more, with their leaves."""
        self._slots.remove(number, slot)
        gone: list[tuple[int, Leaf]] = []
        self._discard_unused(number, gone)
        return gone

    def _use(self, bundle: Twig, new: list[int]) -> int:
        number = self._numbers.get(bundle)
        if number is not None:
            return number
        anchorings: dict[int, Part] = {}
        for part in bundle.parts:
            anchoring, is_new = self.anchorings.use(part, bundle.step)
            anchorings[anchoring] = part
            if is_new and isinstance(part, Twig):
                self._views.append(self._use(part, new), anchoring)
            elif is_new:
                new.append(anchoring)
        number = self._numbers[bundle] = self._store(bundle, anchorings)
        return number

    def _store(self, bundle: Twig, anchorings: dict[int, Part]) -> int:
        ordered = tuple(sorted(anchorings, key=lambda number: (rarity(anchorings[number]), number)))
        if self._unused:
            number = self._unused.pop()
            self._bundles[number] = bundle, ordered
        else:
            number = len(self._bundles)
            self._bundles.append((bundle, ordered))
            self._slots.reserve(number + 1)
            self._views.reserve(number + 1)
            self._others.reserve(number + 1)
        for other in ordered[1:]:
            self._others.append(number, other)
        while len(self._by_access) <= bundle.level:
            self._by_access.append(RaggedArray())
        self._by_access[bundle.level].append(ordered[0], number)
        return number

    def _discard_unused(self, number: int, gone: list[tuple[int, Leaf]]) -> None:
        if self._slots.lengths[number] or self._views.lengths[number]:
            return
        stored = self._bundles[number]
        assert stored is not None
        bundle, anchorings = stored
        del self._numbers[bundle]
        self._bundles[number] = None
        self._unused.append(number)
        self._by_access[bundle.level].remove(anchorings[0], number)
        self._others.clear(number)
        for anchoring in anchorings:
            part = self.anchorings.part(anchoring)
            if not self.anchorings.release(anchoring):
                continue
            if isinstance(part, Leaf):
                gone.append((anchoring, part))
            else:
                nested = self._numbers[part]
                self._views.remove(nested, anchoring)
                self._discard_unused(nested, gone)

    # -- per message -----------------------------------------------------------------------------------

    def fits(self, document: Document) -> bool:
        """Whether joining pays: not for huge messages, nor deep ones, where anchors may stand anywhere."""
        return max(document.depths) <= _DEEPEST and sum(document.depths) <= _LARGEST_ANCESTRY

    def met(self, document: Document, ancestry: Ancestry) -> tuple[Ints, Ints]:
        """The slots of the bundles that a message meets, and the element where each is met."""
        anchoring, anchor = self._found(document, ancestry)
        if not len(anchoring):
            return NO_INTS, NO_INTS
        self._pairs.start(len(self.anchorings), len(document))
        anchoring, anchor = self._pairs.add(anchoring, anchor)
        slots: list[Ints] = []
        met_at: list[Ints] = []
        for level, by_access in enumerate(self._by_access):
            bundles, anchors = self._together(by_access, anchoring, anchor)
            decided, source = self._slots.gather(bundles)
            slots.append(decided)
            met_at.append(anchors.take(source))
            if level + 1 < len(self._by_access) and len(bundles):
                lifted, at = self._pairs.add(*self._lifted(bundles, anchors, document, ancestry))
                anchoring, anchor = np.concatenate((anchoring, lifted)), np.concatenate((anchor, at))
        self._pairs.clear()
        return np.concatenate(slots), np.concatenate(met_at)

    def candidates(self, document: Document) -> Ints:
        """The slots of the bundles whose leaves are all found somewhere in a message: a superset of `met`."""
        there = np.zeros(len(self.anchorings), np.bool_)
        for place in set(document.places):
            there[place.read_anchors()] = True
        for hit in document.hits:
            there[hit.anchors] = True
        slots = [NO_INTS]
        for by_access in self._by_access:
            by_access.reserve(len(self.anchorings))
            bundles = by_access.gather(np.flatnonzero(there))[0]
            others, source = self._others.gather(bundles)
            bundles = bundles[_all(there[others], source, len(bundles))]
            slots.append(self._slots.gather(bundles)[0])
            there[self._views.gather(bundles)[0]] = True
        return np.concatenate(slots)

    def _together(self, by_access: RaggedArray, anchoring: Ints, anchor: Ints) -> tuple[Ints, Ints]:
        """The bundles of which every anchoring is found at one anchor, and that anchor."""
        by_access.reserve(len(self.anchorings))
        bundles, source = by_access.gather(anchoring)
        anchors = anchor.take(source)
        others, source = self._others.gather(bundles)
        met = _all(self._pairs.has(others, anchors.take(source)), source, len(bundles))
        return bundles[met], anchors[met]

    def _lifted(
        self, bundles: Ints, elements: Ints, document: Document, ancestry: Ancestry
    ) -> tuple[Ints, Ints]:
        """The pairs that bundles met at these elements yield, as parts of others."""
        anchorings, source = self._views.gather(bundles)
        at = elements.take(source)
        levels, free = self.anchorings.levels(anchorings, ancestry.depths.take(at))
        anchors = ancestry.at(at, levels)
        if not free.any():
            return anchorings, anchors
        numbers: list[int] = []
        more: list[int] = []
        for number, element in set(zip(anchorings[free].tolist(), at[free].tolist(), strict=True)):
            line = ancestry.line(element)
            depths = self.anchorings.free_depths(number, document.tag_path(element))
            numbers += [number] * len(depths)
            more += [line[depth] for depth in depths]
        return (
            np.concatenate((anchorings[~free], np.array(numbers, np.int32))),
            np.concatenate((anchors[~free], np.array(more, np.int32))),
        )

    def _found(self, document: Document, ancestry: Ancestry) -> tuple[Ints, Ints]:
        """All (anchoring, anchor element) of the message's leaves."""
        anchorings: list[Ints] = []
        levels: list[Ints] = []
        at: list[int] = []
        found_at: chain[tuple[int, GuideNode | Hits]] = chain(
            enumerate(document.places), zip(document.hit_at, document.hits, strict=True)
        )
        for element, owner in found_at:
            anchors = owner.anchors if owner.anchors is not None else owner.read_anchors()
            if anchors is NO_INTS:
                continue
            if owner.reach is None:
                owner.reach = self.anchorings.reach(anchors, document.tag_path(element))
            anchorings.append(owner.reach[0])
            levels.append(owner.reach[1])
            at.append(element)
        if not at:
            return NO_INTS, NO_INTS
        elements = np.repeat(np.array(at, np.int32), [len(run) for run in anchorings])
        return np.concatenate(anchorings), ancestry.at(elements, np.concatenate(levels))


class _Pairs:
    """A set of (anchoring, element), as a table of flags or, if that were too large, a sorted list."""

    def __init__(self) -> None:
        self._table: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._keys: list[NDArray[np.int64]] = []
        self._sorted: NDArray[np.int64] | None = None
        self._elements = 0

    def start(self, anchorings: int, elements: int) -> None:
        self._elements = elements
        size = anchorings * elements
        self._sorted = np.zeros(0, np.int64) if size > _LARGEST_TABLE else None
        if self._sorted is None and size > len(self._table):
            self._table = np.zeros(2 * size, np.bool_)

    def add(self, anchoring: Ints, element: Ints) -> tuple[Ints, Ints]:
        """Adds pairs, and returns them without repetitions: a path with `//` often finds them twice."""
        keys = anchoring.astype(np.int64) * self._elements + element
        keys.sort()
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if len(keys) else keys
        if self._sorted is None:
            self._table[keys] = True
            self._keys.append(keys)
        else:
            self._sorted = np.union1d(self._sorted, keys)
        distinct = (keys // self._elements).astype(np.int32)
        return distinct, (keys - distinct.astype(np.int64) * self._elements).astype(np.int32)

    def has(self, anchoring: Ints, element: Ints) -> NDArray[np.bool_]:
        keys = anchoring.astype(np.int64) * self._elements + element
        if self._sorted is None:
            return self._table.take(keys)
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        found: NDArray[np.bool_] = self._sorted[place] == keys
        return found

    def clear(self) -> None:
        """Unsets only what was set: the table is large, a message's pairs are few."""
        for keys in self._keys:
            self._table[keys] = False
        self._keys.clear()


def _all(flags: NDArray[np.bool_], source: Ints, length: int) -> NDArray[np.bool_]:
    """For each source, whether all its flags are set."""
    every = np.ones(length, np.bool_)
    every[source[~flags]] = False
    return every


def rarity(part: Part) -> tuple[int, int]:
    """A guess at how rarely a part is found, rarest first: by its tests, then by how specific its path is."""
    if isinstance(part, Twig):
        return min(rarity(inner) for inner in part.parts)
    if part.test is None:
        by_test = 3
    else:
        by_test = {"=": 0, "contains": 1, "starts-with": 1, "!=": 3}.get(part.test.op, 2)
    return by_test, -sum(symbol not in ("*", DESCENDANT) for symbol in part.path)
