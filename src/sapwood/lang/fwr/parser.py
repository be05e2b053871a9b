"""For-where-return text → its clauses, with the XPath expressions in them parsed.

    <wrapper>{
      for $v in path, $w in $v/path  let $x := path  where condition  return <made>{$x}</made>
    }</wrapper>

The syntax is XQuery's; the expressions are XPath 1.0 with variables. What XQuery has besides is refused by
name. `let` is a name for an expression and is written out wherever it is used.

For an XPath processor, expressions are written anew: variables by number, so that no name can mean anything
else there, `let` in brackets, the document as `/`, and prefixes as `Prefixes` has them, since a constructor
may give a prefix another meaning than the query around it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from sapwood.errors import QueryError
from sapwood.lang.fwr.constructor import ConstructorReader, Tag
from sapwood.lang.fwr.expressions import Enclosed, ExpressionReader
from sapwood.lang.fwr.model import Standing
from sapwood.lang.literals.escaping import NO_XML
from sapwood.lang.names import NAME
from sapwood.lang.xpath import ast, error_hints
from sapwood.lang.xpath.absolute_paths import by_local_name, is_in_any
from sapwood.lang.xpath.lexer import is_name_test, tokens_from, unknown_character

_KEYWORD = re.compile(rf"\s*({NAME})(?!:)")
_VARIABLE = re.compile(rf"\s*\$({NAME})")
_DOCUMENT = ("doc", "msg")
_MOST_VARIABLES = 20
_LARGEST = 20_000
"""characters that the `let` variables in one expression may stand for"""


class ForClause(NamedTuple):
    name: str
    path: Enclosed


@dataclass(frozen=True, slots=True)
class Flwor:
    """The clauses of a query; `before` and `after` are the constants of its wrapper."""

    bindings: tuple[ForClause, ...]
    where: Enclosed | None
    result: tuple[str | Enclosed, ...]
    constructed: bool
    """whether the result is an element, rather than what an expression yields"""
    lets: Mapping[str, Enclosed]
    text: str
    """of the query, with line ends as XML has them"""
    before: str = ""
    after: str = ""

    def xpath(self, part: Enclosed, prefixes: Prefixes) -> str:
        """Write an expression as XPath for lxml."""
        numbers = {binding.name: number for number, binding in enumerate(self.bindings)}
        documents = {*_DOCUMENT, *(b.name for b in self.bindings if is_document(b.path.expr))}
        pieces: list[str] = []
        before = part.start
        for token, following in pairwise(tokens_from(self.text, part.start)):
            if token.start >= part.end:
                break
            pieces.append(self.text[before : token.start])
            before = token.end
            name = token.text[1:]
            if is_name_test(token, following) and is_in_any(token, part.namespaces):
                pieces.append(by_local_name(token))
            elif token.kind == "name" and ":" in token.text:
                pieces.append(prefixes.written(token.text, part.namespaces))
            elif token.kind != "variable":
                pieces.append(token.text)
            elif name in self.lets:
                pieces.append(f"({self.xpath(self.lets[name], prefixes)})")
            elif name in documents:
                pieces.append("" if following.text.startswith("/") else "(/)")
            else:
                pieces.append(f"$v{numbers[name]}")
        return "".join(pieces) + self.text[before : part.end]


class Prefixes:
    """Generated prefixes, one for each namespace, for the XPath given to lxml."""

    def __init__(self) -> None:
        self._by_uri: dict[str, str] = {}

    def written(self, name: str, namespaces: Mapping[str, str]) -> str:
        """Write a name with the generated prefix instead of its own."""
        prefix, _, local = name.partition(":")
        if prefix not in namespaces:
            return name  # xml:lang, say
        uri = namespaces[prefix]
        return f"{self._by_uri.setdefault(uri, f'n{len(self._by_uri)}')}:{local}"

    @property
    def declared(self) -> dict[str, str]:
        return {prefix: uri for uri, prefix in self._by_uri.items()}


def is_document(expr: ast.Expr) -> bool:
    """Return whether an expression is the document node, however it is written."""
    match expr:
        case ast.LocationPath(absolute=True, base=None, steps=steps):
            return all(step.axis == "self" and step.test == "node()" for step in steps)
    return False


def parse_flwor(text: str, namespaces: Mapping[str, str] | None = None) -> Flwor:
    """Parse the clauses of a for-where-return query; raises QueryError."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    odd = NO_XML.search(text)
    if odd is not None:
        raise QueryError("a character that XML does not have", text, odd.start())
    return _Parser(text, namespaces or {}).parse()


