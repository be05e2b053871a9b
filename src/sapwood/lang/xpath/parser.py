"""XPath 1.0 tokens → syntax tree: a recursive-descent parser, one method a production.

Checks what can be known without a message: names of functions, axes and prefixes, numbers of arguments,
and that a path step or a union is applied to nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from sapwood.errors import QueryError
from sapwood.lang.names import ASCII_NAME, NAME_ENDS
from sapwood.lang.namespaces import ANY_PREFIX, XML_NAMESPACE, exact_prefixes, match_in_any
from sapwood.lang.pattern import ANY_NAMESPACE
from sapwood.lang.xpath import error_hints
from sapwood.lang.xpath.ast import (
    RETURN_TYPES,
    Binary,
    Call,
    Expr,
    Filtered,
    LocationPath,
    Negate,
    Number,
    Step,
    Text,
    static_type,
)
from sapwood.lang.xpath.lexer import Token, tokenize, tokens_from

# (fewest, most) arguments; None is any number.
_ARITY: dict[str, tuple[int, int | None]] = {
    "last": (0, 0), "position": (0, 0), "true": (0, 0), "false": (0, 0),
    "count": (1, 1), "id": (1, 1), "boolean": (1, 1), "not": (1, 1), "lang": (1, 1), "sum": (1, 1),
    "floor": (1, 1), "ceiling": (1, 1), "round": (1, 1),
    "local-name": (0, 1), "namespace-uri": (0, 1), "name": (0, 1), "string": (0, 1), "number": (0, 1),
    "string-length": (0, 1), "normalize-space": (0, 1),
    "starts-with": (2, 2), "contains": (2, 2), "substring-before": (2, 2), "substring-after": (2, 2),
    "translate": (3, 3), "substring": (2, 3), "concat": (2, None),
}  # fmt: skip
# How strongly binary operators bind; all are left-associative.
_STRENGTH = {
    "or": 1, "and": 2, "=": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5,
    "*": 6, "div": 6, "mod": 6,
}  # fmt: skip
_NODE_SET_ARGUMENT = frozenset({"count", "sum", "local-name", "namespace-uri", "name"})
_NODE_TYPES = frozenset({"node", "text", "comment", "processing-instruction"})
_DEEPEST_NESTING = 60


def parse(query: str, namespaces: Mapping[str, str] | None = None) -> Expr:
    """Parse a query into a syntax tree; raises QueryError where it is not XPath 1.0."""
    return Parser(query, tokenize(query), namespaces or {}, {}).parse()


def parse_inside(
    text: str, start: int, namespaces: Mapping[str, str], variables: Mapping[str, Expr]
) -> tuple[Expr, int]:
    """The expression that starts somewhere in a text of another language, and where it ends.

    A variable stands for the expression it is mapped to.
    """
    plain = _PLAIN.match(text, start) if not match_in_any(namespaces) else None
    variable = variables.get(plain[1]) if plain is not None and plain[1] else None
    if plain is not None and (not plain[1] or (variable is not None and static_type(variable) == "node-set")):
        return _plain_path(plain, variable), plain.end()
    return Parser(text, tokens_from(text, start), namespaces, variables).parse_first()


def resolve_name(name: str, namespaces: Mapping[str, str]) -> str | None:
    """Return the name test that a name stands for; None if its prefix is not declared."""
    prefix, colon, local = name.rpartition(":")
    if prefix == ANY_PREFIX or (not colon and match_in_any(namespaces)):
        return f"{ANY_NAMESPACE}}}{local}"
    if not colon:
        return local
    uri = namespaces.get(prefix) or (XML_NAMESPACE if prefix == "xml" else None)
    return f"{uri}}}{local}" if uri is not None else None


# Plain paths, by far the most frequent expressions, skip the parser: $v/a//b/@c
_PLAIN_ENDS = rf"{NAME_ENDS}(?![:(])"
_PLAIN = re.compile(
    rf"(?:\$({ASCII_NAME}))?((?://?{ASCII_NAME}{_PLAIN_ENDS})+)(?:/@({ASCII_NAME}))?{_PLAIN_ENDS}"
    r"(?=\s*[},]|\s+(?:where|return|let|for)\b)"
)
_PLAIN_STEP = re.compile(rf"(//?)({ASCII_NAME})")


def _plain_path(match: re.Match[str], base: Expr | None) -> LocationPath:
    start, end = match.span()
    steps: list[Step] = []
    for slashes, name in _PLAIN_STEP.findall(match[2]):
        if slashes == "//":
            steps.append(Step("descendant-or-self", "node()", (), start=start, end=end))
        steps.append(Step("child", name, (), start=start, end=end))
    if match[3]:
        steps.append(Step("attribute", match[3], (), start=start, end=end))
    return LocationPath(base is None, base, tuple(steps), start=start, end=end)


class Parser:
    """Reads expressions from the tokens of a query."""

    def __init__(
        self, query: str, tokens: list[Token], namespaces: Mapping[str, str], variables: Mapping[str, Expr]
    ) -> None:
        self._query = query
        self._namespaces = namespaces
        self._variables = variables
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    # -- moving over the tokens ------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _is(self, *texts: str) -> bool:
        token = self._tokens[self._at]
        return token.text in texts and (token.kind == "symbol" or token.kind == "operator")

    def _accept(self, *texts: str) -> Token | None:
        token = self._tokens[self._at]
        if token.text in texts and (token.kind == "symbol" or token.kind == "operator"):
            self._at += 1
            return token
        return None

    def _expect(self, text: str, opened: Token) -> Token:
        token = self._accept(text)
        if token is None:
            column = opened.start - self._query.rfind("\n", 0, opened.start)
            where = f"to close {opened.text!r} at column {column}"
            raise self._unexpected(f"expected {text!r} {where}")
        return token

    def _error(self, reason: str, position: int, hint: str | None = None) -> QueryError:
        return QueryError(reason, self._query, position, hint)

    def _unexpected(self, expected: str) -> QueryError:
        token = self._next
        found = f"found {token.text!r}" if token.text else "the query ends"
        return self._error(f"{expected}, but {found}", token.start, self._hint_for(token))

    def _hint_for(self, token: Token) -> str | None:
        """Return a hint for a token that is not allowed where it is."""
        before = self._tokens[self._at - 1].text if self._at else ""
        hint = error_hints.hint_misplaced(self._query, token.start, making=bool(self._variables))
        if hint is not None:
            return hint
        if token.kind == "name" and token.text in error_hints.XPATH2_OPERATORS:
            instead = error_hints.XPATH2_OPERATORS[token.text]
            return f"XPath 2.0's {token.text!r} is written {instead} in XPath 1.0"
        if token.kind == "variable" and before in error_hints.XPATH2_KEYWORDS:
            return error_hints.XPATH2_KEYWORDS[before]
        if token.text == "=" and before == "=":
            return "XPath compares with a single ="
        if token.text == "(" and before in ("/", "//"):
            return "XPath 1.0 has no a/(b|c): write a/b | a/c"
        if token.text in (")", "]"):
            return f"there is a {token.text!r} too many, or an operand is missing before it"
        return None

    # -- expressions -----------------------------------------------------------------------------------

    def parse(self) -> Expr:
        if self._at_end():
            raise self._error("the query is empty", 0, "write a path such as /news//headline")
        expr = self._expression()
        if not self._at_end():
            raise self._unexpected("expected an operator or the end of the query")
        return expr

    def parse_first(self) -> tuple[Expr, int]:
        return self._expression(), self._end()

    def _at_end(self) -> bool:
        return self._next.kind == "end"

    def _expression(self) -> Expr:
        self._depth += 1
        if self._depth > _DEEPEST_NESTING:
            raise self._error(f"nested more than {_DEEPEST_NESTING} levels deep", self._next.start)
        expr = self._binary(1)
        self._depth -= 1
        return expr

    def _binary(self, weakest: int) -> Expr:
        """Parse operands joined by operators that bind at least as strongly as the given one."""
        left = self._unary()
        while self._next.kind == "operator":
            operator = self._next.text
            strength = _STRENGTH.get(operator, 0)
            if strength < weakest:
                break
            self._at += 1
            right = self._binary(strength + 1)
            left = Binary(operator, left, right, start=left.start, end=right.end)
        return left

    def _unary(self) -> Expr:
        signs: list[Token] = []
        while (minus := self._accept("-")) is not None:
            signs.append(minus)
        operand = self._union()
        # Two signs make a number of what they stand before; further pairs change nothing.
        for sign in signs[: 2 - len(signs) % 2] if signs else ():
            operand = Negate(operand, start=sign.start, end=operand.end)
        return operand

    def _union(self) -> Expr:
        left = self._path()
        while (bar := self._accept("|")) is not None:
            right = self._path()
            for side in (left, right):
                if static_type(side) != "node-set":
                    raise self._error("'|' unites node-sets, and this is none", side.start, None)
            left = Binary(bar.text, left, right, start=left.start, end=right.end)
        return left

    # -- paths -----------------------------------------------------------------------------------------

    def _path(self) -> Expr:
        if not self._starts_primary():
            return self._location_path()
        primary = self._primary()
        predicates = self._predicates()
        if predicates:
            self._require_nodes(primary, "a predicate")
            primary = Filtered(primary, predicates, start=primary.start, end=self._end())
        if not self._is("/", "//"):
            return primary
        self._require_nodes(primary, "a path step")
        steps = self._more_steps()
        return LocationPath(False, primary, tuple(steps), start=primary.start, end=self._end())

    def _require_nodes(self, expr: Expr, what: str) -> None:
        if static_type(expr) != "node-set":
            raise self._error(f"{what} applies to nodes, and this is a {static_type(expr)}", expr.start)

    def _end(self) -> int:
        return self._tokens[self._at - 1].end

    def _starts_primary(self) -> bool:
        token = self._next
        if token.kind in ("number", "literal", "variable"):
            return True
        if token.kind == "symbol":
            return token.text == "("
        if token.kind != "name":
            return False
        following = self._tokens[self._at + 1]
        return following.text == "(" and token.text not in _NODE_TYPES

    def _primary(self) -> Expr:
        token = self._take()
        if token.kind == "literal":
            return Text(token.text[1:-1], start=token.start, end=token.end)
        if token.kind == "number":
            return Number(float(token.text), start=token.start, end=token.end)
        if token.kind == "variable":
            return self._variable(token)
        if token.kind == "name":
            return self._call(token)
        inner = self._expression()
        self._expect(")", token)
        return inner

    def _variable(self, token: Token) -> Expr:
        known = self._variables.get(token.text[1:])
        if known is not None:
            return replace(known, start=token.start, end=token.end)
        hint = "write the value itself, in quotes if it is a string"
        if self._variables:
            hint = error_hints.hint_unknown_variable(token.text[1:], self._variables)
        raise self._error(f"no variable {token.text!r} is declared", token.start, hint)

    def _call(self, name: Token) -> Call:
        if name.text not in RETURN_TYPES:
            raise self._error(
                f"XPath 1.0 has no function {name.text!r}",
                name.start,
                error_hints.hint_unknown_function(name.text),
            )
        opened = self._take()
        args: list[Expr] = []
        if not self._is(")"):
            args.append(self._expression())
            while self._accept(","):
                args.append(self._expression())
        closed = self._expect(")", opened)
        self._check_arguments(name, args)
        return Call(name.text, tuple(args), start=name.start, end=closed.end)

    def _check_arguments(self, name: Token, args: list[Expr]) -> None:
        fewest, most = _ARITY[name.text]
        if len(args) < fewest or (most is not None and len(args) > most):
            wanted = (
                str(fewest)
                if most == fewest
                else f"{fewest} or more"
                if most is None
                else f"{fewest} to {most}"
            )
            raise self._error(f"{name.text}() takes {wanted} arguments, not {len(args)}", name.start)
        if name.text in _NODE_SET_ARGUMENT and args and static_type(args[0]) != "node-set":
            raise self._error(
                f"{name.text}() takes nodes, and this is a {static_type(args[0])}", args[0].start
            )

    def _location_path(self) -> LocationPath:
        start = self._next.start
        absolute = self._is("/", "//")
        if absolute and self._is("/") and not self._step_follows(self._tokens[self._at + 1]):
            self._take()
            return LocationPath(True, None, (), start=start, end=self._end())
        steps = self._more_steps() if absolute else [self._step(), *self._more_steps()]
        return LocationPath(absolute, None, tuple(steps), start=start, end=self._end())

    def _step_follows(self, token: Token) -> bool:
        return token.kind == "name" or (token.kind == "symbol" and token.text in (".", "..", "@", "*"))

    def _more_steps(self) -> list[Step]:
        steps: list[Step] = []
        while (slash := self._accept("/", "//")) is not None:
            if slash.text == "//":
                steps.append(Step("descendant-or-self", "node()", (), start=slash.start, end=slash.end))
            steps.append(self._step())
        return steps

    def _step(self) -> Step:
        start = self._next.start
        dots = self._accept(".", "..")
        if dots is not None:
            axis = "self" if dots.text == "." else "parent"
            if self._is("["):
                hint = f"write {axis}::node()[…] instead of {dots.text}[…]"
                raise self._error(f"a predicate cannot follow {dots.text!r}", self._next.start, hint)
            return Step(axis, "node()", (), start=start, end=dots.end)
        axis = self._axis()
        test = self._node_test(axis)
        predicates = self._predicates()
        return Step(axis, test, predicates, start=start, end=self._end())

    def _axis(self) -> str:
        if self._accept("@"):
            return "attribute"
        token = self._next
        if token.kind == "name" and self._tokens[self._at + 1].text == "::":
            if token.text not in error_hints.AXES:
                raise self._error(
                    f"there is no axis {token.text!r}",
                    token.start,
                    error_hints.did_you_mean(token.text, error_hints.AXES),
                )
            self._at += 2
            return token.text
        return "child"

    def _node_test(self, axis: str) -> str:
        token = self._next
        if self._accept("*"):
            return "*"
        if token.kind != "name":
            raise self._unexpected("expected an element name, '*', '@' or a node test")
        self._take()
        if self._is("("):
            return self._kind_test(token)
        return self._resolved(token)

    def _kind_test(self, name: Token) -> str:
        if name.text not in _NODE_TYPES:
            hint = error_hints.XPATH2_KEYWORDS.get(name.text)
            if name.text in RETURN_TYPES:
                hint = f"write {name.text}(path) around the path"
            raise self._error(f"{name.text}() cannot stand as a path step", name.start, hint)
        opened = self._take()
        target = ""
        if name.text == "processing-instruction" and self._next.kind == "literal":
            target = self._take().text
        self._expect(")", opened)
        return f"{name.text}({target})"

    def _resolved(self, token: Token) -> str:
        test = resolve_name(token.text, self._namespaces)
        if test is None:
            prefix = token.text.rpartition(":")[0]
            hint = error_hints.hint_undeclared(prefix, exact_prefixes(self._namespaces))
            raise self._error(f"the prefix {prefix!r} is not declared", token.start, hint)
        return test

    def _predicates(self) -> tuple[Expr, ...]:
        predicates: list[Expr] = []
        while (opened := self._accept("[")) is not None:
            predicates.append(self._expression())
            self._expect("]", opened)
        return tuple(predicates)
