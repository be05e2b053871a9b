"""The fast path of the XSCL parser: common chains, parsed by regular expressions.

    S//book->x1[.//author->x2][title->x3] FOLLOWED BY{x2=x5 AND x3=x6, 1 day} S//blog->x4[…]

A block binds the node it selects, and nodes below; links equate variables. The result is None for all other
texts and for errors, which the full parser handles.
"""

from __future__ import annotations

import re
from functools import lru_cache

from sapwood.errors import QueryError
from sapwood.lang.literals.durations import parse_window
from sapwood.lang.pattern import Axis, Path, plain_step
from sapwood.lang.scanning import END, WORD
from sapwood.lang.xscl.blocks import MOST_VARIABLES
from sapwood.lang.xscl.lexer import NO_VARIABLE, STREAMLESS
from sapwood.lang.xscl.links import MOST_BLOCKS, Chain
from sapwood.lang.xscl.model import MESSAGE, Block, BlockVariable, Comparison, Link

_VARIABLE = rf"{NO_VARIABLE}{WORD}'*"
_BINDING = rf"(?:\s*->\s*|\s+AS\s+)({_VARIABLE})"
_SELECTED = re.compile(rf"\s*({WORD})?((?://?{WORD})+(?:/@{WORD})?){_BINDING}", re.IGNORECASE)
_BELOW = rf"(?:\.//?)?{WORD}(?://?{WORD})*(?:/@{WORD})?|@{WORD}"
_BRANCH = re.compile(rf"(?:\[|\s+(and)\s+)({_BELOW}){_BINDING}|\]", re.IGNORECASE)
_LINK = re.compile(
    rf"\s*(?:JOIN|(FOLLOWED)\s+BY)\s*\{{"
    rf"\s*(\$?{_VARIABLE}\s*=\s*\$?{_VARIABLE}(?:\s+AND\s+\$?{_VARIABLE}\s*=\s*\$?{_VARIABLE})*)\s*,",
    re.IGNORECASE,
)
_EQUALITY = re.compile(rf"({WORD}'*)\s*=\s*\$?({WORD}'*)")
_CLOSING = re.compile(r"\s*\}")
_END = re.compile(rf"\s*(?:\Z|PUBLISH{END})", re.IGNORECASE)
_STEP = re.compile(rf"([./@]*)({WORD})")


def plain_chain(text: str, start: int) -> Chain | None:
    """Compile the chain at a position as `read_chain` does; None if it is not plain."""
    return _Plain(text).read(start) if text.isascii() else None


class _Plain:
    def __init__(self, text: str) -> None:
        self._text = text
        self._blocks: list[Block] = []
        self._variables: list[BlockVariable] = []
        self._links: list[Link] = []
        self._numbers: dict[str, int] = {}

    def read(self, start: int) -> Chain | None:
        at = self._block(start)
        while at is not None:
            link = _LINK.match(self._text, at)
            if link is None:
                break
            at = self._linked(link)
        if at is None or _END.match(self._text, at) is None or len(self._blocks) > MOST_BLOCKS:
            return None
        return Chain(tuple(self._blocks), tuple(self._variables), tuple(self._links), at)

    def _block(self, at: int) -> int | None:
        """Read a block; returns the position after it, None if it is not plain."""
        found = _SELECTED.match(self._text, at)
        if found is None:
            return None
        stream, path, name = found.groups("")
        if stream.lower() in STREAMLESS or not self._bind(name, MESSAGE, path):
            return None
        above = [len(self._variables) - 1]  # the variables whose predicates are open
        self._blocks.append(Block(stream, above[0]))
        at = found.end()
        while (found := _BRANCH.match(self._text, at)) is not None:
            sibling, path, name = found.groups("")
            if sibling or not path:
                above.pop()
            if not above or (path and not self._bind(name, above[-1], path)):
                return None
            if path:
                above.append(len(self._variables) - 1)
            at = found.end()
        return at if len(above) == 1 else None

    def _bind(self, name: str, origin: int, path: str) -> bool:
        if name in self._numbers or len(self._variables) == MOST_VARIABLES:
            return False
        if origin != MESSAGE and self._variables[origin].path.steps[-1].axis is Axis.ATTRIBUTE:
            return False
        self._numbers[name] = len(self._variables)
        block = len(self._blocks) - (origin != MESSAGE)
        self._variables.append(BlockVariable(name, block, origin, _path(path)))
        return True

    def _linked(self, link: re.Match[str]) -> int | None:
        """Read a link and its block; returns the position after them, None if they are not plain."""
        try:
            seconds, at = parse_window(self._text, link.end())
        except QueryError:
            return None
        closing = _CLOSING.match(self._text, at)
        first = len(self._variables)
        end = self._block(closing.end()) if closing is not None else None
        if end is None:
            return None
        comparisons: dict[Comparison, None] = {}
        for names in _EQUALITY.findall(link[2]):
            left, right = sorted(self._numbers.get(name, MESSAGE) for name in names)
            if not MESSAGE < left < first <= right:
                return None
            comparisons[Comparison(left, "=", right)] = None
        self._links.append(Link(link[1] is not None, seconds, tuple(comparisons)))
        return end


@lru_cache(maxsize=4_096)
def _path(written: str) -> Path:
    """A path of names, such as `//a/b`, `.//a` or `@id`."""
    return Path(tuple([plain_step(_axis(before), name) for before, name in _STEP.findall(written)]))


def _axis(before: str) -> Axis:
    return Axis.ATTRIBUTE if "@" in before else Axis.DESCENDANT if "//" in before else Axis.CHILD
