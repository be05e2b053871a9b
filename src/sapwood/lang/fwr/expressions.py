"""XPath expressions inside a text of another language, a constructor's braces above all.

Variables are bound outside; there is no context node, so every path starts from one of them or the document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sapwood.errors import QueryError
from sapwood.lang.fwr.constructor import Tag
from sapwood.lang.fwr.model import Standing
from sapwood.lang.languages import FLWOR_START
from sapwood.lang.names import NAME
from sapwood.lang.pattern import format_name
from sapwood.lang.scanning import TextReader, skip_space
from sapwood.lang.xpath import ast, error_hints
from sapwood.lang.xpath.parser import parse_inside

_XQUERY = re.compile(rf"({NAME})\s*[({{$\"']|({NAME})\s+{NAME}\s*\{{|\(:")


@dataclass(frozen=True, slots=True)
class Enclosed:
    """An expression in braces, its position, and the prefixes that it may use."""

    expr: ast.Expr
    start: int
    end: int
    namespaces: Mapping[str, str]
    standing: Standing = "content"
    default_namespace: str = ""
    taken: tuple[str, ...] = ()
    """the attributes that its start tag has already"""


class ExpressionReader(TextReader):
    """Reads expressions; other constructs of XQuery are refused by name."""

    path_starts: ClassVar[str] = "start it with /, $doc or a variable"

    def __init__(self, text: str, namespaces: Mapping[str, str]) -> None:
        super().__init__(text)
        self._namespaces = namespaces
        self._variables: dict[str, ast.Expr] = {}
        self._of_attributes: set[str] = set()
        self._scope: Mapping[str, str] = {}  # the namespaces of the wrapper

    def enclosed(self, start: int, tag: Tag, in_value: bool) -> tuple[Enclosed, Standing, int]:
        """Read the expression in a constructor's braces."""
        found, end = self._expression(start, tag.namespaces)
        attributes = self.selects_attributes(found.expr)
        standing: Standing = "attribute value" if in_value else "attributes" if attributes else "content"
        taken = tag.attributes if standing == "attributes" else ()
        match found.expr:
            case ast.LocationPath(steps=(*_, last)) if last.test in taken:
                raise self._error(
                    f"the attribute {format_name(last.test)} stands in <{tag.name}> already", found.start
                )
        return replace(found, standing=standing, taken=taken), standing, end

    def selects_attributes(self, expr: ast.Expr) -> bool:
        """Return whether the expression yields attribute nodes."""
        match expr:
            case ast.Variable(name=name):
                return name in self._of_attributes
            case ast.LocationPath(steps=steps, base=base):
                moves = [step for step in steps if not (step.axis == "self" and step.test == "node()")]
                if not moves:
                    return base is not None and self.selects_attributes(base)
                return moves[-1].axis == "attribute"
            case ast.Filtered(base=base):
                return self.selects_attributes(base)
            case ast.Binary(op="|"):
                sides = {self.selects_attributes(side) for side in ast.flatten_chain(expr, "|")}
                if len(sides) > 1:
                    raise self._error("a union of attributes and other nodes", expr.start)
                return sides.pop()
        return False

    def _expression(self, at: int, scope: Mapping[str, str] | None = None) -> tuple[Enclosed, int]:
        at = self._space(at)
        self._refuse_xquery(at)
        scope = self._scope if scope is None else scope
        namespaces = {**self._namespaces, **scope} if scope else self._namespaces
        expr, end = parse_inside(self._text, at, namespaces, self._variables)
        refuse_context(expr, self._text, self.path_starts)
        return Enclosed(expr, at, end, namespaces, default_namespace=scope.get("", "")), end

    def _refuse_xquery(self, at: int) -> None:
        if FLWOR_START.match(self._text[at : at + 200]):
            nested = "an element constructor" if self._text[at] == "<" else "a 'for' or 'let'"
            raise self._unsupported(f"{nested} inside an expression", at)
        match = _XQUERY.match(self._text, at)
        word = (match[1] or match[2] or "(:") if match else ""
        if word in error_hints.XQUERY_EXPRESSIONS:
            raise self._unsupported(error_hints.XQUERY_EXPRESSIONS[word], at)

    # -- helpers ---------------------------------------------------------------------------------------

    def _space(self, at: int) -> int:
        return skip_space(self._text, at)


def refuse_context(expr: ast.Expr, text: str, path_starts: str) -> None:
    """Raise an error for an expression that needs a context node: outside predicates there is none."""
    parts = [expr]
    while parts:
        part = parts.pop()
        match part:
            case ast.LocationPath(absolute=False, base=None):
                is_not = text[part.start : part.end].lower() == "not"
                hint = "not is a function: write not(…)" if is_not else path_starts
                raise QueryError("a path that starts nowhere", text, part.start, hint)
            case ast.Call(name="position" | "last" as name):
                reason = f"{name}() counts in a predicate, and there is none here"
                raise QueryError(reason, text, part.start)
            case ast.Call(name=name, args=args) if name == "lang" or (not args and name in ast.OF_CONTEXT):
                reason = f"{name}() of what? There is no context node here"
                raise QueryError(reason, text, part.start)
        parts += reversed(ast.operands(part))
