"""For-where-return clauses → bindings, conditions and holes as tree patterns.

A conjunct of the where clause that speaks of one variable becomes a predicate of that variable's path:
`for $s in //section where $s/title = "T"` binds `//section[title = "T"]`. So all that filters know, sharing
above all, serves transformations too. What speaks of several variables stays a `Joint` condition, and what
has no pattern at all is left to lxml, as in filters: then the patterns are necessary conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sapwood.errors import QueryError
from sapwood.lang import ast
from sapwood.lang.escaping import attribute, content
from sapwood.lang.flwor import Enclosed, Flwor, Prefixes, is_document, parse_flwor
from sapwood.lang.numbers import format_number
from sapwood.lang.pattern import (
    EMPTY,
    TEXT,
    TRUE,
    Axis,
    Condition,
    Has,
    Path,
    Step,
    all_of,
    any_of,
    plain_step,
    predicates,
)
from sapwood.lang.query import Query
from sapwood.lang.transformation import DOCUMENT, Hole, Joint, Kind, Template, Transformation, Variable
from sapwood.lang.translate import Reason, Translator

_DOCUMENT = "/"


def compile_transformation(text: str, namespaces: Mapping[str, str] | None = None) -> Transformation:
    """The query in the algebra; QueryError says where and why it is no for-where-return query."""
    flwor = parse_flwor(text, namespaces)
    return _Compiler(flwor).compile()


def filter_of(text: str, namespaces: Mapping[str, str] | None = None) -> Query:
    """The filter that a message must pass for the query to make anything of it."""
    return Query(text, "boolean", compile_transformation(text, namespaces).condition)


class _Compiler:
    def __init__(self, flwor: Flwor) -> None:
        self._text = flwor.text
        self._flwor = flwor
        self._numbers = {binding.name: number for number, binding in enumerate(flwor.bindings)}
        self._reasons: list[Reason] = []

    def compile(self) -> Transformation:
        flwor = self._flwor
        kept: dict[int, list[ast.Expr]] = {}
        joints: list[Joint] = []
        for conjunct in ast.flattened(flwor.where.expr, "and") if flwor.where else ():
            self._place(conjunct, kept, joints)
        variables = [self._variable(number, kept.get(number, [])) for number in range(len(flwor.bindings))]
        needed = [_reached(DOCUMENT, variables)]
        needed += [j.condition for j in joints if j.condition is not None and j.origin == DOCUMENT]
        template = tuple(part for piece in flwor.result for part in self._part(piece))
        made = Transformation(
            self._text,
            tuple(variables),
            template,
            all_of(needed),
            tuple(joints),
            flwor.before,
            flwor.after,
            not flwor.constructed and not any(_copies(part) for part in template),
            tuple(self._reasons),
        )
        return made if made.exact else self._for_lxml(made)

    # -- where -----------------------------------------------------------------------------------------

    def _place(self, conjunct: ast.Expr, kept: dict[int, list[ast.Expr]], joints: list[Joint]) -> None:
        """Gives a conjunct to the variable it speaks of, or makes it a joint condition."""
        spoken_of = _spoken_of(conjunct)
        if len(spoken_of) == 1:
            name = next(iter(spoken_of))
            if name is not None:
                kept.setdefault(self._numbers[name], []).append(_from_context(conjunct, name))
                return
        joints.append(self._joint(conjunct))

    def _joint(self, expr: ast.Expr) -> Joint:
        spoken_of = _spoken_of(expr)
        match expr:
            case ast.Binary(op="and" | "or" as op) if len(spoken_of) > 1:
                items = tuple(self._joint(part) for part in ast.flattened(expr, op))
                return Joint("and" if op == "and" else "or", items)
            case ast.Call(name="not", args=(operand,)) if len(spoken_of) > 1:
                return Joint("not", (self._joint(operand),))
            case ast.Call(name="boolean", args=(operand,)) if len(spoken_of) > 1:
                return self._joint(operand)
        if len(spoken_of) > 1:
            self._reasons.append(Reason(expr.start, expr.end, "a comparison between variables"))
            return Joint("and")
        name = next(iter(spoken_of), None)
        translator = Translator(at_document=name is None)
        translated = translator.boolean(_from_context(expr, name) if name is not None else expr)
        self._reasons += translator.reasons
        return Joint("holds", (), DOCUMENT if name is None else self._numbers[name], translated)

    # -- paths -----------------------------------------------------------------------------------------

    def _variable(self, number: int, conditions: list[ast.Expr]) -> Variable:
        binding = self._flwor.bindings[number]
        origin, paths = self._paths(binding.path.expr, conditions)
        return Variable(binding.name, origin, paths)

    def _paths(self, expr: ast.Expr, conditions: list[ast.Expr]) -> tuple[int, tuple[Path, ...]]:
        """Where a node-set starts, and the paths to it; its nodes must meet the conditions."""
        spoken_of = _spoken_of(expr)
        if len(spoken_of) != 1:
            self._reasons.append(Reason(expr.start, expr.end, "paths from several variables"))
            return DOCUMENT, (EMPTY,)
        name = next(iter(spoken_of))
        origin = DOCUMENT if name is None else self._numbers[name]
        plain = _plain(expr) if not conditions else None
        if plain is not None:
            return origin, (plain,)
        relative = _from_context(expr, name) if name is not None else expr
        if conditions:
            relative = ast.Filtered(relative, (_all(conditions),), start=expr.start, end=expr.end)
        translator = Translator(at_document=name is None)
        nodes = translator.nodes(relative)
        self._reasons += translator.reasons
        if any(route.context for route in nodes.routes):
            self._reasons.append(Reason(expr.start, expr.end, "a predicate on a variable"))
        paths = dict.fromkeys(Path(route.steps) for route in nodes.routes)
        return origin, tuple(sorted(paths, key=str))

    # -- the result ------------------------------------------------------------------------------------

    def _part(self, part: str | Enclosed) -> Template:
        if isinstance(part, str):
            return (part,)
        match part.expr:
            case ast.Text(value=value):
                return (attribute(value) if part.standing == "attribute value" else content(value),)
            case ast.Number(value=number):
                return (format_number(number),)
            case ast.Call(name="string", args=(argument,)) if _is_nodes(argument):
                return (self._hole(part, "string", argument),)
            case ast.Call(name="count", args=(argument,)):
                return (self._hole(part, "count", argument),)
            case expr if _is_nodes(expr):
                return (self._hole(part, "nodes", expr),)
        kind = ast.type_of(part.expr)
        self._reasons.append(Reason(part.expr.start, part.expr.end, f"a {kind} is computed by lxml"))
        return (Hole("value", part.standing, DOCUMENT, ()),)

    def _hole(self, part: Enclosed, kind: Kind, nodes: ast.Expr) -> Hole:
        origin, paths = self._paths(nodes, [])
        return Hole(kind, part.standing, origin, paths, part.default_namespace, part.taken)

    # -- what is left to lxml --------------------------------------------------------------------------

    def _for_lxml(self, made: Transformation) -> Transformation:
        """With the XPath of every part; joint conditions are in the where clause."""
        flwor = self._flwor
        for binding in flwor.bindings:
            if _is_leaf(binding.path.expr):
                reason = f"${binding.name} may be an attribute or text, from which lxml cannot go on"
                hint = f"bind the element, or do without: {made.reasons[0].why}"
                raise QueryError(reason, self._text, binding.path.start, hint)
        prefixes = Prefixes()
        holes = [part for part in flwor.result if isinstance(part, Enclosed) and _varies(part)]
        texts = iter([flwor.xpath(part, prefixes) for part in holes])
        bindings = [
            _DOCUMENT if is_document(binding.path.expr) else flwor.xpath(binding.path, prefixes)
            for binding in flwor.bindings
        ]
        where = flwor.xpath(flwor.where, prefixes) if flwor.where else ""
        return replace(
            made,
            variables=tuple(
                replace(variable, xpath=xpath)
                for variable, xpath in zip(made.variables, bindings, strict=True)
            ),
            template=tuple(
                replace(part, kind="nodes" if part.kind == "nodes" else "value", xpath=next(texts))
                if isinstance(part, Hole)
                else part
                for part in made.template
            ),
            joints=(),
            where=where,
            namespaces=prefixes.declared,
        )


def _reached(origin: int, variables: list[Variable]) -> Condition:
    """That all variables that start from one have a binding, and so have those that start from them."""
    needed: list[Condition] = []
    for number, variable in enumerate(variables):
        if variable.origin == origin:
            inner = _reached(number, variables)
            needed.append(any_of([Has(_narrowed(path, inner)) for path in variable.paths]))
    return all_of(needed)


def _narrowed(path: Path, condition: Condition) -> Path:
    """The path, its nodes meeting a further condition."""
    if condition is TRUE or not path.steps:
        return path
    last = path.steps[-1]
    return Path((*path.steps[:-1], Step(last.axis, last.test, predicates((*last.conditions, condition)))))


def _spoken_of(expr: ast.Expr) -> set[str | None]:
    """The variables that an expression's paths start from, and None if one starts at the document."""
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


