"""Random walks down the element graph: the paths that documents can have."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from sapwood.workload.dtd import Dtd
from sapwood.workload.graph import INFINITE
from sapwood.workload.values import Zipf


class Walker:
    """Draws walks; `skew` is the Zipf exponent over the children of an element, in order of mention."""

    def __init__(self, dtd: Dtd, max_depth: int, skew: float, random: Callable[[], float]) -> None:
        self._children = {
            name: tuple(child for child in children if dtd.heights[child] < INFINITE)
            for name, children in dtd.children.items()
        }
        self._lengths = self._longest(max_depth)
        self._skew = skew
        self._random = random
        self._options = cache(self._find_options)

    def longest(self, start: str) -> int:
        """The levels of the longest walk from an element, itself included, up to the maximal depth."""
        return self._lengths[start]

    def is_leaf(self, name: str) -> bool:
        return not self._children[name]

    def walk(self, start: str, most: int, least: int = 1) -> list[str]:
        """From `start` down to a leaf or `most` levels, never fewer than `least` (≤ `longest(start)`)."""
        path = [start]
        while len(path) < most:
            options, distribution = self._options(path[-1], max(least - len(path), 1))
            if not options:
                break
            path.append(options[distribution.rank(self._random())])
        return path

    def _find_options(self, name: str, least: int) -> tuple[tuple[str, ...], Zipf]:
        """The children from which a walk can go on for `least` levels."""
        options = tuple(child for child in self._children[name] if self._lengths[child] >= least)
        return options, Zipf(len(options), self._skew)

    def _longest(self, max_depth: int) -> dict[str, int]:
        lengths = dict.fromkeys(self._children, 1)
        for _ in range(max_depth - 1):  # recursion makes walks endless; the bound ends them
            lengths = {
                name: 1 + max((lengths[child] for child in children), default=0)
                for name, children in self._children.items()
            }
        return lengths
