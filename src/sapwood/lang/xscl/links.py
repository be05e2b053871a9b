"""The blocks of a join and the links between them, in value-join normal form.

A comparison stands between a variable of an earlier block and one of the next. A path in it, `x1/title`,
becomes a variable without a name; what is said of one variable alone, `x2 = "Ann"`, becomes a condition on
that variable's path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import is_not
from typing import NamedTuple

from sapwood.errors import QueryError
from sapwood.lang.fwr.expressions import refuse_context
from sapwood.lang.fwr.template import origins_of, relative_to
from sapwood.lang.literals.durations import parse_window
from sapwood.lang.literals.numbers import COMPARATORS, FLIPPED, Comparator
from sapwood.lang.pattern import Path, selects_at_most_one
from sapwood.lang.scanning import describe_found, skip_space
from sapwood.lang.xpath import ast, error_hints
from sapwood.lang.xpath.lexer import Token, unknown_character
from sapwood.lang.xpath.location_paths import Route
from sapwood.lang.xpath.parser import Parser
from sapwood.lang.xscl.blocks import Blocks, Draft
from sapwood.lang.xscl.lexer import MarkedText, decode_primes, keyword
from sapwood.lang.xscl.model import MESSAGE, Block, BlockVariable, Comparison, Link

MOST_BLOCKS = 10
_PATH_STARTS = "start it with a variable: x1/title"
_WORDS = ("JOIN", "FOLLOWED BY", "PUBLISH")


class Chain(NamedTuple):
    """The blocks and links of a join: the text between FROM and PUBLISH, compiled."""

    blocks: tuple[Block, ...]
    variables: tuple[BlockVariable, ...]
    links: tuple[Link, ...]
    end: int
    """the position after it"""


@dataclass(slots=True)
class _LinkDraft:
    ordered: bool
    window: float
    predicate: ast.Expr


class _DraftComparison(NamedTuple):
    left: Draft
    op: Comparator
    right: Draft


def read_chain(text: str, start: int, namespaces: Mapping[str, str]) -> Chain:
    """Compile the chain that starts at a position of a query; raises QueryError."""
    return _ChainReader(MarkedText(text, start), namespaces).read(start)


class _ChainReader:
    def __init__(self, marked: MarkedText, namespaces: Mapping[str, str]) -> None:
        self._marked = marked
        self._text = marked.text
        self._namespaces = namespaces
        self._blocks = Blocks(marked, namespaces)

    def read(self, start: int) -> Chain:
        blocks = self._blocks
        at = blocks.block(start)
        links: list[_LinkDraft] = []
        while (ordered := self._operator(at)) is not None:
            _, at = keyword(self._text, at)
            if ordered:
                _, at = keyword(self._text, at)
            if len(links) == MOST_BLOCKS - 1:
                raise self._error(f"more than {MOST_BLOCKS} blocks", at)
            link, at = self._braces(at, ordered)
            links.append(link)
            at = blocks.block(at)
        blocks.check_bindings()
        compared = [self._compared(link.predicate, number) for number, link in enumerate(links, 1)]
        return self._numbered(links, compared, at)

    # -- between blocks --------------------------------------------------------------------------------

    def _operator(self, at: int) -> bool | None:
        """Read the operator of a link: whether it is ordered; None before PUBLISH or the end."""
        word, after = keyword(self._text, at)
        if word == "JOIN":
            return False
        if word == "FOLLOWED":
            following, _ = keyword(self._text, after)
            if following == "BY":
                return True
            at = skip_space(self._text, after)
            raise self._error(f"expected BY after FOLLOWED, {self._found(at)}", at, "write FOLLOWED BY{…}")
        at = skip_space(self._text, at)
        if word == "PUBLISH" or at == len(self._text):
            return None
        reason = f"expected JOIN, FOLLOWED BY or PUBLISH, {self._found(at)}"
        raise self._error(reason, at, self._hint(word, at))

    def _hint(self, word: str, at: int) -> str | None:
        """The hint for an error where a link was expected."""
        known = error_hints.NO_LINKS.get(word or self._text[at])
        if known is not None or word:
            return (
                known or error_hints.did_you_mean(word, _WORDS) or "link blocks by JOIN{…} or FOLLOWED BY{…}"
            )
        if self._text.startswith("=>", at):
            return "write -> before a variable"
        if self._text[at] == "{":
            return "write JOIN{…} or FOLLOWED BY{…}"
        if self._text[at] in "])}":
            return f"there is a {self._text[at]!r} too many"
        return "a block is one path; conditions on it stand in brackets after a step"

    def _braces(self, at: int, ordered: bool) -> tuple[_LinkDraft, int]:
        text = self._text
        at = skip_space(text, at)
        if not text.startswith("{", at):
            hint = "write the predicate and the window in braces: JOIN{x = y, 1 day}"
            raise self._error(f"expected '{{', {self._found(at)}", at, hint)
        predicate, at = self._predicate(skip_space(text, at + 1))
        if isinstance(predicate, ast.Number):
            hint = "the window comes after the predicate: {x = y, 1 day}"
            raise self._error("a number is no predicate", predicate.start, hint)
        at = self._comma(skip_space(text, at))
        seconds, at = parse_window(text, at)
        at = skip_space(text, at)
        if not text.startswith("}", at):
            last = "the window comes last: {x = y AND …, 1 day}" if text.startswith(",", at) else None
            raise self._error(f"expected '}}' after the window, {self._found(at)}", at, last)
        return _LinkDraft(ordered, seconds, predicate), at + 1

    def _predicate(self, at: int) -> tuple[ast.Expr, int]:
        if self._text.startswith((",", "}"), at):
            raise self._error("a link without a predicate", at, "write {x = y, 1 day}")
        tokens = _mark_variables(self._marked.tokens(at))
        for token in tokens:
            if token.kind == "binding":
                raise self._blocks.misplaced("here", self._marked.bindings[token.start])
            if token.kind == "variable" and self._text[token.start : token.end] in ("and", "or"):
                hint = "write {x = y AND z = w, 1 day}"
                reason = f"expected a condition before {token.text[1:].upper()}"
                raise self._error(reason, token.start, hint)
        return _Conditions(self._text, tokens, self._namespaces, _collect_variables(tokens)).parse_first()

    def _comma(self, at: int) -> int:
        """Return the position after the comma before a window."""
        if self._text.startswith(",", at):
            return at + 1
        if self._text.startswith("}", at):
            raise self._error("a link without a window", at, "write {x = y, 1 day}, or INF for no bound")
        word, _ = keyword(self._text, at)
        operator = error_hints.XPATH2_OPERATORS.get(word.lower())
        hint = error_hints.NO_COMPARATORS.get(word or self._text[at : at + 1])
        if hint is None and operator is not None:
            hint = f"write {operator} instead of {word.lower()}"
        elif hint is None and not word and at < len(self._text) and self._text[at] not in "{}":
            hint = unknown_character(self._text, at).hint
        raise self._error(f"expected AND, or ',' and a window, {self._found(at)}", at, hint)

    # -- predicates ------------------------------------------------------------------------------------

    def _compared(self, predicate: ast.Expr, block: int) -> list[_DraftComparison]:
        """Return the comparisons of the link to a block; other conditions go to the variable they mention."""
        compared: list[_DraftComparison] = []
        for condition in ast.flatten_chain(predicate, "and"):
            drafts = self._variables(condition, block)
            if len(drafts) == 1:
                self._refuse_itself(condition)
                ((name, draft),) = drafts.items()
                draft.conditions.append(relative_to(condition, name))
            else:
                compared.append(self._comparison(condition, drafts, block))
        if not any(each.op == "=" for each in compared):
            reason = "a link needs an equality between a block before it and the block after it"
            raise self._error(reason, predicate.start, "write x = y, with a variable of either side")
        return list(dict.fromkeys(compared))

    def _variables(self, condition: ast.Expr, block: int) -> dict[str, Draft]:
        """Return the variables that a condition mentions, by name."""
        refuse_context(condition, self._text, _PATH_STARTS)
        found: dict[str, Draft] = {}
        parts = [condition]
        while parts:
            part = parts.pop()
            match part:
                case ast.Variable(name=name):
                    found[name] = self._variable(name, part.start, block)
                case ast.LocationPath(base=None):
                    reason = "a path from a document, but from which?"
                    raise self._error(reason, part.start, _PATH_STARTS)
            parts += reversed(ast.operands(part))
        if not found:
            raise self._error("a condition on no variable", condition.start)
        return found

    def _variable(self, name: str, at: int, block: int) -> Draft:
        known = self._blocks.variables
        draft = known.get(name)
        if draft is None:
            raise self._error(
                f"there is no variable {name}", at, error_hints.hint_unbound_variable(name, known)
            )
        if draft.block > block:
            reason = f"{name} is of a later block"
            raise self._error(reason, at, "use it in the braces before that block")
        return draft

    def _refuse_itself(self, condition: ast.Expr) -> None:
        """Raise an error for a comparison of a variable with itself, which no pattern can decide."""
        match condition:
            case ast.Binary(op=op, left=left, right=right) if op in COMPARATORS and _are_paths(left, right):
                reason = "both sides are of one variable, and so of one block"
                raise self._error(reason, condition.start, _EITHER_SIDE)

    def _comparison(self, condition: ast.Expr, drafts: Mapping[str, Draft], block: int) -> _DraftComparison:
        """Compile a comparison between an earlier block and this one, whichever side it is written on."""
        match condition:
            case ast.Binary(op=op, left=left, right=right) if op in COMPARATORS and _are_paths(left, right):
                self._check_blocks(condition, drafts, block)
                first, second = self._operand(left), self._operand(right)
                if first.block == block:
                    return _DraftComparison(second, FLIPPED[op], first)
                return _DraftComparison(first, COMPARATORS[op], second)
            case ast.Binary(op="=", left=left, right=right) if _are_numbers(left, right):
                self._check_blocks(condition, drafts, block)
                first, second = self._number(left), self._number(right)
                if first.block == block:
                    first, second = second, first
                return _DraftComparison(first, "=", second)
        raise self._error(_describe_refusal(condition), condition.start, self._instead(condition))

    def _instead(self, condition: ast.Expr) -> str:
        """The hint for a condition between blocks that is not a comparison of paths."""
        match condition:
            case ast.Binary(op=op, left=left, right=right) if op in COMPARATORS:
                kind = "string" if op in ("=", "!=") else "number"
                sides = _strip_conversion(left, kind), _strip_conversion(right, kind)
                if _are_paths(*sides):
                    first, second = (self._text[side.start : side.end] for side in sides)
                    return f"write {first} {op} {second}: {op} compares {kind}s anyway"
        return _COMPARE

    def _check_blocks(self, condition: ast.Expr, drafts: Mapping[str, Draft], block: int) -> None:
        names = " and ".join(sorted(drafts))
        of = {draft.block for draft in drafts.values()}
        if len(of) == 1:
            raise self._error(f"{names} are of the same block", condition.start, _EITHER_SIDE)
        if block not in of:
            hint = "compare them in the braces before the later of their blocks"
            raise self._error(f"{names} are both of earlier blocks", condition.start, hint)

    def _operand(self, expr: ast.Expr) -> Draft:
        """Return the variable of an operand: a new one if the operand is a path from a variable."""
        (name,) = origins_of(expr)
        assert name is not None
        origin = self._blocks.variables[name]
        if isinstance(expr, ast.Variable):
            return origin
        route = self._blocks.route(relative_to(expr, name), at_document=False)
        if not route.steps:
            origin.met += route.context
            return origin
        draft = self._blocks.add(Draft("", origin.block, origin, route), expr.start)
        self._blocks.read[origin.block].drafts.append(draft)
        return draft

    def _number(self, side: ast.Expr) -> Draft:
        """Return the numeric variable of an operand."""
        operand = _strip_conversion(side, "number")
        origin = self._operand(operand)
        if operand is not side and isinstance(operand, ast.LocationPath) and not _is_one(origin):
            hint = "bind the node to a variable, and compare that"
            raise self._error("number() of a path is that of its first node", operand.start, hint)
        if origin.as_number is None:
            draft = Draft("", origin.block, origin, Route(False), numeric=True)
            origin.as_number = self._blocks.add(draft, side.start)
            self._blocks.read[origin.block].drafts.append(draft)
        return origin.as_number

    # -- the compiled form -----------------------------------------------------------------------------

    def _numbered(self, links: list[_LinkDraft], compared: list[list[_DraftComparison]], end: int) -> Chain:
        drafts = [draft for block in self._blocks.read for draft in block.drafts]
        for number, draft in enumerate(drafts):
            draft.number = number
        variables = [
            BlockVariable(
                decode_primes(draft.name),
                draft.block,
                MESSAGE if draft.origin is None else draft.origin.number,
                self._blocks.path(draft),
                draft.numeric,
            )
            for draft in drafts
        ]
        return Chain(
            tuple(Block(block.stream, block.selected.number) for block in self._blocks.read),
            tuple(variables),
            tuple(
                Link(
                    link.ordered,
                    link.window,
                    tuple(Comparison(c.left.number, c.op, c.right.number) for c in comparisons),
                )
                for link, comparisons in zip(links, compared, strict=True)
            ),
            end,
        )

    # -- helpers ---------------------------------------------------------------------------------------

    def _found(self, at: int) -> str:
        return describe_found(self._text, at)

    def _error(self, reason: str, at: int, hint: str | None = None) -> QueryError:
        return self._marked.error(reason, at, hint)


_COMPARE = "between blocks there are = != < <= > >= of variables and paths from them, joined by AND"
_EITHER_SIDE = "compare a variable of a block before with one of the block after the braces"


class _Conditions(Parser):
    def _unexpected(self, expected: str) -> QueryError:
        before = self._tokens[self._at - 1] if self._at else self._next
        if before.kind == "operator" and before.text in ("and", "or"):
            expected = f"expected a condition after {before.text.upper()}"
        return super()._unexpected(expected)

    def _hint_for(self, token: Token) -> str | None:
        return None if token.text == "," else super()._hint_for(token)


def _collect_variables(tokens: list[Token]) -> dict[str, ast.Expr]:
    """All variables that are mentioned; they are checked when all blocks have been read."""
    mentioned = [token for token in tokens if token.kind == "variable"]
    return {t.text[1:]: ast.Variable(t.text[1:], start=t.start, end=t.end) for t in mentioned}


def _mark_variables(tokens: list[Token]) -> list[Token]:
    """Turn the names that start a path outside predicates into variable tokens."""
    found: list[Token] = []
    depth = 0
    for token, following in pairwise(tokens):
        if token.kind == "symbol":
            depth += (token.text == "[") - (token.text == "]")
        elif token.kind == "name" and not depth and following.text not in ("(", "::"):
            before = found[-1].text if found else ""
            if before not in ("/", "//", "@", "::") and ":" not in token.text:
                token = Token("variable", f"${token.text}", token.start, token.end)
        found.append(token)
    return [*found, tokens[-1]]


def _are_paths(*sides: ast.Expr) -> bool:
    return all(ast.is_node_set(side) and len(origins_of(side)) == 1 for side in sides)


def _are_numbers(*sides: ast.Expr) -> bool:
    """Return whether paths are compared of which at least one is converted by number()."""
    operands = [_strip_conversion(side, "number") for side in sides]
    return _are_paths(*operands) and any(map(is_not, operands, sides))


def _is_one(draft: Draft) -> bool:
    """Return whether a variable is bound to at most one node for each node of its origin."""
    return bool(draft.name) or selects_at_most_one(Path(draft.route.steps))


def _describe_refusal(condition: ast.Expr) -> str:
    """Describe why a condition on several variables is not a comparison of two."""
    match condition:
        case ast.Binary(op="or"):
            return "'or' between variables of several blocks"
        case ast.Call(name=name):
            return f"{name}() of several variables"
        case ast.Binary(op=op, left=left, right=right) if op in COMPARATORS:
            odd = right if _are_paths(left) else left
            found = _describe_operand(odd)
            return f"only variables and paths from them can be compared between blocks, not {found}"
    return "arithmetic with several variables"


def _describe_operand(side: ast.Expr) -> str:
    """Describe an operand that is not a path."""
    match side:
        case ast.Call(name=name):
            return f"{name}()"
        case _ if ast.is_node_set(side):
            return "a union of variables"
        case _:
            return "conditions" if ast.static_type(side) == "boolean" else "arithmetic"


def _strip_conversion(side: ast.Expr, kind: str) -> ast.Expr:
    """Return the argument of an explicit conversion, `x` of `string(x)`; other operands as they are."""
    match side:
        case ast.Call(name=name, args=(argument,)) if name == kind:
            return argument
    return side
