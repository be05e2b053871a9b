"""The blocks of a join: `news/nitf->n[.//author->a][price > 10]` → variables in a tree, and what their paths
must meet.

A step that is bound, that has bindings in its predicates, or that the block selects is a variable; steps in
between belong to the next one's path. Predicates without bindings, and what follows the last binding of a
branch, are conditions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from sapwood.errors import QueryError
from sapwood.lang.fwr.template import conjoin
from sapwood.lang.literals.numbers import COMPARATORS, FLIPPED
from sapwood.lang.pattern import Condition, Path
from sapwood.lang.scanning import END, WORD, describe_found, skip_space
from sapwood.lang.xpath import ast
from sapwood.lang.xpath.lexer import Token
from sapwood.lang.xpath.location_paths import Route, filter_route
from sapwood.lang.xpath.parser import Parser
from sapwood.lang.xpath.translator import Reason, Translator
from sapwood.lang.xscl.lexer import STREAMLESS, MarkedText, StepBinding, decode_primes
from sapwood.lang.xscl.model import MESSAGE

MOST_VARIABLES = 100
DECIDABLE = (
    "joins take what a pattern can say: paths with / // @ and names, comparisons with constants, "
    "contains(), starts-with(), and, or, not()"
)
_STREAM = re.compile(rf"\s*({WORD}){END}")
_NOT = re.compile(rf"\s*not\s+(?!(?:join|followed|publish){END}){WORD}", re.IGNORECASE)


@dataclass(eq=False, slots=True)
class Draft:
    """A variable under construction, whose conditions are still being collected."""

    name: str
    block: int
    origin: Draft | None
    """None: the message"""
    route: Route
    conditions: list[ast.Expr] = field(default_factory=list)
    """with the variable's node as their context"""
    met: list[Condition] = field(default_factory=list)
    """conditions on its node from paths that start at it"""
    number: int = MESSAGE
    numeric: bool = False
    as_number: Draft | None = None
    """the numeric variable that starts from it, if there is one"""


@dataclass(slots=True)
class BlockDraft:
    stream: str
    drafts: list[Draft]
    selected: Draft


class Blocks:
    """The blocks of a query, read one after the other."""

    def __init__(self, marked: MarkedText, namespaces: Mapping[str, str]) -> None:
        self._marked = marked
        self._namespaces = namespaces
        self.read: list[BlockDraft] = []
        self.variables: dict[str, Draft] = {}
        """those with a name"""
        self._claimed: set[int] = set()  # bindings, by where they start
        self._count = 0

    def block(self, at: int) -> int:
        """Read the block at a position; returns the position after it."""
        marked = self._marked
        stream, after = self._stream(at)
        steps = _Steps(marked, after, self._namespaces)
        if marked.text.startswith("/", skip_space(marked.text, after)):
            path, end = steps.path()
        else:
            path, end = steps.whole_message(after)
        reader = _BlockReader(self, marked, steps.bound, len(self.read))
        self.read.append(BlockDraft(stream, reader.drafts, reader.main(path)))
        return end

    def check_bindings(self) -> None:
        """Raise an error for a binding that belongs to no step: after a function, or outside of blocks."""
        for binding in self._marked.bindings.values():
            if binding.start not in self._claimed:
                raise self.misplaced("here", binding)

    def _stream(self, at: int) -> tuple[str, int]:
        """Read the name of the stream, empty if there is none; returns it and the start of the path."""
        text = self._marked.text
        start = skip_space(text, at)
        if text.startswith("/", start):
            return "", start
        found = _STREAM.match(text, at)
        if found is None or found[1].lower() in STREAMLESS:
            hint = "write stream//element, //element, or a stream"
            raise self.error(f"expected a block, {describe_found(text, start)}", start, hint)
        if text.startswith((":", "("), found.end()):
            hint = "a block is a path; prefixes belong to its steps: stream//p:element"
            raise self.error(f"{found[1]!r} is no stream", start, hint)
        if _NOT.match(text, at):
            hint = "joins are of messages that come; not(…) may stand in the brackets of a block"
            raise self.error(f"{found[1]} before a block", start, hint)
        return found[1], found.end()

    def add(self, draft: Draft, at: int, binding: StepBinding | None = None) -> Draft:
        """Register a variable whose path is at a position."""
        if self._count == MOST_VARIABLES:
            raise self.error(f"more than {MOST_VARIABLES} variables", at)
        self._count += 1
        if draft.origin is not None:
            draft.origin.met += draft.route.context
            if draft.origin.route.at_leaf and not draft.numeric:
                raise self.error("there is nothing below an attribute or text", at)
        if binding is not None:
            if binding.name in self.variables:
                reason = f"the variable {decode_primes(binding.name)} is bound already"
                raise self.error(reason, binding.name_at, "choose another name")
            self.variables[binding.name] = draft
            self._claimed.add(binding.start)
        return draft

    def route(self, expr: ast.Expr, at_document: bool) -> Route:
        """Translate a path that must have a single route."""
        translator = Translator(at_document)
        nodes = translator.nodes(expr)
        self._refuse(translator.reasons, expr)
        if len(nodes.routes) == 1:
            return nodes.routes[0]
        if not nodes.routes:
            raise self.error("this path never reaches anything", expr.start)
        hint = "write .//*/@id for those of elements below, or @id" if "@" in self._slice(expr) else None
        raise self.error("this path leads to a variable in two ways", expr.start, hint)

    def path(self, draft: Draft) -> Path:
        """Return a variable's path, with all conditions on it."""
        route = draft.route
        if draft.conditions:
            translator = Translator(at_document=False)
            route = translator.narrowed(route, (conjoin(draft.conditions),))
            self._refuse(translator.reasons)
        return Path(filter_route(route, tuple(draft.met)).steps)

    def _refuse(self, reasons: list[Reason], path: ast.Expr | None = None) -> None:
        """Raise an error for a condition or path that a pattern only approximates."""
        if reasons:
            start = reasons[0].start
            in_path = path is not None and "[" not in self._marked.text[path.start : start]
            why = f"this {'path' if in_path else 'condition'} cannot be part of a join: {reasons[0].why}"
            raise self.error(why, start, DECIDABLE)

    def misplaced(self, where: str, binding: StepBinding) -> QueryError:
        hint = "bind a step of a block, or of a path in a predicate of its own: [author->a]"
        return self.error(f"a variable cannot be bound {where}", binding.start, hint)

    def error(self, reason: str, at: int, hint: str | None = None) -> QueryError:
        return self._marked.error(reason, at, hint)

    def _slice(self, expr: ast.Expr) -> str:
        return self._marked.text[expr.start : expr.end]