def _from_context(expr: ast.Expr, name: str) -> ast.Expr:
    """The expression with the variable as its context node; inside predicates the context is another."""
    match expr:
        case ast.Variable(name=known) if known == name:
            here = ast.Step("self", "node()", (), start=expr.start, end=expr.end)
            return ast.LocationPath(False, None, (here,), start=expr.start, end=expr.end)
        case ast.LocationPath(base=ast.Variable(name=known)) if known == name:
            return replace(expr, base=None)
        case ast.LocationPath(base=ast.Expr() as base) | ast.Filtered(base=base):
            return replace(expr, base=_from_context(base, name))
        case ast.Binary():
            return _chain_from_context(expr, name)
        case ast.Negate(operand=operand):
            return replace(expr, operand=_from_context(operand, name))
        case ast.Call(args=args):
            return replace(expr, args=tuple(_from_context(arg, name) for arg in args))
    return expr


def _chain_from_context(expr: ast.Expr, name: str) -> ast.Expr:
    """A loop, because chains may be thousands long."""
    chain: list[ast.Binary] = []
    while isinstance(expr, ast.Binary):
        chain.append(expr)
        expr = expr.left
    expr = _from_context(expr, name)
    for link in reversed(chain):
        expr = replace(link, left=expr, right=_from_context(link.right, name))
    return expr


