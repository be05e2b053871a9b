"""A query's text for an XPath processor whose context node is not the document.

Subscriptions are evaluated on the document node. lxml evaluates on the root element, so paths that start at
the context, and functions that take it for granted, are written out: `a/b` as `/a/b`, `name()` as `name(/)`.
"""

from __future__ import annotations

from sapwood.lang import ast

_OF_CONTEXT = frozenset(
    {"string", "number", "name", "local-name", "namespace-uri", "string-length", "normalize-space"}
)


def rooted(text: str, expr: ast.Expr) -> str:
    """The query with every path outside predicates absolute."""
    insertions: dict[int, str] = {}
    parts = [expr]
    while parts:  # a loop, because chains may be thousands long
        match parts.pop():
            case ast.LocationPath(absolute=False, base=None, start=start):
                insertions[start] = "/"
            case ast.LocationPath(base=ast.Expr() as base) | ast.Filtered(base=base):
                parts.append(base)
            case ast.Binary(left=left, right=right):
                parts += (left, right)
            case ast.Negate(operand=operand):
                parts.append(operand)
            case ast.Call(name=name, args=(), end=end) if name in _OF_CONTEXT:
                insertions[end - 1] = "/"
            case ast.Call(args=args):
                parts += args
    pieces: list[str] = []
    before = 0
    for place in sorted(insertions):
        pieces += (text[before:place], insertions[place])
        before = place
    return "".join(pieces) + text[before:]
