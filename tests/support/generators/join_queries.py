"""Queries that join messages, as plain structures that write themselves as XSCL in one of many spellings.

Nothing of Sapwood's languages is trusted here: `join_oracle.py` evaluates the structures as they stand.

    S//a->x[.//b->y] JOIN{y = w, 5 s} T/c->z[@k->w]

    Query((Block("S", Variable("x", "//a", branches=(Variable("y", "//b"),))),
           Block("T", Variable("z", "/c", branches=(Variable("w", "/@k"),)))),
          (Link("JOIN", 5, (Comparison(Operand("y"), "=", Operand("w")),)),))
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from random import Random
from typing import Literal, TypeVar

NAMESPACES = {"p": "urn:p"}
"""of the prefixes in paths"""

_T = TypeVar("_T")

# -- queries ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable:
    """A node of a block's tree, which a path reaches from the one above it, or from the message.

    Paths start with / or //. The name is for the oracle to call it by; unless it is `written`, the query has
    no name for it. Branches stand in predicates of the last step; `then` is where the path goes on.
    """

    name: str
    path: str
    position: str = ""
    conditions: tuple[str, ...] = ()
    """on the node itself: `. = 'x'`, `b/@k > 1`"""
    branches: tuple[Variable, ...] = ()
    then: Variable | None = None
    written: bool = True

    @property
    def below(self) -> tuple[Variable, ...]:
        return self.branches if self.then is None else (*self.branches, self.then)

    @property
    def xpath(self) -> str:
        tests = ([self.position] if self.position else []) + list(self.conditions)
        return self.path + "".join(f"[{test}]" for test in tests)

    def all(self) -> Iterator[Variable]:
        """With those below it, in the order written."""
        yield self
        for variable in self.below:
            yield from variable.all()


@dataclass(frozen=True)
class Block:
    stream: str
    root: Variable

    @property
    def selected(self) -> Variable:
        variable = self.root
        while variable.then is not None:
            variable = variable.then
        return variable


@dataclass(frozen=True)
class Operand:
    """A variable, or a path from it."""

    variable: str
    path: str = ""

    @property
    def here(self) -> str:
        """As XPath, where the variable is the context node."""
        return f".{self.path}"


Op = Literal["=", "!=", "<", "<=", ">", ">="]
FLIPPED: dict[Op, Op] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Comparison:
    left: Operand
    op: Op
    right: Operand
    numeric: bool = False
    """an equality of numbers"""


@dataclass(frozen=True)
class Condition:
    """Of one variable: `test` is XPath, with {} for the operand."""

    operand: Operand
    test: str


@dataclass(frozen=True)
class Link:
    op: Literal["JOIN", "FOLLOWED BY"]
    window: float
    comparisons: tuple[Comparison, ...]
    conditions: tuple[Condition, ...] = ()

    def holds(self, before: float, time: float) -> bool:
        """Whether a message may follow others, the last of which is of the time before."""
        if self.op == "FOLLOWED BY":
            return 0 < time - before <= self.window
        return abs(time - before) <= self.window


@dataclass(frozen=True)
class Hole:
    """Nodes to be copied, or with a function their string() or count(). Attributes go to the tag around."""

    operand: Operand
    function: Literal["", "string", "count"] = ""


@dataclass(frozen=True, eq=False)
class Query:
    blocks: tuple[Block, ...]
    links: tuple[Link, ...] = ()
    select: tuple[str | Hole, ...] | None = None
    """None: the default, which is the message itself if there is one block"""
    publish: str = ""

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """By name, in the order written."""
        return {variable.name: variable for block in self.blocks for variable in block.root.all()}

    @cached_property
    def block_of(self) -> dict[str, int]:
        """The number of each variable's block."""
        return {v.name: number for number, block in enumerate(self.blocks) for v in block.root.all()}

    @cached_property
    def template(self) -> tuple[str | Hole, ...]:
        if self.select is not None:
            return self.select
        return "<joined>", *(Hole(Operand(b.selected.name)) for b in self.blocks), "</joined>"

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The variables that holes start from, in the order written."""
        used = {part.operand.variable for part in self.template if isinstance(part, Hole)}
        return tuple(name for name in self.variables if name in used)

    @cached_property
    def conditions(self) -> dict[str, tuple[str, ...]]:
        """Those of links, by variable: they are conditions on the nodes that it may be bound to."""
        found: dict[str, tuple[str, ...]] = {}
        for condition in (c for link in self.links for c in link.conditions):
            test = condition.test.format(condition.operand.here)
            found[condition.operand.variable] = (*found.get(condition.operand.variable, ()), test)
        return found

    @cached_property
    def used(self) -> frozenset[str]:
        """The variables whose nodes matter; of others it does only that there are some."""
        compared = (side for link in self.links for c in link.comparisons for side in (c.left, c.right))
        return frozenset((*self.shown, *(operand.variable for operand in compared)))

    @cached_property
    def patterns(self) -> tuple[Variable, ...]:
        """The trees of the blocks, with the conditions of the links in them."""
        return tuple(self._constrained(block.root) for block in self.blocks)

    def _constrained(self, variable: Variable) -> Variable:
        return replace(
            variable,
            conditions=variable.conditions + self.conditions.get(variable.name, ()),
            branches=tuple(map(self._constrained, variable.branches)),
            then=self._constrained(variable.then) if variable.then is not None else None,
        )


@dataclass(frozen=True)
class Filter:
    """A filter, beside the joins."""

    xpath: str


# -- queries as text -------------------------------------------------------------------------------------

_UNITS = {
    "ms": 0.001,
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds"], 1),
    **dict.fromkeys(["min", "mins", "minute", "minutes"], 60),
    **dict.fromkeys(["h", "hour", "hours"], 3_600),
    **dict.fromkeys(["d", "day", "days"], 86_400),
    **dict.fromkeys(["w", "week", "weeks"], 604_800),
}
_BY_ITSELF = re.compile(r"\. (?:=|!=|<|<=|>|>=) \S+")


def written(query: Query | Filter, rng: Random | None = None) -> str:
    """The query as text: in a spelling that is drawn, or in the paper's."""
    return query.xpath if isinstance(query, Filter) else _Writer(query, rng).text()


