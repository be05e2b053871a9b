"""Random joins of messages, and messages to join: the workloads of Hong et al. (SIGMOD 2007).

    S/r->v0[l3->v1][l5->v2] FOLLOWED BY{v1=w1 AND v2=w2, INF} S/r->w0[l1->w1][l6->w2]

A query equates k leaves of one message with k leaves of a later one: k is drawn by Zipf, and on each side the
k leaves are any, no two the same. All elements on the way to a leaf are variables, too. Equalities are
written by the order of their left leaves and branches in the order of the document, so that equal queries are
equal texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random

from sapwood.errors import ArgumentError
from sapwood.workload import parameter_checks
from sapwood.workload.generator import Generator
from sapwood.workload.messages.value_distributions import Distribution, pick, zipf

INFINITE = "INF"
FEED_LEAVES = ("item_url", "channel_url", "title", "timestamp", "description")

_Leaf = tuple[tuple[str, ...], str]  # the names from below the root on, and the variable at the end


@dataclass(frozen=True, slots=True)
class JoinSchema:
    """The schema of messages: the root's name, and the path of names from below it to each leaf.

    Names are unique below one element, so a path leads to one leaf.
    """

    name: str
    root: str
    leaves: tuple[tuple[str, ...], ...]

    def message(self, number: int = 0) -> bytes:
        """A message whose leaves have values that no other leaf, and no message of another number, has.

        Published twice, it is the two messages of the paper: their values are equal leaf by leaf.
        """
        values = [f"{number}-{place}" for place in range(1, len(self.leaves) + 1)]
        return _element(self.root, list(zip(self.leaves, values, strict=True))).encode()

    def block(self, stream: str, side: str, chosen: Sequence[int]) -> str:
        """A block that binds the chosen leaves to v1, v2, … by their order, for a `side` called v.

        The root is v0; the element n on the way to a leaf is vn.
        """
        numbered = sorted((place, number) for number, place in enumerate(chosen, start=1))
        branches = [(self.leaves[place], f"{side}{number}") for place, number in numbered]
        return f"{stream}/{self.root}->{side}0{_branches(branches, side)}"


def flat_schema(leaves: int = 6) -> JoinSchema:
    """Two levels, as an item of a feed has them: the leaves l1, l2, … of a root r."""
    parameter_checks.at_least(1, leaves=leaves)
    return JoinSchema("flat", "r", tuple((f"l{number}",) for number in range(1, leaves + 1)))


def levels_schema(fan_out: int = 4) -> JoinSchema:
    """Three levels: a root r, below it n1, n2, …, and as many leaves below each: 16 by default."""
    parameter_checks.at_least(1, fan_out=fan_out)
    inner = range(fan_out)
    leaves = ((f"n{node + 1}", f"l{node * fan_out + leaf + 1}") for node in inner for leaf in inner)
    return JoinSchema("levels", "r", tuple(leaves))


def feed_schema() -> JoinSchema:
    """The items that a `FeedGenerator` writes."""
    return JoinSchema("feed", "item", tuple((name,) for name in FEED_LEAVES))


class JoinGenerator(Generator[str]):
    """An endless iterator of queries over pairs of messages of a schema; the same may come again.

    k, from 1 to `equalities` (by default: to the number of leaves), is drawn with Zipf exponent `skew`. Both
    messages are of one `stream`, and the later comes at most a `window` after, such as `60 s` or `INF`.
    """

    def __init__(
        self,
        schema: JoinSchema,
        *,
        seed: int = 0,
        equalities: int | None = None,
        skew: float = 0.8,
        window: str = INFINITE,
        stream: str = "S",
    ) -> None:
        most = len(schema.leaves) if equalities is None else equalities
        parameter_checks.at_least(1, equalities=most)
        parameter_checks.at_least(0, skew=skew)
        if most > len(schema.leaves):
            raise ArgumentError(f"equalities must be at most {len(schema.leaves)}, the leaves, not {most}")
        self.schema = schema
        self._window, self._stream = window, stream
        self._sizes = Distribution(most, zipf(most, skew))
        self._random = Random(seed).random

    def query(self) -> str:
        """The next query."""
        left, right = self._equalities()
        predicate = " AND ".join(f"v{number}=w{number}" for number in range(1, len(left) + 1))
        return (
            f"{self.schema.block(self._stream, 'v', left)} "
            f"FOLLOWED BY{{{predicate}, {self._window}}} "
            f"{self.schema.block(self._stream, 'w', right)}"
        )

    def __next__(self) -> str:
        return self.query()

    def _equalities(self) -> tuple[list[int], list[int]]:
        """Leaves of either side by their places; those at the same place of both lists are to be equal."""
        size = 1 + self._sizes.rank(self._random())
        left = sorted(self._some(size))
        return left, self._some(size)

    def _some(self, size: int) -> list[int]:
        """Draw `size` different leaves, in any order."""
        left = list(range(len(self.schema.leaves)))
        chosen: list[int] = []
        for _ in range(size):
            chosen.append(pick(left, self._random()))
            left.remove(chosen[-1])
        return chosen


def _branches(leaves: Sequence[_Leaf], side: str) -> str:
    """The predicates that lead to leaves, those with a common way in one."""
    written = []
    for name, below in groupby(leaves, key=lambda leaf: leaf[0][0]):
        group = list(below)
        (path, variable), *_ = group
        if len(path) == 1:
            written.append(f"[{name}->{variable}]")
        else:
            rest = [(path[1:], variable) for path, variable in group]
            written.append(f"[{name}->{side}{name}{_branches(rest, side)}]")
    return "".join(written)


def _element(name: str, content: Sequence[tuple[tuple[str, ...], str]]) -> str:
    inner = []
    for first, below in groupby(content, key=lambda leaf: leaf[0][:1]):
        group = list(below)
        if first:
            inner.append(_element(first[0], [(path[1:], value) for path, value in group]))
        else:
            inner.append(group[0][1])
    return f"<{name}>{''.join(inner)}</{name}>"
