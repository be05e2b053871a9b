"""XPath 1.0 text → tokens, with the disambiguation rules of its section 3.7."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from sapwood.errors import QueryError
from sapwood.lang.names import NAME, qualified_name_length
from sapwood.lang.xpath import error_hints

Kind = Literal["name", "number", "literal", "operator", "symbol", "variable", "binding", "end"]

_TOKEN = re.compile(
    rf"""
      (?P<space>[ \t\r\n]+)
    | (?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    | (?P<literal>"[^"]*"|'[^']*')
    | (?P<variable>\$(?:{NAME}:)?{NAME})
    | (?P<name>{NAME}:(?:{NAME}|\*)|{NAME}|\*:{NAME})
    | (?P<symbol>::|\.\.|//|!=|<=|>=|[()\[\]@,./|+\-=<>*])
    """,
    re.VERBOSE,
)
_OPERATORS = frozenset({"/", "//", "|", "+", "-", "=", "!=", "<", "<=", ">", ">=", "*"})
_OPERATOR_NAMES = frozenset({"and", "or", "mod", "div"})
_OPERAND_EXPECTED_AFTER = frozenset({"@", "::", "(", "[", ","})

_UNKNOWN_CHARACTER_HINTS = {
    "&": "write 'and' instead of '&' or '&&'",
    "!": "write not(…) or != instead of '!'",
    "{": "names are written with a prefix from the namespace map, not as {uri}name",
    "%": "write 'mod' instead of '%'",
    ":": "names are written p:name, or *:name in any namespace; p:* and * are any names",
    ";": "drop the ;",
    "#": "XPath has no '#': write [@id='…']",
    "‘": "use straight quotes ' or \"",
    "’": "use straight quotes ' or \"",
    "“": "use straight quotes ' or \"",
    "”": "use straight quotes ' or \"",
}


class Token(NamedTuple):
    kind: Kind
    text: str
    start: int
    end: int


def tokenize(query: str) -> list[Token]:
    """Split a query into tokens; the last one is of kind `end`."""
    tokens: list[Token] = []
    position = 0
    while position < len(query):
        match = _TOKEN.match(query, position)
        end = _end_of(match)
        if match is None or end == position:
            raise unknown_character(query, position)
        position = end
        if match.lastgroup != "space":
            tokens.append(_classified(match, end, tokens))
    tokens.append(Token("end", "", len(query), len(query)))
    return tokens


def tokens_from(text: str, start: int) -> list[Token]:
    """The tokens of an expression that starts somewhere in a text of another language.

    They end with the first that cannot belong to it: a name where an operator is due, or a token of kind
    `end` with the character that XPath cannot read.
    """
    tokens: list[Token] = []
    position = start
    while (match := _TOKEN.match(text, position)) is not None and (end := _end_of(match)) > position:
        position = end
        if match.lastgroup == "space":
            continue
        token = _classified(match, end, tokens)
        if token.kind == "name" and _operator_may_follow(tokens):
            return [*tokens, token]
        if token.text == "(" and text.startswith(":", position):
            raise QueryError("XQuery allows comments, Sapwood does not", text, token.start)
        tokens.append(token)
    found = text[position : position + 1]
    if found in ("'", '"'):
        raise unknown_character(text, position)
    tokens.append(Token("end", found, position, position))
    return tokens


def _end_of(match: re.Match[str] | None) -> int:
    """Return the end of a token; that of a name is before the first character that no name has."""
    if match is None:
        return 0
    text = match.group()
    if text.isascii() or match.lastgroup not in ("name", "variable"):
        return match.end()
    sign = 1 if text.startswith("$") else 2 if text.startswith("*:") else 0
    length = qualified_name_length(text[sign:])
    return match.start() + (sign + length if length else 0)


def is_name_test(token: Token, following: Token) -> bool:
    """Return whether a token is a name test, not a function, a node type or an axis."""
    return token.kind == "name" and following.text not in ("(", "::")


def _classified(match: re.Match[str], end: int, before: list[Token]) -> Token:
    kind, text = match.lastgroup, match.string[match.start() : end]
    if kind == "symbol":
        is_operator = text in _OPERATORS and (text != "*" or _operator_may_follow(before))
        return Token("operator" if is_operator else "symbol", text, match.start(), end)
    if kind == "name" and text in _OPERATOR_NAMES and _operator_may_follow(before):
        return Token("operator", text, match.start(), end)
    return Token(kind, text, match.start(), end)  # type: ignore[arg-type]


def _operator_may_follow(before: list[Token]) -> bool:
    """Section 3.7: `*`, `and`, `or`, `mod`, `div` are operators unless an operand is due."""
    if not before:
        return False
    last = before[-1]
    return last.kind != "operator" and not (last.kind == "symbol" and last.text in _OPERAND_EXPECTED_AFTER)


def unknown_character(query: str, position: int) -> QueryError:
    """Return the error for a character that starts no token."""
    character = query[position]
    if character in "'\"":
        inside = error_hints.quote_inside(query, position)
        return QueryError(
            "a string that is never closed", query, position, inside or f"add the missing {character}"
        )
    if query.startswith(":=", position):
        return QueryError("':=' is not XPath 1.0", query, position, "variables cannot be assigned here")
    if character == "$":
        return QueryError("'$' without a variable name", query, position)
    hint = _UNKNOWN_CHARACTER_HINTS.get(character)
    return QueryError(f"unexpected character {character!r}", query, position, hint)
