"""The compiled form of a join: blocks as trees of variables, and the links between them.

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
    """The pattern of one message of a join: its stream, and the variable that the path selects."""

    stream: str
    """empty: messages that are published without a stream"""
    selected: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of the string-values of two variables: = and != as strings, the others as numbers.

    Between numeric variables there is = alone, of their numbers.
    """

    left: int
    """of an earlier block"""
    op: Comparator
    right: int
    """of the block that the link leads to"""


@dataclass(frozen=True, slots=True)
class Link:
    """The link between all blocks before a block and that block; at least one comparison is an equality.

    If it is `ordered`, the message of the block comes after the last of those before it, by more than nothing
    and at most the window; if not, they are at most the window apart, whichever is first.
    """

    ordered: bool
    window: float
    """in seconds; `inf` if there is no bound"""
    comparisons: tuple[Comparison, ...]

    def holds(self, before: float, time: float) -> bool:
        """Return whether a message of this time may join those that were complete at the time before."""
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
    """the result, with variables as origins; None, of a single block: the message itself"""
    publish: str = ""
    """the stream to which results are published as messages; empty: none"""

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(block.stream for block in self.blocks))

    @property
    def holes(self) -> tuple[TemplateHole, ...]:
        return tuple(part for part in self.template or () if isinstance(part, TemplateHole))

    @property
    def key(self) -> object:
        """A key that is equal for queries with the same meaning, independent of variable names and of the
        order of conditions. Valid in this process only."""
        position_of, first = self.first_blocks(len(self.blocks))
        selected = tuple([position_of[block.selected] for block in self.blocks])
        if self.template is None:
            return first, selected, self.publish
        origins = {hole.origin for hole in self.holes}
        order = tuple([position_of[number] for number in sorted(origins)])
        template = template_key(self.template, position_of)
        return first, selected, template, order, self.publish

    def first_blocks(self, blocks: int) -> tuple[dict[int, int], object]:
        """Return the order of the variables of the first blocks, which depends on their paths only, and
        a key that is equal for queries whose first blocks and links have the same meaning."""
        order = self._by_path(blocks)
        position_of = {MESSAGE: MESSAGE} | {number: position for position, number in enumerate(order)}
        variables = self.variables
        return position_of, (
            tuple([block.stream for block in self.blocks[:blocks]]),
            tuple([(*_variable_key(variables[n]), position_of[variables[n].origin]) for n in order]),
            tuple([_link_key(link, position_of) for link in self.links[: blocks - 1]]),
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
                    below[number], key=lambda n: _cached_canonical_text(self.variables[n].path), reverse=True
                )
        return order


def _variable_key(variable: BlockVariable) -> tuple[int, Path, bool]:
    return variable.block, variable.path, variable.numeric


@lru_cache(maxsize=10_000)
def _cached_canonical_text(path: Path) -> str:
    return canonical_text(path)


def _link_key(link: Link, position_of: Mapping[int, int]) -> object:
    compared = sorted([(position_of[c.left], c.op, position_of[c.right]) for c in link.comparisons])
    return link.ordered, link.window, tuple(compared)


def default_template(selected: tuple[int, ...]) -> Template:
    """Return the template of a join without SELECT: the nodes that the blocks select, under one root."""
    holes = [TemplateHole("nodes", "content", variable, (Path(()),)) for variable in selected]
    return ("<joined>", *holes, "</joined>")
