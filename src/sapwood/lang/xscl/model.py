"""A join of messages, compiled: blocks as trees of variables, and what must hold between them.

    S//book->b[.//author->a] FOLLOWED BY{a = w, 1 day} S//blog->p[.//author->w]

    blocks      S, selecting b                     S, selecting p
    variables   0 b  //book      from the message  2 p  //blog      from the message
                1 a  //author    from 0            3 w  //author    from 2
    links       ordered, 86,400 s, 1 = 3

A message of a block's stream takes part with every way to bind the block's variables to its nodes. Messages,
one for each block and no two the same, *meet* if they stand in time as the links say and some way to bind all
variables meets all comparisons. For one meeting the template is written once for each distinct way to bind
the variables that its holes start from, in the order of these variables and of the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from sapwood.lang.fwr.model import Template, TemplateHole, template_key
from sapwood.lang.literals.numbers import Comparator
from sapwood.lang.pattern import Path, canonical_text

MESSAGE = -1
"""in place of a variable's number: its path starts at the document node of the block's message"""


@dataclass(frozen=True, slots=True)
class BlockVariable:
    """A node of a block's tree pattern.

    Its path holds all conditions that no variable stands in: constants it is compared with, branches that
    must merely be there. A variable has a larger number than the one its path starts from.
    """

    name: str
    """as written; empty if the query does not name it"""
    block: int
    origin: int
    """the number of the variable that the path starts from, of the same block, or MESSAGE"""
    path: Path
    numeric: bool = False
    """whether it stands for the number that its origin's node is; then the path is empty"""


@dataclass(frozen=True, slots=True)
class Block:
    """What is wanted of one message: its stream, and the variable that the block's path selects."""

    stream: str
    """empty: messages that are published without a stream"""
    selected: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Between the string-values of two variables: = and != as strings, the others as numbers.

    Between numeric variables there is = alone, of their numbers.
    """

    left: int
    """of an earlier block"""
    op: Comparator
    right: int
    """of the block that the link leads to"""


@dataclass(frozen=True, slots=True)
class Link:
    """Between all blocks before a block and that block; at least one comparison is an equality.

    If it is `ordered`, the message of the block comes after the last of those before it, by more than nothing
    and at most the window; if not, they are at most the window apart, whichever is first.
    """

    ordered: bool
    window: float
    """in seconds; `inf` if there is no bound"""
    comparisons: tuple[Comparison, ...]

    def holds(self, before: float, time: float) -> bool:
        """Whether a message of this time may follow what was complete by the time before."""
        apart = time - before
        return 0 < apart <= self.window if self.ordered else abs(apart) <= self.window


@dataclass(frozen=True, slots=True)
class Join:
    """A query over one block, or several that are linked one after the other."""

    text: str
    blocks: tuple[Block, ...]
    variables: tuple[BlockVariable, ...]
    """those of the first block first, and so on"""
    links: tuple[Link, ...]
    """one less than blocks"""
    template: Template | None
    """what is made of a meeting, with variables as origins; None, of a single block: the message itself"""
    publish: str = ""
    """the stream that what is made becomes messages of; empty: none"""

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(block.stream for block in self.blocks))

    @property
    def holes(self) -> tuple[TemplateHole, ...]:
        return tuple(part for part in self.template or () if isinstance(part, TemplateHole))

    @property
    def key(self) -> object:
        """Equal for queries that mean the same by construction, whatever their variables are called, and
        in whatever order what belongs together is written. Not for other processes."""
        place_of, first = self.first_blocks(len(self.blocks))
        selected = tuple([place_of[block.selected] for block in self.blocks])
        if self.template is None:
            return first, selected, self.publish
        origins = {hole.origin for hole in self.holes}
        order = tuple([place_of[number] for number in sorted(origins)])
        template = template_key(self.template, place_of)
        return first, selected, template, order, self.publish

    def first_blocks(self, blocks: int) -> tuple[dict[int, int], object]:
        """The places of the variables of the first blocks in an order that depends on their paths only; and
        what is equal for queries whose first blocks, with the links between them, mean the same."""
        order = self._by_path(blocks)
        place_of = {MESSAGE: MESSAGE} | {number: place for place, number in enumerate(order)}
        variables = self.variables
        return place_of, (
            tuple([block.stream for block in self.blocks[:blocks]]),
            tuple([(*_what(variables[n]), place_of[variables[n].origin]) for n in order]),
            tuple([_normal(link, place_of) for link in self.links[: blocks - 1]]),
        )

    def _by_path(self, blocks: int) -> list[int]:
        below: dict[int, list[int]] = {}
        for number, variable in enumerate(self.variables):
            if variable.block < blocks:
                below.setdefault(variable.origin, []).append(number)
        order: list[int] = []
        waiting = sorted(below[MESSAGE], key=lambda n: self.variables[n].block, reverse=True)
        while waiting:
            number = waiting.pop()
            order.append(number)
            if number in below:
                waiting += sorted(
                    below[number], key=lambda n: _spelling(self.variables[n].path), reverse=True
                )
        return order


def _what(variable: BlockVariable) -> tuple[int, Path, bool]:
    return variable.block, variable.path, variable.numeric


@lru_cache(maxsize=10_000)
def _spelling(path: Path) -> str:
    return canonical_text(path)


def _normal(link: Link, place_of: Mapping[int, int]) -> object:
    compared = sorted([(place_of[c.left], c.op, place_of[c.right]) for c in link.comparisons])
    return link.ordered, link.window, tuple(compared)


def default_template(selected: tuple[int, ...]) -> Template:
    """The nodes that the blocks select, under one root."""
    holes = [TemplateHole("nodes", "content", variable, (Path(()),)) for variable in selected]
    return ("<joined>", *holes, "</joined>")