class _Parser(ExpressionReader):
    def __init__(self, text: str, namespaces: Mapping[str, str]) -> None:
        super().__init__(text, namespaces)
        root = ast.LocationPath(True, None, (), start=0, end=0)
        self._variables.update(dict.fromkeys(_DOCUMENT, root))
        self._lets: dict[str, Enclosed] = {}
        self._sizes: dict[str, int] = {}  # of what `let` variables stand for

    def parse(self) -> Flwor:
        at = self._space(0)
        if self._text.startswith("<", at):
            flwor, end = self._wrapped(at)
        else:
            flwor, end = self._flwor(at)
        if self._space(end) < len(self._text):
            raise self._expected("the end of the query", end)
        return flwor

    def _wrapped(self, start: int) -> tuple[Flwor, int]:
        parts, end = ConstructorReader(self._text, self._namespaces, _Wrapper(self)).read(start, {})
        inner = [part for part in parts if isinstance(part, Flwor)]
        if len(inner) != 1:
            hint = "write <wrapper>{ for $v in path return … }</wrapper>"
            raise self._error(f"expected one 'for … return' in the wrapper, found {len(inner)}", start, hint)
        at = parts.index(inner[0])
        before, after = "".join(map(str, parts[:at])), "".join(map(str, parts[at + 1 :]))
        return replace(inner[0], before=before, after=after), end

    # -- clauses ---------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        return self._text

    def inside(self, at: int, tag: Tag) -> tuple[Flwor, int]:
        """Parse the clauses inside a wrapper."""
        self._scope = dict(tag.namespaces)
        return self._flwor(at)

    def _flwor(self, at: int) -> tuple[Flwor, int]:
        start = at
        bindings: list[ForClause] = []
        where: Enclosed | None = None
        while True:
            keyword, after = self._keyword(at)
            if keyword == "for":
                at = self._for(after, bindings)
            elif keyword == "let":
                at = self._let(after)
            else:
                break
        if not bindings:
            raise self._expected("'for $v in path'", start if keyword != "return" else at)
        if keyword == "where":
            where, at = self._expression(after)
            keyword, after = self._keyword(at)
        if keyword != "return":
            raise self._expected("'where' or 'return'" if where is None else "'return'", at)
        result, constructed, end = self._result(after)
        return Flwor(tuple(bindings), where, result, constructed, self._lets, self._text), end

    def _for(self, at: int, bindings: list[ForClause]) -> int:
        while True:
            name, at = self._new_variable(at)
            keyword, after = self._keyword(at)
            if keyword in error_hints.XQUERY_BINDINGS:
                raise self._unsupported(error_hints.XQUERY_BINDINGS[keyword], self._space(at))
            if keyword != "in":
                raise self._expected(f"'in' after ${name}", at)
            path, at = self._expression(after)
            if ast.static_type(path.expr) != "node-set":
                kind = ast.static_type(path.expr)
                raise self._error(f"'for' binds nodes, and this is a {kind}", path.start)
            if len(bindings) == _MOST_VARIABLES:
                raise self._error(f"more than {_MOST_VARIABLES} variables", path.start)
            bindings.append(ForClause(name, path))
            if self.selects_attributes(path.expr):
                self._of_attributes.add(name)
            self._variables[name] = ast.Variable(name, start=path.start, end=at)
            if not self._text.startswith(",", self._space(at)):
                return at
            at = self._space(at) + 1

    def _let(self, at: int) -> int:
        while True:
            name, at = self._new_variable(at)
            at = self._space(at)
            if self._keyword(at)[0] in error_hints.XQUERY_BINDINGS:
                raise self._unsupported(error_hints.XQUERY_BINDINGS[self._keyword(at)[0]], at)
            if not self._text.startswith(":=", at):
                raise self._expected(f"':=' after ${name}", at)
            value, at = self._expression(at + 2)
            self._variables[name] = value.expr
            self._sizes[name] = value.end - value.start + self._written_out(value)
            self._lets[name] = value
            if not self._text.startswith(",", self._space(at)):
                return at
            at = self._space(at) + 1

    def _new_variable(self, at: int) -> tuple[str, int]:
        match = _VARIABLE.match(self._text, at)
        if match is None:
            raise self._expected("a variable such as $v", at)
        name = match[1]
        if name in _DOCUMENT:
            raise self._error(f"${name} is the message", self._space(at), "choose another name")
        if name in self._variables:
            at = self._space(at)
            raise self._error(f"the variable ${name} is bound already", at, "choose another name")
        return name, match.end()

    def _result(self, at: int) -> tuple[tuple[str | Enclosed, ...], bool, int]:
        at = self._space(at)
        if at == len(self._text):
            hint = "write an element such as <made>{$v/title}</made>, or a path"
            raise self._error("nothing is returned", at, hint)
        if self._text.startswith("<", at):
            parts, end = ConstructorReader(self._text, self._namespaces, self).read(at, self._scope)
            if self._text.startswith("<", self._space(end)):
                raise self._error("a second element", self._space(end), "put both into one element")
            return tuple(parts), True, end
        value, end = self._expression(at)
        if self.selects_attributes(value.expr):
            hint = "write string(…) for its value, or put it into an element"
            raise self._error("an attribute needs an element to stand in", at, hint)
        return (value,), False, end

    # -- expressions -----------------------------------------------------------------------------------

    def _expression(self, at: int, scope: Mapping[str, str] | None = None) -> tuple[Enclosed, int]:
        found, end = super()._expression(at, scope)
        if self._sizes and self._written_out(found) > _LARGEST:
            reason = f"what 'let' stands for here has more than {_LARGEST:,} characters"
            raise self._error(reason, found.start)
        return found, end

    def _written_out(self, part: Enclosed) -> int:
        """Return the size of an expression with its `let` variables written out."""
        used = _VARIABLE.findall(self._text, part.start, part.end)
        return sum(self._sizes.get(name, 0) for name in used)

    # -- helpers ---------------------------------------------------------------------------------------

    def _keyword(self, at: int) -> tuple[str, int]:
        """Return the word at a position, empty if there is none, and the position after it."""
        match = _KEYWORD.match(self._text, at)
        return (match[1], match.end()) if match else ("", at)

    def _expected(self, wanted: str, at: int) -> QueryError:
        at = self._space(at)
        keyword, _ = self._keyword(at)
        if self._text.startswith("(:", at):
            return self._unsupported("comments", at)
        if keyword in error_hints.XQUERY_CLAUSES:
            return self._unsupported(error_hints.XQUERY_CLAUSES[keyword], at)
        if at >= len(self._text):
            return self._error(f"expected {wanted}, but the query ends", at)
        found = keyword or self._text[at]
        hint = error_hints.XPATH2_OPERATORS.get(keyword)
        if hint is not None:
            hint = f"XPath 2.0's {keyword!r} is written {hint} in XPath 1.0"
        if not keyword and self._text[at] not in "<>{}),:":
            hint = unknown_character(self._text, at).hint
        hint = hint or error_hints.hint_misplaced(self._text, at)
        if found == ",":
            hint = "put one expression in each pair of braces, inside an element"
        return self._error(f"expected {wanted}, but found {found!r}", at, hint)


class _Wrapper:
    """Reads the clauses in the braces of a wrapper."""

    def __init__(self, parser: _Parser) -> None:
        self._parser = parser

    def enclosed(self, start: int, tag: Tag, in_value: bool) -> tuple[Flwor, Standing, int]:
        if in_value:
            raise QueryError("'for' cannot stand in an attribute", self._parser.text, start)
        flwor, end = self._parser.inside(start, tag)
        return flwor, "content", end
