"""Queries as joins know them: each distinct one once, and what of it is filed where."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

from sapwood.join.evaluation.bindings import Meaning
from sapwood.join.graph.templates import Graph, Relations
from sapwood.join.output import Maker
from sapwood.lang.fwr.model import template_key
from sapwood.lang.pattern import canonical_text
from sapwood.lang.xscl.model import Join


@dataclass(slots=True)
class Filed:
    """A link of a query, as it is filed: the graph, its row, and the member that stands for the query."""

    graph: Graph
    relations: Relations | None
    """None: it is evaluated on its own"""
    row: int
    member: int
    ordered: bool
    window: float
    definitions: list[tuple[int, bool]]
    """of the sides that are blocks: the numbers of their columns, and whether values of them are compared"""


@dataclass
class JoinEntry:
    """A distinct query."""

    number: int
    key: object
    join: Join
    since: int
    uses: int = 0
    filed: list[Filed] = field(default_factory=list)
    prefixes: list[Prefix] = field(default_factory=list)
    watched: int = -1
    """of a single block: the number of its definition"""

    @cached_property
    def maker(self) -> Maker:
        return Maker(self.join)

    @cached_property
    def meaning_key(self) -> object:
        """Equal for queries that mean the same, whenever they were subscribed."""
        return self.join.key

    @cached_property
    def template_key(self) -> object:
        """Equal for queries that make the same of the same nodes of the same messages."""
        blocks = tuple([self.join.variables[hole.origin].block for hole in self.join.holes])
        return template_key(self.join.template or ()), blocks


@dataclass(eq=False)
class Prefix:
    """The first blocks of chains. Where their messages meet, the values that later links compare go on.

    Every way to bind these values together is an item of its own, as if it were a message with one node for
    each variable.
    """

    key: object
    join: Join
    blocks: int
    going_on: dict[int, int]
    """of each variable that goes on, its place in the order that all such queries have in common"""
    numbers: dict[int, int]
    """by these places, the numbers by which the next link knows them"""
    root: int
    """the number of what stands above all of them"""
    filed: Filed | None = None
    uses: int = 0

    @cached_property
    def meaning(self) -> Meaning:
        return Meaning(self.join, self.blocks, self.going_on)

    @cached_property
    def name(self) -> bytes:
        """Eight bytes that stand for it in every process."""
        _, first = going_on(self.join, self.blocks)
        return blake2b(canonical_text(first).encode(), digest_size=8).digest()

    @cached_property
    def keys(self) -> dict[int, bytes]:
        """By the numbers of what goes on, eight bytes that stand for it in every process."""
        return {
            number: blake2b(b"%d " % place + self.name, digest_size=8).digest()
            for place, number in self.numbers.items()
        }


def going_on(join: Join, blocks: int) -> tuple[dict[int, int], object]:
    """The variables of the first blocks that later links compare, with their places; and what is equal for
    chains whose first blocks can be evaluated together."""
    place_of, first = join.first_blocks(blocks)
    later = {c.left for link in join.links[blocks - 1 :] for c in link.comparisons}
    places = {n: place_of[n] for n in sorted(later) if join.variables[n].block < blocks}
    return places, (first, tuple(sorted(places.values())))
