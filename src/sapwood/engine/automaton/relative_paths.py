"""What relative paths reach: `section//figure` from any element, found by the same automaton as all paths.

A *group* is such a path. To the automaton it is `//*/section//figure`, anchored at its first step; while the
elements below some bound elements are looked through, every place tells the groups that end there and how
far up they start. So all groups of all queries are followed in one pass, and each path once, whoever bound
the element that it starts from.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.automaton.predicate_index import NO_INTS, Ints
from sapwood.engine.automaton.query_paths import Leaf
from sapwood.engine.automaton.twig_anchors import Anchorings
from sapwood.engine.message.ancestry import Ancestry
from sapwood.engine.message.document import Document


class RelativePaths:
    """All groups, by number."""

    def __init__(self) -> None:
        self._anchorings = Anchorings()

    def __len__(self) -> int:
        return self._anchorings.used

    def add(self, path: tuple[str, ...]) -> tuple[int, Leaf | None]:
        """Adds one use of a group: its number, and if it is new, the leaf at which to mark it."""
        leaf = Leaf((DESCENDANT, "*", *path))
        number, is_new = self._anchorings.use(leaf, 1)
        return number, leaf if is_new else None

    def remove(self, number: int) -> Leaf | None:
        """Takes back one use of a group; its leaf, if that was the last."""
        leaf = self._anchorings.part(number)
        assert isinstance(leaf, Leaf)
        return leaf if self._anchorings.release(number) else None

    def uses(self, number: int) -> int:
        return self._anchorings.uses(number)

    def reached(
        self, document: Document, ancestry: Ancestry, starts: list[int], inside: bool = False
    ) -> ReachedElements:
        """What all groups reach from these elements, which are given in document order; and, if wanted, from
        all those inside of them."""
        groups: list[Ints] = []
        levels: list[Ints] = []
        at: list[int] = []
        places = document.places
        for element in _below(document, starts):
            reach = places[element].group_reach
            if reach is None:
                reach = self._read_reach(document, element)
            if reach is not _NO_REACH:
                groups.append(reach[0])
                levels.append(reach[1])
                at.append(element)
        if not at:
            return ReachedElements(NO_INTS, NO_INTS, NO_INTS, len(document))
        ends = np.repeat(np.array(at, np.int32), [len(run) for run in groups])
        group, start = np.concatenate(groups), ancestry.at(ends, np.concatenate(levels))
        if inside:
            return ReachedElements(group, start, ends, len(document))
        wanted = np.zeros(len(document), np.bool_)
        wanted[starts] = True
        kept = wanted.take(start)
        return ReachedElements(group[kept], start[kept], ends[kept], len(document))

    def _read_reach(self, document: Document, element: int) -> tuple[Ints, Ints]:
        place = document.places[element]
        marks = place.machine.groups(place)
        reach = (
            self._anchorings.reach(marks, document.tag_path(element)) if marks is not NO_INTS else _NO_REACH
        )
        place.group_reach = reach
        return reach


_NO_REACH = NO_INTS, NO_INTS


class ReachedElements:
    """From each of some elements, by each group: elements, in document order."""

    def __init__(self, group: Ints, start: Ints, end: Ints, elements: int) -> None:
        """Triples in document order of their ends."""
        keys = group.astype(np.int64) * elements + start
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        self._elements = elements
        self._ends: list[int] = end[order].tolist()
        firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else keys
        bounds = [*firsts.tolist(), len(keys)]
        self._slices = dict(zip(keys[firsts].tolist(), pairwise(bounds), strict=True))

    def of(self, group: int, element: int) -> list[int]:
        found = self._slices.get(group * self._elements + element)
        return self._ends[found[0] : found[1]] if found is not None else []


def _below(document: Document, elements: list[int]) -> list[int]:
    """The elements inside of any of these, each once, in document order."""
    below: list[int] = []
    done = 0
    for element in elements:
        end = document.ends[element]
        below += range(max(element + 1, done), end)
        done = max(done, end)
    return below