class _Steps(Parser):
    """XPath's parser, for paths whose steps may be bound."""

    def __init__(self, marked: MarkedText, start: int, namespaces: Mapping[str, str]) -> None:
        super().__init__(marked.text, marked.tokens(start), namespaces, {})
        self._bindings = marked.bindings
        self.bound: dict[int, StepBinding] = {}
        """by where their step starts"""
        self._found: list[StepBinding] = []  # the one of the node test that was read last

    def path(self) -> tuple[ast.LocationPath, int]:
        start = self._next.start
        path = self._location_path()
        if not path.steps:
            raise self._error("a block selects elements, not the document", start, "write /* for the root")
        return path, self._end()

    def whole_message(self, start: int) -> tuple[ast.LocationPath, int]:
        """Read the predicates of a stream without a path, which stands for `/*`."""
        predicates = self._predicates()
        end = self._end() if self._at else start
        self._bind(start)
        step = ast.Step("child", "*", predicates, start=start, end=end)
        return ast.LocationPath(True, None, (step,), start=start, end=end), end

    def _step(self) -> ast.Step:
        self._found.clear()
        step = super()._step()
        if self._next.kind == "binding":
            dots = self._query[step.start : step.end]
            hint = "bind the step itself: //book->b[…]"
            raise self._error(f"{dots!r} cannot be bound", self._next.start, hint)
        self._bind(step.start)
        return step

    def _variable(self, token: Token) -> NoReturn:
        hint = "bind what is compared, and compare it in the braces: JOIN{x = y, 1 day}"
        raise self._error("a variable in a condition of a block", token.start, hint)

    def _bind(self, step: int) -> None:
        if self._found:
            self.bound[step] = self._found.pop()

    def _predicates(self) -> tuple[ast.Expr, ...]:
        """Read predicates, with a binding before or after them."""
        found: list[StepBinding] = []
        predicates: list[ast.Expr] = []
        while self._is("[") or self._next.kind == "binding":
            if self._is("["):
                predicates += super()._predicates()
                continue
            binding = self._bindings[self._take().start]
            if found:
                reason = f"this step is bound to {found[0].name} already"
                raise self._error(reason, binding.start, "use the one variable twice")
            found.append(binding)
        self._found = found
        return tuple(predicates)


