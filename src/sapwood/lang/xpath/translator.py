"""Translation of syntax trees into tree patterns: exact where possible, necessary conditions elsewhere.

The translation never refuses. Where an expression has no exact pattern, it becomes the strongest pattern
that every matching message must satisfy, and a `Reason` says which part was weakened and why; the answer is
then decided by an XPath processor on the messages that pass. Three rules keep that sound:

1. a weakened condition is implied by the real one, so conjunctions and disjunctions of them are too;
2. under not() nothing may be weakened: a weakened operand makes the whole negation `true()`;
3. a positional predicate counts what earlier predicates kept, so after a weakened one it is dropped.

A step on a reverse or sibling axis cuts a path in two: the part before it must exist, and the part after it
must exist somewhere in the message. The second condition does not hang on the context node, so it is
*hoisted*: joined to the whole query, unless it stands under `or` or `not()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sapwood.lang.literals.numbers import COMPARE, FLIPPED, to_number
from sapwood.lang.pattern import (
    ANY_NAMESPACE,
    FALSE,
    TEXT,
    TRUE,
    Condition,
    Named,
    Path,
    Position,
    Test,
    all_of,
    any_of,
    canonical_predicates,
    negation,
    selects_at_most_one,
)
from sapwood.lang.xpath import ast
from sapwood.lang.xpath.location_paths import ANYWHERE, NodeSet, Route, Walk, filter_route


@dataclass(frozen=True, slots=True)
class Reason:
    """A part of the query, by its slice, that the pattern only approximates."""

    start: int
    end: int
    why: str


class Translator:
    """Translates one query; `reasons` lists what was weakened, `hoisted` further conditions on the message.

    Paths that are not absolute start at the document, or else at some other node.
    """

    def __init__(self, at_document: bool = True) -> None:
        self.reasons: list[Reason] = []
        self.hoisted: list[Condition] = []
        self._in_predicate = 0 if at_document else 1
        self._on_leaves = False  # whether the context node is an attribute or text
        self._no_hoisting = 0

    # -- bookkeeping -----------------------------------------------------------------------------------

    def weaken(self, expr: ast.Expr, why: str) -> None:
        self.reasons.append(Reason(expr.start, expr.end, why))

    def _hoist(self, condition: Condition) -> None:
        if not self._no_hoisting:
            self.hoisted.append(condition)

    @contextmanager
    def _without_hoisting(self) -> Iterator[None]:
        self._no_hoisting += 1
        yield
        self._no_hoisting -= 1

    # -- conditions ------------------------------------------------------------------------------------

    def boolean(self, expr: ast.Expr) -> Condition:
        """Return the condition on the context node under which `boolean(expr)` is true."""
        match expr:
            case ast.Binary(op="or"):
                with self._without_hoisting():
                    return any_of([self.boolean(part) for part in ast.flatten_chain(expr, "or")])
            case ast.Binary(op="and"):
                return all_of([self.boolean(part) for part in ast.flatten_chain(expr, "and")])
            case ast.Binary(op="=" | "!=" | "<" | "<=" | ">" | ">="):
                return self._comparison(expr)
            case ast.Call():
                return self._call(expr)
            case ast.Text(value=text):
                return TRUE if text else FALSE
            case ast.Number(value=number):
                return TRUE if number and not math.isnan(number) else FALSE
        if ast.static_type(expr) == "node-set":
            return self.existence(self.nodes(expr))
        self.weaken(expr, "arithmetic")
        return self._needed_for_number(expr)

    def _call(self, call: ast.Call) -> Condition:
        match call.name:
            case "true":
                return TRUE
            case "false":
                return FALSE
            case "boolean":
                return self.boolean(call.args[0])
            case "not":
                return self._negated(call.args[0])
            case "contains" | "starts-with":
                return self._string_test(call)
            case "count":
                return self.boolean(call.args[0])
            case "string" | "normalize-space" if call.args and ast.static_type(call.args[0]) == "node-set":
                self.weaken(call, f"{call.name}() as a condition")
                return self.boolean(call.args[0])
            case "id":
                self.weaken(call, "id() needs the types a DTD declares")
                return TRUE
        self.weaken(call, f"the function {call.name}()")
        return TRUE

    def _negated(self, expr: ast.Expr) -> Condition:
        weakened = len(self.reasons)
        with self._without_hoisting():
            condition = self.boolean(expr)
        return negation(condition) if len(self.reasons) == weakened else TRUE

    def existence(self, nodes: NodeSet) -> Condition:
        return self._any(nodes, lambda route: route.holds(None))

    def _any(self, nodes: NodeSet, holds: Callable[[Route], Condition]) -> Condition:
        """The condition that `holds` for a route; behind a cut, for a route of the nodes beyond it."""
        if nodes.beyond is None:
            return self._relative(any_of([holds(route) for route in nodes.routes]), nodes)
        self._hoist(self._absolutely(nodes.beyond, holds))
        return self._relative(any_of([route.holds(None) for route in nodes.routes]), nodes)

    def _absolutely(self, nodes: NodeSet, holds: Callable[[Route], Condition]) -> Condition:
        if nodes.anywhere:
            return TRUE
        if nodes.beyond is None:
            return any_of([holds(route) for route in nodes.routes])
        self._hoist(self._absolutely(nodes.beyond, holds))
        return any_of([route.holds(None) for route in nodes.routes])

    def _relative(self, condition: Condition, nodes: NodeSet) -> Condition:
        """Inside a predicate, a condition on absolute paths holds of the message, not of the node."""
        if not self._in_predicate or not any(route.absolute for route in nodes.routes):
            return condition
        if all(route.absolute for route in nodes.routes):
            self._hoist(condition)
        return TRUE

    # -- comparisons -----------------------------------------------------------------------------------

    def _comparison(self, expr: ast.Binary) -> Condition:
        op, left, right = expr.op, expr.left, expr.right
        if _constant(left) is not None:
            op, left, right = FLIPPED[op], right, left
        value = _constant(right)
        if _is_call(left, "position", "last") or _is_call(right, "position", "last"):
            return self._position(expr, op, left, right)
        if value is not None:
            return self._against_constant(expr, op, left, right, value)
        if ast.static_type(left) == ast.static_type(right) == "node-set":
            self.weaken(expr, "a comparison between paths")
            return all_of((self.boolean(left), self.boolean(right)))
        if _is_call(right, "true", "false") and op in ("=", "!="):
            return self._truth(left, _is_call(right, "true") == (op == "="))
        self.weaken(expr, "a comparison with a computed value")
        return all_of([self._needed_by(op, side, other) for side, other in ((left, right), (right, left))])

    def _truth(self, expr: ast.Expr, wanted: bool) -> Condition:
        """The condition under which `boolean(expr) = wanted`."""
        return self.boolean(expr) if wanted else self._negated(expr)

    def _needed_by(self, op: str, side: ast.Expr, other: ast.Expr) -> Condition:
        """The nodes that must exist for one side of a comparison, given the type of the other.

        Against a boolean, nothing: an empty node-set is just false. As a number, what is missing is NaN,
        which only `!=` passes. As a string it is empty, and may well equal another.
        """
        types = {ast.static_type(side), ast.static_type(other)}
        if "boolean" in types or op == "!=":
            return TRUE
        if op != "=" or "number" in types or ast.is_node_set(side):
            return self._needed_for_number(side)
        return self._needed_for_text(side) if isinstance(other, ast.Text) and other.value else TRUE

    def _against_constant(
        self, expr: ast.Binary, op: str, left: ast.Expr, right: ast.Expr, value: str | float
    ) -> Condition:
        if ast.static_type(left) == "node-set":
            if op not in ("=", "!="):
                value = to_number(value)
            if value != value:  # nothing compares with NaN, and everything differs from it
                return self.boolean(left) if op == "!=" else FALSE
            test = Test(op, value)
            return self._any(self.nodes(left), lambda route: route.holds(test))
        match left:
            case ast.Call(name="count"):
                return self._count(expr, op, left, to_number(value))
            case ast.Call(name="local-name" | "namespace-uri" | "name", args=()) if op == "=":
                return self._name_test(left, str(value))
            case ast.Call(name="string" | "normalize-space" as function) if op == "=" and value != "":
                return self._string_equality(left, function, value)
        self.weaken(expr, "a comparison of a computed value")
        return self._needed_by(op, left, right)

    def _count(self, expr: ast.Binary, op: str, call: ast.Call, n: float) -> Condition:
        if COMPARE[op](0.0, n):
            self.weaken(expr, "count() compared with a number that no node may pass, too")
            return TRUE
        exists = self.boolean(call.args[0])
        if not (op in (">", ">=") and COMPARE[op](1.0, n)) and not (op == "!=" and n == 0):
            self.weaken(expr, "count() compared with a number")
        return exists

    def _name_test(self, call: ast.Call, value: str) -> Condition:
        local = value.rpartition(":")[2]
        on_element = self._in_predicate and not self._on_leaves and "*" not in value
        if on_element and value and call.name == "local-name":
            return Named(f"{ANY_NAMESPACE}}}{value}")
        if on_element and value and call.name == "namespace-uri":
            return Named(f"{value}}}*")
        self.weaken(call, f"{call.name}() of prefixes, or of other nodes than elements")
        return Named(f"{ANY_NAMESPACE}}}{local}") if on_element and local and call.name == "name" else TRUE

    def _string_equality(self, call: ast.Call, function: str, value: str | float) -> Condition:
        if function == "normalize-space" or isinstance(value, float):
            self.weaken(call, f"{function}() compared with a constant")
            return self.boolean(call.args[0]) if call.args and ast.is_node_set(call.args[0]) else TRUE
        return self._first_node(call, call.args[0] if call.args else None, Test("=", value))

    def _string_test(self, call: ast.Call) -> Condition:
        subject, wanted = call.args
        while _is_call(subject, "string") and isinstance(subject, ast.Call) and subject.args:
            subject = subject.args[0]
        if isinstance(wanted, ast.Text) and not wanted.value:
            return TRUE
        if isinstance(wanted, ast.Text) and isinstance(subject, ast.Text):
            found = subject.value.find(wanted.value)
            return TRUE if (found == 0 or (found > 0 and call.name == "contains")) else FALSE
        if isinstance(wanted, ast.Text) and (ast.is_node_set(subject) or _is_call(subject, "string")):
            return self._first_node(
                call, subject if ast.is_node_set(subject) else None, Test(call.name, wanted.value)
            )
        self.weaken(call, f"{call.name}() of computed strings")
        return self._needed_for_text(subject) if isinstance(wanted, ast.Text) else TRUE

    def _first_node(self, expr: ast.Expr, subject: ast.Expr | None, test: Test) -> Condition:
        """A test of the first node of a node-set, which gives its string-value; `None` is the context node.

        Of a weakened node-set, which may hold further nodes, any may be the first of those really meant.
        """
        weakened = len(self.reasons)
        nodes = self.nodes(subject) if subject is not None else NodeSet([Route(False)])
        if len(nodes.routes) == 1 and len(self.reasons) == weakened:
            route = nodes.routes[0]
            return self._relative(route.holds(test, first=not selects_at_most_one(Path(route.steps))), nodes)
        if len(self.reasons) == weakened:
            self.weaken(expr, "the first node of a union")
        return self._any(nodes, lambda route: route.holds(test))

    def _position(self, expr: ast.Binary, op: str, left: ast.Expr, right: ast.Expr) -> Condition:
        """`position() op n`, `position() op last() ± n`, `last() op n`."""
        if not (_is_call(left, "position") or (_is_call(left, "last") and _constant(right) is not None)):
            op, left, right = FLIPPED[op], right, left
        n = _constant(right)
        if _is_call(left, "position", "last") and n is not None:
            return Position(op, to_number(n), of_size=_is_call(left, "last"))
        offset = _offset_from_last(right)
        if _is_call(left, "position") and offset is not None:
            return Position(op, offset, from_last=True)
        self.weaken(expr, "arithmetic on positions")
        return TRUE

    def _needed_for_number(self, expr: ast.Expr) -> Condition:
        """The nodes that must exist for `number(expr)` not to be NaN."""
        needed: list[Condition] = []
        parts = [expr]
        while parts:  # a loop, because chains may be thousands long
            match parts.pop():
                case ast.Binary(op="+" | "-" | "*" | "div" | "mod", left=left, right=right):
                    parts += (left, right)
                case ast.Negate(operand=operand):
                    parts.append(operand)
                case ast.Call(name="number" | "floor" | "ceiling" | "round", args=(operand, *_)):
                    parts.append(operand)
                case ast.Call(name="string" | "normalize-space", args=(operand,)):
                    parts.append(operand)  # which converts as its string does: NaN to 'NaN' and back
                case part:
                    needed.append(self._needed_for_text(part))
        return all_of(needed)

    def _needed_for_text(self, expr: ast.Expr) -> Condition:
        """The nodes that must exist for `string(expr)` not to be empty; that of a number never is."""
        while (
            isinstance(expr, ast.Call)
            and expr.args
            and expr.name in ("string", "normalize-space", "translate")
        ):
            expr = expr.args[0]
        return self.boolean(expr) if ast.is_node_set(expr) else TRUE

    # -- node-sets -------------------------------------------------------------------------------------

    def nodes(self, expr: ast.Expr) -> NodeSet:
        """Return the routes to the nodes of a node-set expression."""
        match expr:
            case ast.Binary(op="|"):
                return self._union(expr)
            case ast.LocationPath():
                return self._path(expr)
            case ast.Filtered(base=base, predicates=conditions):
                return self.nodes(base).at_end(lambda nodes: self._filtered(nodes, conditions))
        unknown = isinstance(expr, ast.Variable)
        self.weaken(expr, "a variable in a predicate" if unknown else "id() needs the types a DTD declares")
        return NodeSet([Route(True)], ANYWHERE)

    def _filtered(self, nodes: NodeSet, conditions: tuple[ast.Expr, ...]) -> NodeSet:
        on_leaves = nodes.anywhere or any(route.at_leaf or not route.steps for route in nodes.routes)
        kept = self._predicates(conditions, False, on_leaves)
        if nodes.anywhere:
            return nodes
        return NodeSet([filter_route(route, kept) for route in nodes.routes])

    def _union(self, expr: ast.Binary) -> NodeSet:
        with self._without_hoisting():
            parts = [self.nodes(part) for part in ast.flatten_chain(expr, "|")]
        routes = list(dict.fromkeys(route for part in parts for route in part.routes))
        if all(part.beyond is None for part in parts):
            return NodeSet(routes)
        return NodeSet(routes, ANYWHERE)

    def _path(self, path: ast.LocationPath) -> NodeSet:
        if path.absolute and self._in_predicate:
            self.weaken(path, "an absolute path inside a predicate")
        start = self.nodes(path.base) if path.base is not None else NodeSet([Route(path.absolute)])
        at_document = path.absolute or not self._in_predicate
        walk = Walk(self, at_document, self._on_leaves and not path.absolute and path.base is None)
        return start.at_end(
            lambda nodes: (
                walk.from_anywhere(path.steps) if nodes.anywhere else walk.over(path.steps, nodes.routes)
            )
        )

    def _predicates(
        self, conditions: tuple[ast.Expr, ...], positions: bool, on_leaves: bool
    ) -> tuple[Condition, ...]:
        """Successive predicates; where `positions` are not counted among siblings, they are weakened."""
        weakened = len(self.reasons)
        kept: list[Condition] = []
        outside, self._on_leaves = self._on_leaves, on_leaves
        self._in_predicate += 1
        for condition in conditions:
            translated = self._predicate(condition)
            if translated.positional and not positions:
                self.weaken(condition, "a position counted otherwise than among siblings")
            if not translated.positional or len(self.reasons) == weakened:
                kept.append(translated)
        self._in_predicate -= 1
        self._on_leaves = outside
        return canonical_predicates(kept)

    def _predicate(self, expr: ast.Expr) -> Condition:
        if ast.static_type(expr) != "number":
            return self.boolean(expr)
        value = _constant(expr)
        if isinstance(value, float):
            return Position("=", value) if value.is_integer() and value >= 1 else FALSE
        offset = _offset_from_last(expr)
        if offset is not None:
            return Position("=", offset, from_last=True)
        self.weaken(expr, "a computed position")
        return TRUE

    def narrowed(self, route: Route, conditions: tuple[ast.Expr, ...]) -> Route:
        """Return the route with further conditions on the nodes that it reaches."""
        return filter_route(route, self._predicates(conditions, False, route.at_leaf or not route.steps))

    def step_predicates(self, step: ast.Step, positions: bool) -> tuple[Condition, ...]:
        if not step.predicates:
            return ()
        return self._predicates(step.predicates, positions, step.axis == "attribute" or step.test == TEXT)


def _is_call(expr: ast.Expr, *names: str) -> bool:
    return isinstance(expr, ast.Call) and expr.name in names


def _constant(expr: ast.Expr) -> str | float | None:
    match expr:
        case ast.Text(value=text):
            return text
        case ast.Number(value=number):
            return number
        case ast.Negate(operand=ast.Number(value=number)):
            return 0.0 - number  # so that -0, which compares as 0 does, is written as 0, too
    return None


def _offset_from_last(expr: ast.Expr) -> float | None:
    match expr:
        case ast.Call(name="last"):
            return 0.0
        case ast.Binary(op="+" | "-" as op, left=ast.Call(name="last"), right=ast.Number(value=n)):
            return n if op == "+" else -n
    return None
