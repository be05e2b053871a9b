"""The compiler of for-where-return queries: bindings, conditions and holes become tree patterns.

A conjunct of the where clause that mentions one variable becomes a predicate of that variable's path:
`for $s in //section where $s/title = "T"` binds `//section[title = "T"]`. So
transformations are indexed and shared as filters are. A conjunct with several variables stays a
`JointCondition`, and parts without a pattern are evaluated by lxml, as in filters: then the patterns are
necessary conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sapwood.errors import QueryError
from sapwood.lang.fwr.expressions import Enclosed
from sapwood.lang.fwr.model import DOCUMENT, BoundVariable, JointCondition, TemplateHole, Transformation
from sapwood.lang.fwr.parser import Flwor, Prefixes, is_document, parse_flwor
from sapwood.lang.fwr.template import HoleCompiler, origins_of, relative_to
from sapwood.lang.languages import is_join, is_transformation
from sapwood.lang.pattern import TEXT, Condition, Has, add_condition, all_of, any_of
from sapwood.lang.query import Query
from sapwood.lang.xpath import ast
from sapwood.lang.xpath.translator import Reason, Translator

_DOCUMENT = "/"


def compile_transformation(text: str, namespaces: Mapping[str, str] | None = None) -> Transformation:
    """Compile a for-where-return query; raises QueryError, which says where and why a text is none."""
    if is_join(text):
        hint = "write SELECT before the element" if is_transformation(text) else None
        raise QueryError("this is a join query, not for-where-return", text, 0, hint)
    flwor = parse_flwor(text, namespaces)
    return _Compiler(flwor).compile()


def compile_filter_of(text: str, namespaces: Mapping[str, str] | None = None) -> Query:
    """Compile the filter that a message must pass for the query to produce anything."""
    return Query(text, "boolean", compile_transformation(text, namespaces).condition)


class _Compiler(HoleCompiler):
    def __init__(self, flwor: Flwor) -> None:
        super().__init__({binding.name: number for number, binding in enumerate(flwor.bindings)})
        self._text = flwor.text
        self._flwor = flwor

    def compile(self) -> Transformation:
        flwor = self._flwor
        kept: dict[int, list[ast.Expr]] = {}
        joints: list[JointCondition] = []
        for conjunct in ast.flatten_chain(flwor.where.expr, "and") if flwor.where else ():
            self._assign(conjunct, kept, joints)
        variables = [self._variable(number, kept.get(number, [])) for number in range(len(flwor.bindings))]
        needed = [_bindings_exist(DOCUMENT, variables)]
        needed += [j.condition for j in joints if j.condition is not None and j.origin == DOCUMENT]
        template = tuple(part for piece in flwor.result for part in self.part(piece))
        made = Transformation(
            self._text,
            tuple(variables),
            template,
            all_of(needed),
            tuple(joints),
            flwor.before,
            flwor.after,
            not flwor.constructed and not any(_copies(part) for part in template),
            tuple(self.reasons),
        )
        return made if made.exact else self._for_lxml(made)

    # -- where -----------------------------------------------------------------------------------------

    def _assign(
        self, conjunct: ast.Expr, kept: dict[int, list[ast.Expr]], joints: list[JointCondition]
    ) -> None:
        """Assign a conjunct to the variable that it mentions, or make it a joint condition."""
        names = origins_of(conjunct)
        if len(names) == 1:
            name = next(iter(names))
            if name is not None:
                kept.setdefault(self.numbers[name], []).append(relative_to(conjunct, name))
                return
        joints.append(self._joint(conjunct))

    def _joint(self, expr: ast.Expr) -> JointCondition:
        names = origins_of(expr)
        match expr:
            case ast.Binary(op="and" | "or" as op) if len(names) > 1:
                items = tuple(self._joint(part) for part in ast.flatten_chain(expr, op))
                return JointCondition("and" if op == "and" else "or", items)
            case ast.Call(name="not", args=(operand,)) if len(names) > 1:
                return JointCondition("not", (self._joint(operand),))
            case ast.Call(name="boolean", args=(operand,)) if len(names) > 1:
                return self._joint(operand)
        if len(names) > 1:
            self.reasons.append(Reason(expr.start, expr.end, "a comparison between variables"))
            return JointCondition("and")
        name = next(iter(names), None)
        translator = Translator(at_document=name is None)
        translated = translator.boolean(relative_to(expr, name) if name is not None else expr)
        self.reasons += translator.reasons
        return JointCondition("holds", (), DOCUMENT if name is None else self.numbers[name], translated)

    # -- paths -----------------------------------------------------------------------------------------

    def _variable(self, number: int, conditions: list[ast.Expr]) -> BoundVariable:
        binding = self._flwor.bindings[number]
        origin, paths = self.paths(binding.path.expr, conditions)
        return BoundVariable(binding.name, origin, paths)

    # -- evaluation by lxml ----------------------------------------------------------------------------

    def _for_lxml(self, made: Transformation) -> Transformation:
        """Add the XPath of every part for lxml; joint conditions are in the where clause."""
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
                if isinstance(part, TemplateHole)
                else part
                for part in made.template
            ),
            joints=(),
            where=where,
            namespaces=prefixes.declared,
        )


def _bindings_exist(origin: int, variables: list[BoundVariable]) -> Condition:
    """The condition that all variables that start from one have a binding, and those from them in turn."""
    needed: list[Condition] = []
    for number, variable in enumerate(variables):
        if variable.origin == origin:
            inner = _bindings_exist(number, variables)
            needed.append(any_of([Has(add_condition(path, inner)) for path in variable.paths]))
    return all_of(needed)


def _is_leaf(expr: ast.Expr) -> bool:
    """Return whether a path may reach attributes or text, which lxml returns as strings."""
    match expr:
        case ast.LocationPath(steps=steps):
            moves = [step for step in steps if step.axis != "self"]
            if not moves or moves[-1].axis in ("parent", "ancestor", "ancestor-or-self"):
                return False
            return moves[-1].axis in ("attribute", "namespace") or moves[-1].test in (TEXT, "node()")
        case ast.Filtered(base=base):
            return _is_leaf(base)
        case ast.Binary():
            return any(_is_leaf(part) for part in ast.flatten_chain(expr, "|"))
    return False


def _varies(part: Enclosed) -> bool:
    return not isinstance(part.expr, ast.Text | ast.Number)


def _copies(part: str | TemplateHole) -> bool:
    return isinstance(part, TemplateHole) and part.kind == "nodes"