class _BlockReader:
    """Turns the steps of one block into variables."""

    def __init__(
        self, blocks: Blocks, marked: MarkedText, bound: dict[int, StepBinding], number: int
    ) -> None:
        self._blocks = blocks
        self._marked = marked
        self._bound = bound
        self._number = number
        self.drafts: list[Draft] = []

    def main(self, path: ast.LocationPath) -> Draft:
        """Return the variable that the block selects."""
        selected, _ = self._follow(path, None, selects=True)
        assert selected is not None
        return selected

    def _follow(
        self, path: ast.LocationPath, origin: Draft | None, selects: bool
    ) -> tuple[Draft | None, tuple[ast.Step, ...]]:
        """Create the variables on a path; returns the last one and the steps after it."""
        way: list[ast.Step] = []
        for step in path.steps:
            bare, terms = self._split_predicates(step)
            way.append(bare)
            binding = self._bound.get(step.start)
            if binding is None and not terms and not (selects and step is path.steps[-1]):
                continue
            origin = self._variable(tuple(way), origin, binding)
            for term in terms:
                self._term(term, origin)
            way = []
        return origin, tuple(way)

    def _variable(
        self, steps: tuple[ast.Step, ...], origin: Draft | None, binding: StepBinding | None
    ) -> Draft:
        start, end = steps[0].start, steps[-1].end
        path = ast.LocationPath(origin is None, None, steps, start=start, end=end)
        route = self._blocks.route(path, at_document=origin is None)
        if not route.steps:
            at = binding.start if binding is not None else start
            raise self._blocks.error("this path goes nowhere", at, "bind the step itself: //book->b[…]")
        draft = Draft(binding.name if binding is not None else "", self._number, origin, route)
        self.drafts.append(self._blocks.add(draft, start, binding))
        return draft

    def _split_predicates(self, step: ast.Step) -> tuple[ast.Step, list[ast.Expr]]:
        """Split a step into one without the predicate terms that bind variables, and those terms."""
        if not step.predicates:
            return step, []
        kept: list[ast.Expr] = []
        binding: list[ast.Expr] = []
        for predicate in step.predicates:
            if binding and _counts(predicate):
                hint = "put it before them: //book[1][author->a]"
                reason = "a position among what predicates with variables leave"
                raise self._blocks.error(reason, predicate.start, hint)
            if not self._binds(predicate):
                kept.append(predicate)
                continue
            terms = ast.flatten_chain(predicate, "and")
            free = [term for term in terms if not self._binds(term)]
            kept += [conjoin(free)] if free else []
            binding += [term for term in terms if self._binds(term)]
        return replace(step, predicates=tuple(kept)), binding

    def _term(self, term: ast.Expr, origin: Draft) -> None:
        """Create the variables of a path in a predicate, which may be compared with a constant."""
        match term:
            case ast.LocationPath(absolute=False, base=None):
                last, tail = self._follow(term, origin, selects=False)
                if tail and last is not None:
                    last.conditions.append(replace(term, steps=tail))
                return
            case ast.Binary(op=op, left=ast.LocationPath(absolute=False, base=None) as path, right=other):
                if op in COMPARATORS and is_constant(other):
                    last, tail = self._follow(path, origin, selects=False)
                    assert last is not None
                    here = replace(path, steps=tail or (_self(path),))
                    last.conditions.append(replace(term, left=here))
                    return
            case ast.Binary(op=op, left=other, right=path) if op in COMPARATORS and is_constant(other):
                self._term(replace(term, op=FLIPPED[op], left=path, right=other), origin)
                return
        raise self._blocks.misplaced(_where(term), self._marked.within(term.start, term.end)[0])

    def _binds(self, expr: ast.Expr) -> bool:
        return bool(self._marked.within(expr.start, expr.end))


def is_constant(expr: ast.Expr) -> bool:
    """Return whether an expression is a literal string or number."""
    return isinstance(expr.operand if isinstance(expr, ast.Negate) else expr, ast.Text | ast.Number)


def _counts(expr: ast.Expr) -> bool:
    """Return whether a predicate depends on positions."""
    parts = [expr]
    while parts:
        part = parts.pop()
        if isinstance(part, ast.Call) and part.name in ("position", "last"):
            return True
        parts += ast.operands(part)
    return ast.static_type(expr) == "number"


def _self(path: ast.LocationPath) -> ast.Step:
    return ast.Step("self", "node()", (), start=path.start, end=path.end)


def _where(term: ast.Expr) -> str:
    """Describe the construct in which a variable cannot be bound."""
    match term:
        case ast.Binary(op="or"):
            return "under 'or'"
        case ast.Binary(op="|"):
            return "in a union"
        case ast.Binary(op=op) if op in COMPARATORS:
            return "in a comparison with anything but a constant"
        case ast.Binary() | ast.Negate():
            return "inside arithmetic"
        case ast.Call(name=name):
            return f"inside {name}()"
        case ast.LocationPath(absolute=True):
            return "on a path from the root inside a predicate"
    return "inside parentheses"