def _is_leaf(expr: ast.Expr) -> bool:
    """Whether some of the nodes of a path may be attributes or text, which lxml takes for mere strings."""
    match expr:
        case ast.LocationPath(steps=steps):
            moves = [step for step in steps if step.axis != "self"]
            if not moves or moves[-1].axis in ("parent", "ancestor", "ancestor-or-self"):
                return False
            return moves[-1].axis in ("attribute", "namespace") or moves[-1].test in (TEXT, "node()")
        case ast.Filtered(base=base):
            return _is_leaf(base)
        case ast.Binary():
            return any(_is_leaf(part) for part in ast.flattened(expr, "|"))
    return False


def _plain(expr: ast.Expr) -> Path | None:
    """The frequent case: names after / and // from the document or a variable, perhaps an attribute."""
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


def _all(conditions: list[ast.Expr]) -> ast.Expr:
    """Their conjunction, as one chain: what is put together one by one takes quadratic time."""
    chain = _as_boolean(conditions[0])
    for condition in conditions[1:]:
        chain = ast.Binary("and", chain, condition, start=chain.start, end=condition.end)
    return chain


def _as_boolean(expr: ast.Expr) -> ast.Expr:
    """A number in a where clause is a truth, not a position."""
    if ast.type_of(expr) != "number":
        return expr
    return ast.Call("boolean", (expr,), start=expr.start, end=expr.end)


def _is_nodes(expr: ast.Expr) -> bool:
    return ast.type_of(expr) == "node-set"


def _varies(part: Enclosed) -> bool:
    return not isinstance(part.expr, ast.Text | ast.Number)


def _copies(part: str | Hole) -> bool:
    return isinstance(part, Hole) and part.kind == "nodes"
