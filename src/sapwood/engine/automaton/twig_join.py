"""The twig join: parts of tree patterns that must meet at one element, joined for all queries at once.

While a message is read, leaves are found at elements. That yields pairs (anchoring, anchor element), and a
twig matches at an element where the pairs of all its anchorings meet. The pairs of each twig's rarest part,
its *access*, are looked up; the others are then only checked. Twigs that are parts of others are matched
first, and yield pairs for the next level.

All of it is done with a dozen array operations per message and level, whatever the number of queries.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from sapwood.engine.automaton.dataguide import GuideNode
from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.automaton.predicate_index import NO_INTS, Hits, Ints
from sapwood.engine.automaton.query_paths import Leaf, Twig
from sapwood.engine.automaton.ragged_array import RaggedArray
from sapwood.engine.automaton.twig_anchors import Anchorings, Part
from sapwood.engine.message.ancestry import Ancestry
from sapwood.engine.message.document import Document

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_DEPTH = 64
_MAX_ANCESTRY = 1 << 18
_MAX_TABLE = 1 << 26  # bytes; beyond it, pairs are sorted and searched


class TwigJoin:
    """All twigs of the registered queries, and the join that finds which of them match."""

    def __init__(self) -> None:
        self.anchorings = Anchorings()
        self._numbers: dict[Twig, int] = {}
        self._twigs: list[tuple[Twig, tuple[int, ...]] | None] = []  # with anchorings, access first
        self._free: list[int] = []
        self._by_access: list[RaggedArray] = []  # for each level: anchoring → twigs
        self._others = RaggedArray()  # twig → its anchorings besides the access
        self._slots = RaggedArray()  # twig → slots that it decides
        self._parent_anchorings = RaggedArray()  # twig → its anchorings as part of others
        self._pairs = _Pairs()

    # -- registration ----------------------------------------------------------------------------------

    def add(self, twig: Twig, slot: int) -> tuple[int, list[int]]:
        """Have a twig decide a slot: return the twig's number and the anchorings of leaves that are new."""
        new: list[int] = []
        number = self._use(twig, new)
        self._slots.append(number, slot)
        return number, new

    def remove(self, number: int, slot: int) -> list[tuple[int, Leaf]]:
        """Take a slot back: return the anchorings that are no longer used, with their leaves."""
        self._slots.remove(number, slot)
        gone: list[tuple[int, Leaf]] = []
        self._discard_unused(number, gone)
        return gone

    def twig(self, number: int) -> Twig:
        """Return a twig by its number."""
        stored = self._twigs[number]
        assert stored is not None
        return stored[0]

    def _use(self, twig: Twig, new: list[int]) -> int:
        number = self._numbers.get(twig)
        if number is not None:
            return number
        anchorings: dict[int, Part] = {}
        for part in twig.parts:
            anchoring, is_new = self.anchorings.use(part, twig.step)
            anchorings[anchoring] = part
            if is_new and isinstance(part, Twig):
                self._parent_anchorings.append(self._use(part, new), anchoring)
            elif is_new:
                new.append(anchoring)
        number = self._numbers[twig] = self._store(twig, anchorings)
        return number

    def _store(self, twig: Twig, anchorings: dict[int, Part]) -> int:
        ordered = tuple(sorted(anchorings, key=lambda number: (rarity(anchorings[number]), number)))
        if self._free:
            number = self._free.pop()
            self._twigs[number] = twig, ordered
        else:
            number = len(self._twigs)
            self._twigs.append((twig, ordered))
            self._slots.reserve(number + 1)
            self._parent_anchorings.reserve(number + 1)
            self._others.reserve(number + 1)
        for other in ordered[1:]:
            self._others.append(number, other)
        while len(self._by_access) <= twig.level:
            self._by_access.append(RaggedArray())
        self._by_access[twig.level].append(ordered[0], number)
        return number

    def _discard_unused(self, number: int, gone: list[tuple[int, Leaf]]) -> None:
        if self._slots.lengths[number] or self._parent_anchorings.lengths[number]:
            return
        stored = self._twigs[number]
        assert stored is not None
        twig, anchorings = stored
        del self._numbers[twig]
        self._twigs[number] = None
        self._free.append(number)
        self._by_access[twig.level].remove(anchorings[0], number)
        self._others.clear(number)
        for anchoring in anchorings:
            part = self.anchorings.part(anchoring)
            if not self.anchorings.release(anchoring):
                continue
            if isinstance(part, Leaf):
                gone.append((anchoring, part))
            else:
                nested = self._numbers[part]
                self._parent_anchorings.remove(nested, anchoring)
                self._discard_unused(nested, gone)

    # -- per message -----------------------------------------------------------------------------------

    def fits(self, document: Document) -> bool:
        """Return whether joining pays: not for huge messages, nor deep ones, with anchors at many depths."""
        return max(document.depths) <= _MAX_DEPTH and sum(document.depths) <= _MAX_ANCESTRY

    def match(self, document: Document, ancestry: Ancestry) -> tuple[Ints, Ints]:
        """Return the slots of the twigs that match, each with the element at which its twig does."""
        anchoring, anchor = self._leaf_pairs(document, ancestry)
        if not len(anchoring):
            return NO_INTS, NO_INTS
        self._pairs.start(len(self.anchorings), len(document))
        anchoring, anchor = self._pairs.add(anchoring, anchor)
        slots: list[Ints] = []
        elements: list[Ints] = []
        for level, by_access in enumerate(self._by_access):
            twigs, anchors = self._match_level(by_access, anchoring, anchor)
            decided, source = self._slots.gather(twigs)
            slots.append(decided)
            elements.append(anchors.take(source))
            if level + 1 < len(self._by_access) and len(twigs):
                lifted, at = self._pairs.add(*self._twig_pairs(twigs, anchors, document, ancestry))
                anchoring, anchor = np.concatenate((anchoring, lifted)), np.concatenate((anchor, at))
        self._pairs.clear()
        return np.concatenate(slots), np.concatenate(elements)

    def candidates(self, document: Document) -> Ints:
        """Return the slots of the twigs whose leaves are all found somewhere: a superset of `match`."""
        present = np.zeros(len(self.anchorings), np.bool_)
        for node in set(document.guide_nodes):
            present[node.read_anchorings()] = True
        for hit in document.hits:
            present[hit.anchorings] = True
        slots = [NO_INTS]
        for by_access in self._by_access:
            by_access.reserve(len(self.anchorings))
            twigs = by_access.gather(np.flatnonzero(present))[0]
            others, source = self._others.gather(twigs)
            twigs = twigs[_all(present[others], source, len(twigs))]
            slots.append(self._slots.gather(twigs)[0])
            present[self._parent_anchorings.gather(twigs)[0]] = True
        return np.concatenate(slots)

    def _match_level(self, by_access: RaggedArray, anchoring: Ints, anchor: Ints) -> tuple[Ints, Ints]:
        """Return the twigs of which every anchoring is found at one anchor, and that anchor."""
        by_access.reserve(len(self.anchorings))
        twigs, source = by_access.gather(anchoring)
        anchors = anchor.take(source)
        others, source = self._others.gather(twigs)
        matched = _all(self._pairs.has(others, anchors.take(source)), source, len(twigs))
        return twigs[matched], anchors[matched]

    def _twig_pairs(
        self, twigs: Ints, elements: Ints, document: Document, ancestry: Ancestry
    ) -> tuple[Ints, Ints]:
        """Return the pairs that twigs matched at these elements yield, as parts of others."""
        anchorings, source = self._parent_anchorings.gather(twigs)
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

    def _leaf_pairs(self, document: Document, ancestry: Ancestry) -> tuple[Ints, Ints]:
        """Return all pairs (anchoring, anchor element) of the message's leaves."""
        anchorings: list[Ints] = []
        levels: list[Ints] = []
        at: list[int] = []
        found_at: chain[tuple[int, GuideNode | Hits]] = chain(
            enumerate(document.guide_nodes), zip(document.hit_at, document.hits, strict=True)
        )
        for element, holder in found_at:
            found = holder.anchorings if holder.anchorings is not None else holder.read_anchorings()
            if found is NO_INTS:
                continue
            if holder.anchor_reach is None:
                holder.anchor_reach = self.anchorings.reach(found, document.tag_path(element))
            anchorings.append(holder.anchor_reach[0])
            levels.append(holder.anchor_reach[1])
            at.append(element)
        if not at:
            return NO_INTS, NO_INTS
        elements = np.repeat(np.array(at, np.int32), [len(run) for run in anchorings])
        return np.concatenate(anchorings), ancestry.at(elements, np.concatenate(levels))


