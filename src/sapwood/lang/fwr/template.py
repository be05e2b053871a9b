"""The compiler of template holes: expressions over variables become paths from the variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sapwood.lang.fwr.expressions import Enclosed
from sapwood.lang.fwr.model import DOCUMENT, Kind, Template, TemplateHole
from sapwood.lang.literals.escaping import escape_attribute, escape_content
from sapwood.lang.literals.numbers import format_number
from sapwood.lang.pattern import EMPTY, Axis, Path, Step, plain_step
from sapwood.lang.xpath import ast
from sapwood.lang.xpath.translator import Reason, Translator


class HoleCompiler:
    """Compiles holes, given the numbers of variables; `reasons` lists those that are approximated."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers = numbers
        self.reasons: list[Reason] = []

    def paths(self, expr: ast.Expr, conditions: list[ast.Expr]) -> tuple[int, tuple[Path, ...]]:
        """Return the origin of a node-set, and the paths to those of its nodes that meet the conditions."""
        names = origins_of(expr)
        if len(names) != 1:
            self.reasons.append(Reason(expr.start, expr.end, "paths from several variables"))
            return DOCUMENT, (EMPTY,)
        name = next(iter(names))
        origin = DOCUMENT if name is None else self.numbers[name]
        plain = _plain_path(expr) if not conditions else None
        if plain is not None:
            return origin, (plain,)
        relative = relative_to(expr, name) if name is not None else expr
        if conditions:
            relative = ast.Filtered(relative, (conjoin(conditions),), start=expr.start, end=expr.end)
        translator = Translator(at_document=name is None)
        nodes = translator.nodes(relative)
        self.reasons += translator.reasons
        if any(route.context for route in nodes.routes):
            self.reasons.append(Reason(expr.start, expr.end, "a predicate on a variable"))
        paths = dict.fromkeys(Path(route.steps) for route in nodes.routes)
        return origin, tuple(sorted(paths, key=str))

    def part(self, part: str | Enclosed) -> Template:
        """Compile a piece of a constructor into a piece of a template."""
        if isinstance(part, str):
            return (part,)
        match part.expr:
            case ast.Text(value=value):
                return (
                    escape_attribute(value) if part.standing == "attribute value" else escape_content(value),
                )
            case ast.Number(value=number):
                return (format_number(number),)
            case ast.Call(name="string", args=(argument,)) if ast.is_node_set(argument):
                return (self._hole(part, "string", argument),)
            case ast.Call(name="count", args=(argument,)):
                return (self._hole(part, "count", argument),)
            case expr if ast.is_node_set(expr):
                return (self._hole(part, "nodes", expr),)
        kind = ast.static_type(part.expr)
        self.reasons.append(Reason(part.expr.start, part.expr.end, f"a {kind} is computed by lxml"))
        return (TemplateHole("value", part.standing, DOCUMENT, ()),)

    def _hole(self, part: Enclosed, kind: Kind, nodes: ast.Expr) -> TemplateHole:
        origin, paths = self.paths(nodes, [])
        return TemplateHole(kind, part.standing, origin, paths, part.default_namespace, part.taken)


def origins_of(expr: ast.Expr) -> set[str | None]:
    """Return the variables that an expression's paths start from, and None if one starts at the document."""
    names: set[str | None] = set()
    parts = [expr]
    while parts:
        part = parts.pop()
        match part:
            case ast.Variable(name=name):
                names.add(name)
            case ast.LocationPath(base=None, absolute=True):
                names.add(None)
        parts += ast.operands(part)
    return names


def relative_to(expr: ast.Expr, name: str) -> ast.Expr:
    """Rewrite an expression with the variable as its context node, except inside predicates."""
    match expr:
        case ast.Variable(name=known) if known == name:
            here = ast.Step("self", "node()", (), start=expr.start, end=expr.end)
            return ast.LocationPath(False, None, (here,), start=expr.start, end=expr.end)
        case ast.LocationPath(base=ast.Variable(name=known)) if known == name:
            return replace(expr, base=None)
        case ast.LocationPath(base=ast.Expr() as base) | ast.Filtered(base=base):
            return replace(expr, base=relative_to(base, name))
        case ast.Binary():
            return _chain_relative_to(expr, name)
        case ast.Negate(operand=operand):
            return replace(expr, operand=relative_to(operand, name))
        case ast.Call(args=args):
            return replace(expr, args=tuple(relative_to(arg, name) for arg in args))
    return expr


def _chain_relative_to(expr: ast.Expr, name: str) -> ast.Expr:
    """Rewrite a chain of operators in a loop, because chains may be thousands long."""
    chain: list[ast.Binary] = []
    while isinstance(expr, ast.Binary):
        chain.append(expr)
        expr = expr.left
    expr = relative_to(expr, name)
    for link in reversed(chain):
        expr = replace(link, left=expr, right=relative_to(link.right, name))
    return expr


def _plain_path(expr: ast.Expr) -> Path | None:
    """Translate the frequent case: names after / and // from the document or a variable."""
    match expr:
        case ast.LocationPath(absolute=True, base=None) | ast.LocationPath(base=ast.Variable()):
            steps: list[Step] = []
            axis = Axis.CHILD
            for step in expr.steps:
                if step.predicates or (step.test.endswith(")") and step.axis != "descendant-or-self"):
                    return None
                if step.axis == "descendant-or-self" and step.test == "node()":
                    axis = Axis.DESCENDANT
                elif step.axis == "child":
                    steps.append(plain_step(axis, step.test))
                    axis = Axis.CHILD
                elif step.axis == "attribute" and axis is Axis.CHILD and step is expr.steps[-1] and steps:
                    steps.append(plain_step(Axis.ATTRIBUTE, step.test))
                else:
                    return None
            return Path(tuple(steps)) if axis is Axis.CHILD and steps else None
    return None


def conjoin(conditions: list[ast.Expr]) -> ast.Expr:
    """Return the conjunction of conditions as one chain; pairwise conjunctions take quadratic time."""
    chain = _as_boolean(conditions[0])
    for condition in conditions[1:]:
        chain = ast.Binary("and", chain, condition, start=chain.start, end=condition.end)
    return chain


def _as_boolean(expr: ast.Expr) -> ast.Expr:
    """Convert a number to a boolean: in a where clause it is not a position."""
    if ast.static_type(expr) != "number":
        return expr
    return ast.Call("boolean", (expr,), start=expr.start, end=expr.end)
