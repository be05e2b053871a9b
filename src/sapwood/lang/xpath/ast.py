"""The syntax tree of an XPath 1.0 expression, as written.

Every node knows the slice of the query it came from, so that errors and explanations can point at it.
Names are already resolved: a name test is `local`, `uri}local`, `*` or `uri}*`, the form in which the
message reader reports names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ExprType = Literal["node-set", "boolean", "number", "string"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expr:
    start: int = field(compare=False, repr=False)
    end: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Text(Expr):
    value: str


@dataclass(frozen=True, slots=True)
class Number(Expr):
    value: float


@dataclass(frozen=True, slots=True)
class Variable(Expr):
    """A node-set that is bound outside the expression."""

    name: str


@dataclass(frozen=True, slots=True)
class Call(Expr):
    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """`or and = != < <= > >= + - * div mod |`"""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Negate(Expr):
    operand: Expr


@dataclass(frozen=True, slots=True)
class Step(Expr):
    """`axis::test[predicate]…`, with abbreviations written out."""

    axis: str
    test: str  # a name test, or `node()`, `text()`, `comment()`, `processing-instruction()`
    predicates: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class LocationPath(Expr):
    """Steps from the document (`absolute`), from a node-set expression (`base`), or from the context."""

    absolute: bool
    base: Expr | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Filtered(Expr):
    """`(expr)[predicate]…`: positions count in the whole node-set, in document order."""

    base: Expr
    predicates: tuple[Expr, ...]


def operands(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression, without predicates, which have another context."""
    match expr:
        case Binary(left=left, right=right):
            return left, right
        case Negate(operand=operand):
            return (operand,)
        case Call(args=args):
            return args
        case LocationPath(base=Expr() as base) | Filtered(base=base):
            return (base,)
    return ()


def flatten_chain(expr: Expr, op: str) -> list[Expr]:
    """Return the operands of a chain of one operator; a loop, because chains may be thousands long."""
    parts: list[Expr] = []
    while isinstance(expr, Binary) and expr.op == op:
        parts.append(expr.right)
        expr = expr.left
    return [expr, *reversed(parts)]


RETURN_TYPES: dict[str, ExprType] = {
    "last": "number",
    "position": "number",
    "count": "number",
    "id": "node-set",
    "local-name": "string",
    "namespace-uri": "string",
    "name": "string",
    "string": "string",
    "concat": "string",
    "starts-with": "boolean",
    "contains": "boolean",
    "substring-before": "string",
    "substring-after": "string",
    "substring": "string",
    "string-length": "number",
    "normalize-space": "string",
    "translate": "string",
    "boolean": "boolean",
    "not": "boolean",
    "true": "boolean",
    "false": "boolean",
    "lang": "boolean",
    "number": "number",
    "sum": "number",
    "floor": "number",
    "ceiling": "number",
    "round": "number",
}


OF_CONTEXT = frozenset(
    {"string", "number", "name", "local-name", "namespace-uri", "string-length", "normalize-space"}
)
"""the functions that take the context node if they have no argument"""


def static_type(expr: Expr) -> ExprType:
    """Return the static type of an expression; in XPath 1.0 every expression has one."""
    match expr:
        case Text():
            return "string"
        case Number() | Negate():
            return "number"
        case Call(name=name):
            return RETURN_TYPES[name]
        case Binary(op="|") | LocationPath() | Filtered() | Variable():
            return "node-set"
        case Binary(op="or" | "and" | "=" | "!=" | "<" | "<=" | ">" | ">="):
            return "boolean"
        case _:
            return "number"


def is_node_set(expr: Expr) -> bool:
    """Return whether an expression selects nodes."""
    return static_type(expr) == "node-set"