class _Pairs:
    """A set of pairs (anchoring, element): a table of flags or, if that were too large, a sorted list."""

    def __init__(self) -> None:
        self._table: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._keys: list[NDArray[np.int64]] = []
        self._sorted: NDArray[np.int64] | None = None
        self._elements = 0

    def start(self, anchorings: int, elements: int) -> None:
        self._elements = elements
        size = anchorings * elements
        self._sorted = np.zeros(0, np.int64) if size > _MAX_TABLE else None
        if self._sorted is None and size > len(self._table):
            self._table = np.zeros(2 * size, np.bool_)

    def add(self, anchoring: Ints, element: Ints) -> tuple[Ints, Ints]:
        """Add pairs, and return them without repetitions: a path with `//` often finds them twice."""
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
        position = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        found: NDArray[np.bool_] = self._sorted[position] == keys
        return found

    def clear(self) -> None:
        """Unset only what was set: the table is large, a message's pairs are few."""
        for keys in self._keys:
            self._table[keys] = False
        self._keys.clear()


def _all(flags: NDArray[np.bool_], source: Ints, length: int) -> NDArray[np.bool_]:
    """Return, for each source, whether all its flags are set."""
    every = np.ones(length, np.bool_)
    every[source[~flags]] = False
    return every


def rarity(part: Part) -> tuple[int, int]:
    """Return a sort key that puts rare parts first: by their tests, then by how specific their path is."""
    if isinstance(part, Twig):
        return min(rarity(inner) for inner in part.parts)
    if part.test is None:
        by_test = 3
    else:
        by_test = {"=": 0, "contains": 1, "starts-with": 1, "!=": 3}.get(part.test.op, 2)
    return by_test, -sum(symbol not in ("*", DESCENDANT) for symbol in part.path)
