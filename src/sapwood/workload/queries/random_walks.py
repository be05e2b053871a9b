"""Random walks down the element graph: the tag paths that documents can have."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from sapwood.workload.dtd.element_graph import INFINITE
from sapwood.workload.dtd.model import Dtd
from sapwood.workload.messages.value_distributions import Distribution, zipf

_MOST_WALKS = 1e100  # where counting stops, far from the overflow of a float


class Walker:
    """Draws walks; `skew` is the Zipf exponent over the children of an element, in order of mention."""

    def __init__(self, dtd: Dtd, max_depth: int, skew: float, random: Callable[[], float]) -> None:
        self._children = {
            name: tuple(child for child in children if dtd.heights[child] < INFINITE)
            for name, children in dtd.children.items()
        }
        self._lengths = self._longest(max_depth)
        self._walks = self._count(max_depth)
        self._skew = skew
        self._random = random
        self._options = cache(self._find_options)

    def longest(self, start: str) -> int:
        """The levels of the longest walk from an element, itself included, up to the maximal depth."""
        return self._lengths[start]

    def is_leaf(self, name: str) -> bool:
        """Whether no element can stand in this one."""
        return not self._children[name]

    def walk(self, start: str, most: int, least: int = 1, even: bool = False) -> list[str]:
        """From `start` down to a leaf or `most` levels, never fewer than `least` (≤ `longest(start)`).

        Each child of an element is as likely as the next, so that a leaf below the root is drawn more often
        than all that lies below its neighbour. `even` makes whole walks equally likely instead.
        """
        path = [start]
        for left in range(most - 1, 0, -1):
            options, odds = self._options(path[-1], max(least - len(path), 1), left if even else 0)
            if not options:
                break
            path.append(options[odds.rank(self._random())])
        return path

    def _find_options(self, name: str, least: int, left: int) -> tuple[tuple[str, ...], Distribution]:
        """The children from which a walk can go on for `least` levels, and how likely each is.

        They are weighted by the number of walks they begin if `left`, the levels left, is not 0.
        """
        options = tuple(child for child in self._children[name] if self._lengths[child] >= least)
        if not left and not self._skew:
            return options, Distribution(len(options))
        weights = zipf(len(options), self._skew)
        if left:
            weights = [
                weight * self._walks[left][child] for weight, child in zip(weights, options, strict=True)
            ]
        return options, Distribution(len(options), weights)

    def _longest(self, max_depth: int) -> dict[str, int]:
        lengths = dict.fromkeys(self._children, 1)
        for _ in range(max_depth - 1):  # recursion makes walks endless; the bound ends them
            lengths = {
                name: 1 + max((lengths[child] for child in children), default=0)
                for name, children in self._children.items()
            }
        return lengths

    def _count(self, max_depth: int) -> list[dict[str, float]]:
        """By levels: how many walks start at an element and end at a leaf or the last level."""
        walks = [dict.fromkeys(self._children, 1.0)] * 2  # 0 levels is never asked for
        for _ in range(max_depth - 1):
            walks.append(
                {
                    name: min(sum(walks[-1][child] for child in children) or 1.0, _MOST_WALKS)
                    for name, children in self._children.items()
                }
            )
        return walks