class _Writer:
    """One query, in one spelling; without a source of choices, the first of each is taken."""

    def __init__(self, query: Query, rng: Random | None) -> None:
        self._query = query
        self._rng = rng
        self._naming = self._pick("%s", "%s", "%s'", "v.%s", "%s-1")
        self._inlined = self._operands_to_inline()

    def text(self) -> str:
        query = self._query
        chain = self._block(query.blocks[0])
        for link, block in zip(query.links, query.blocks[1:], strict=True):
            chain += f"{self._space()}{self._link(link)}{self._space()}{self._block(block)}"
        publish = f" {self._keyword('PUBLISH')} {query.publish}" if query.publish else ""
        return self._head() + chain + publish

    def _head(self) -> str:
        select = self._query.select
        chosen = self._keyword("FROM") + self._space()
        if select is not None:
            output = "".join(p if isinstance(p, str) else f"{{{self._hole(p)}}}" for p in select)
        elif len(self._query.blocks) > 1:
            return self._pick("", "", chosen, f"{self._keyword('SELECT')} * {chosen}")
        else:
            output = self._pick("", "*")
        return (
            f"{self._keyword('SELECT')}{self._space()}{output}{self._space()}{chosen}" if output else chosen
        )

    # -- blocks ----------------------------------------------------------------------------------------

    def _block(self, block: Block) -> str:
        text = block.stream + self._steps(block.root, block.root.path)
        return self._pick(text, block.stream) if text == f"{block.stream}/*" and block.stream else text

    def _steps(self, variable: Variable, path: str) -> str:
        binding = self._binding(variable)
        predicates = self._predicates(variable)
        after = predicates and self._pick(False, True)
        text = path + (predicates + binding if after else binding + predicates)
        return text + self._steps(variable.then, variable.then.path) if variable.then is not None else text

    def _binding(self, variable: Variable) -> str:
        if not variable.written:
            return ""
        return self._pick("->", "->", " AS ", " -> ", " as ") + self._name(variable.name)

    def _predicates(self, variable: Variable) -> str:
        branches = [branch for branch in variable.branches if branch.name not in self._inlined]
        terms = [*variable.conditions, *map(self._term, branches)]
        shown = sum(below.name in self._query.shown for branch in branches for below in branch.all())
        if shown < 2 and self._pick(False, True):  # the order of others is that of the output
            terms.reverse()
        position = [variable.position] if variable.position else []
        if len(terms) > 1 and not any(" or " in term for term in terms) and self._pick(False, True):
            terms = [self._pick(" and ", " and\n").join(terms)]
        return "".join(f"[{term}]" for term in position + terms)

    def _term(self, branch: Variable) -> str:
        """A branch in a predicate. The constant that it is compared with may stand outside of its path."""
        outside = ""
        if len(branch.conditions) == 1 and not branch.below and _BY_ITSELF.fullmatch(branch.conditions[0]):
            outside = self._pick("", branch.conditions[0].removeprefix("."))
        path = branch.path
        start = f".{path}" if path.startswith("//") else self._pick(path[1:], f".{path}")
        return self._steps(replace(branch, conditions=()) if outside else branch, start) + outside

    # -- links -----------------------------------------------------------------------------------------

    def _link(self, link: Link) -> str:
        tests = [self._comparison(c) for c in link.comparisons]
        tests += [c.test.format(self._operand(c.operand)) for c in link.conditions]
        test = f"{self._space()}{self._keyword('AND')}{self._space()}".join(tests)
        op = self._space().join(self._keyword(word) for word in link.op.split())
        return f"{op}{self._pick('', ' ')}{{{test},{self._pick(' ', '')}{self._window(link.window)}}}"

    def _comparison(self, comparison: Comparison) -> str:
        left, op, right = comparison.left, comparison.op, comparison.right
        if self._pick(False, True):
            left, op, right = right, FLIPPED[op], left
        space = self._pick("", " ") if op in ("=", "!=") else " "
        sides = [self._operand(left), self._operand(right)]
        if comparison.numeric:
            one, other = sides
            converted = f"number({one})", f"number({other})"
            sides = list(self._pick(converted, (converted[0], other), (one, converted[1])))
        return f"{sides[0]}{space}{op}{space}{sides[1]}"

    def _operand(self, operand: Operand) -> str:
        """A variable, with $ or without; or the path to it, from the one above it."""
        inlined = self._inlined.get(operand.variable)
        name, path = (inlined[0], inlined[1] + operand.path) if inlined else (operand.variable, operand.path)
        return self._pick("", "$") + self._name(name) + path

    def _operands_to_inline(self) -> dict[str, tuple[str, str]]:
        """Variables that stand in one comparison only: the name of the one above, and the path from there."""
        query = self._query
        uses = Counter(
            side.variable for link in query.links for c in link.comparisons for side in (c.left, c.right)
        )
        kept = {*query.shown, *query.conditions, *(block.selected.name for block in query.blocks)}
        numeric = [c for link in query.links for c in link.comparisons if c.numeric]
        kept |= {side.variable for c in numeric for side in (c.left, c.right)}
        return {
            branch.name: (above.name, branch.xpath)
            for above in query.variables.values()
            for branch in above.branches
            if above.written and not branch.below and uses[branch.name] == 1 and branch.name not in kept
            if self._pick(False, True)
        }

    def _window(self, seconds: float) -> str:
        if seconds == inf:
            return self._keyword("INF")
        exact = {unit: seconds / size for unit, size in _UNITS.items()}
        amounts = [
            (n, unit) for unit, n in exact.items() if n * 4 == int(n * 4) and n * _UNITS[unit] == seconds
        ]
        number, unit = self._pick(*sorted(amounts))
        return f"{number:.2f}".rstrip("0").rstrip(".") + self._pick(" ", "") + unit

    # -- output ----------------------------------------------------------------------------------------

    def _hole(self, hole: Hole) -> str:
        path = f"${self._name(hole.operand.variable)}{hole.operand.path}"
        return f"{hole.function}({path})" if hole.function else path

    # -- choices ---------------------------------------------------------------------------------------

    def _pick(self, *options: _T) -> _T:
        return options[0] if self._rng is None else self._rng.choice(options)

    def _name(self, name: str) -> str:
        return str(self._naming % name)

    def _keyword(self, word: str) -> str:
        return str(self._pick(word, word, word.lower(), word.title()))

    def _space(self) -> str:
        return str(self._pick(" ", " ", "\n", "  "))
