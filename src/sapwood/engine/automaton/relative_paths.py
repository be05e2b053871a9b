"""Relative paths, such as `section//figure` from any element, followed by the same automaton as all paths.

To the automaton the path is `//*/section//figure`, anchored at its first step. While the elements below some
bound elements are visited, every guide node has the relative paths that end there and how far up they start.
So all relative paths of all queries are followed in one pass, and each path once, whichever query bound the
element that it starts from.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.automaton.predicate_index import NO_INTS, Ints
from sapwood.engine.automaton.query_paths import Leaf
from sapwood.engine.automaton.twig_anchors import Anchorings
from sapwood.engine.message.ancestry import Ancestry
from sapwood.engine.message.document import Document


class RelativePaths:
    """All relative paths, by number."""

    def __init__(self) -> None:
        self._anchorings = Anchorings()

    def __len__(self) -> int:
        return self._anchorings.used

    def add(self, path: tuple[str, ...]) -> tuple[int, Leaf | None]:
        """Add one use of a path: return its number and, if it is new, the leaf under which to post it."""
        leaf = Leaf((DESCENDANT, "*", *path))
        number, is_new = self._anchorings.use(leaf, 1)
        return number, leaf if is_new else None

    def remove(self, number: int) -> Leaf | None:
        """Take back one use of a path, and return its leaf if that was the last."""
        leaf = self._anchorings.part(number)
        assert isinstance(leaf, Leaf)
        return leaf if self._anchorings.release(number) else None

    def leaves(self) -> Iterator[tuple[int, Leaf]]:
        """Yield the numbers in use, and the leaves under which they are posted."""
        for number in self._anchorings.numbers():
            leaf = self._anchorings.part(number)
            assert isinstance(leaf, Leaf)
            yield number, leaf

    def uses(self, number: int) -> int:
        return self._anchorings.uses(number)

    def reached(
        self, document: Document, ancestry: Ancestry, starts: list[int], inside: bool = False
    ) -> ReachedElements:
        """Return what all relative paths reach from elements given in document order and, with `inside`, from
        all their descendants."""
        numbers: list[Ints] = []
        levels: list[Ints] = []
        at: list[int] = []
        guide_nodes = document.guide_nodes
        for element in _descendants(document, starts):
            reach = guide_nodes[element].relative_reach
            if reach is None:
                reach = self._read_reach(document, element)
            if reach is not _NO_REACH:
                numbers.append(reach[0])
                levels.append(reach[1])
                at.append(element)
        if not at:
            return ListedReach(NO_INTS, NO_INTS, NO_INTS, document)
        ends = np.repeat(np.array(at, np.int32), [len(run) for run in numbers])
        number, start = np.concatenate(numbers), ancestry.at(ends, np.concatenate(levels))
        if inside:
            return ListedReach(number, start, ends, document)
        wanted = np.zeros(len(document), np.bool_)
        wanted[starts] = True
        kept = wanted.take(start)
        return ListedReach(number[kept], start[kept], ends[kept], document)

    def _read_reach(self, document: Document, element: int) -> tuple[Ints, Ints]:
        node = document.guide_nodes[element]
        numbers = node.dataguide.relative_paths(node)
        reach = (
            self._anchorings.reach(numbers, document.tag_path(element))
            if numbers is not NO_INTS
            else _NO_REACH
        )
        node.relative_reach = reach
        return reach


_NO_REACH = NO_INTS, NO_INTS


class ReachedElements(Protocol):
    """The elements that each relative path reaches from each of some elements."""

    def of(self, number: int, element: int, /) -> list[int]:
        """Return the elements that a path reaches from an element, in document order."""
        ...

    def copy(self, parts: tuple[bytes | int, ...], element: int, /) -> bytes:
        """Return constants, and copies from the source of what relative paths reach from an element, or of
        that element for a negative number, end to end."""
        ...


class ListedReach:
    """What is reached, as slices of one list: see `ReachedElements`."""

    def __init__(self, number: Ints, start: Ints, end: Ints, document: Document) -> None:
        """Index triples (relative path, start, end), given in document order of their ends."""
        elements = len(document)
        keys = number.astype(np.int64) * elements + start
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        self._document = document
        self._elements = elements
        self._ends: list[int] = end[order].tolist()
        firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else keys
        bounds = [*firsts.tolist(), len(keys)]
        self._slices = dict(zip(keys[firsts].tolist(), pairwise(bounds), strict=True))

    def of(self, number: int, element: int, /) -> list[int]:
        found = self._slices.get(number * self._elements + element)
        return self._ends[found[0] : found[1]] if found is not None else []

    def copy(self, parts: tuple[bytes | int, ...], element: int, /) -> bytes:
        pieces: list[bytes] = []
        source, (starts, stops) = self._document.source, self._document.spans
        for part in parts:
            if isinstance(part, bytes):
                pieces.append(part)
            else:
                copied = self.of(part, element) if part >= 0 else (element,)
                pieces += [source[starts[each] : stops[each]] for each in copied]
        return b"".join(pieces)


def _descendants(document: Document, elements: list[int]) -> list[int]:
    """Return the descendants of any of these elements, each once, in document order."""
    found: list[int] = []
    done = 0
    for element in elements:
        end = document.ends[element]
        found += range(max(element + 1, done), end)
        done = max(done, end)
    return found
