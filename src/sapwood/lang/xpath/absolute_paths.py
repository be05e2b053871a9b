"""Rewriting of queries for an XPath processor whose context node is not the document.

Subscriptions are evaluated on the document node. lxml evaluates on the root element, so paths that start at
the context, and functions that take it for granted, are written out: `a/b` as `/a/b`, `name()` as `name(/)`.
So are names in any namespace, which XPath 1.0 does not have: `*:a` as `*[local-name()='a']`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from sapwood.lang.namespaces import match_in_any
from sapwood.lang.xpath import ast
from sapwood.lang.xpath.lexer import Token, is_name_test, tokenize


def make_absolute(text: str, expr: ast.Expr, namespaces: Mapping[str, str]) -> str:
    """Rewrite a query with absolute paths outside predicates and names in any namespace written out."""
    insertions = {token.start: (token.end, written) for token, written in in_any_namespace(text, namespaces)}
    for position, inserted in _root_insertions(expr).items():
        end, written = insertions.get(position, (position, ""))
        insertions[position] = end, inserted + written
    pieces: list[str] = []
    before = 0
    for position, (end, written) in sorted(insertions.items()):
        pieces += (text[before:position], written)
        before = end
    return "".join(pieces) + text[before:]


def in_any_namespace(text: str, namespaces: Mapping[str, str]) -> Iterator[tuple[Token, str]]:
    """Yield the names of a query that match in any namespace, with their equivalent in XPath 1.0."""
    if match_in_any(namespaces) or "*:" in text:
        for token, following in pairwise(tokenize(text)):
            if is_name_test(token, following) and is_in_any(token, namespaces):
                yield token, by_local_name(token)


def is_in_any(name: Token, namespaces: Mapping[str, str]) -> bool:
    prefix, colon, _ = name.text.rpartition(":")
    return prefix == "*" or (not colon and match_in_any(namespaces))


def by_local_name(name: Token) -> str:
    return f"*[local-name()='{name.text.rpartition(':')[2]}']"


def _root_insertions(expr: ast.Expr) -> dict[int, str]:
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
            case ast.Call(name=name, args=(), end=end) if name in ast.OF_CONTEXT:
                insertions[end - 1] = "/"
            case ast.Call(args=args):
                parts += args
    return insertions
