"""XSCL, the language of joins (Hong et al., SIGMOD 2007): text → blocks, links and a template.

    SELECT <alert>{$t}</alert>
    FROM news//item->i[title->t]  FOLLOWED BY{t = h, 1 day}  blogs//entry->e[head->h]
    PUBLISH alerts

SELECT, with FROM, and PUBLISH may be omitted. `fast_path` parses the common chains; `blocks` and `links`
parse all others and report errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sapwood.errors import QueryError
from sapwood.lang.fwr.constructor import ConstructorReader, Tag
from sapwood.lang.fwr.expressions import Enclosed, ExpressionReader
from sapwood.lang.fwr.model import Standing, Template
from sapwood.lang.fwr.template import HoleCompiler, origins_of
from sapwood.lang.languages import is_transformation
from sapwood.lang.literals.escaping import NO_XML
from sapwood.lang.names import NAME
from sapwood.lang.namespaces import match_in_any
from sapwood.lang.pattern import Axis
from sapwood.lang.scanning import END, WORD, describe_found, skip_space
from sapwood.lang.xpath import ast, error_hints
from sapwood.lang.xscl.blocks import DECIDABLE
from sapwood.lang.xscl.fast_path import plain_chain
from sapwood.lang.xscl.lexer import (
    PRIME,
    STREAMLESS,
    decode_primes,
    encode_primes,
    keyword,
    lacks_select,
    mark_primes,
    restore_error,
)
from sapwood.lang.xscl.links import Chain, read_chain
from sapwood.lang.xscl.model import BlockVariable, Join, default_template

_NAME = re.compile(rf"\s*({WORD}){END}")
_VARIABLE = re.compile(rf"\$((?:{NAME}:)?{NAME})")
_STRING_OR_VARIABLE = re.compile(rf"\"[^\"]*\"|'[^']*'|{_VARIABLE.pattern}")
_IN_BRACES = re.compile(r"(?:[^{}\"']+|\"[^\"]*\"|'[^']*')*")


def compile_join(text: str, namespaces: Mapping[str, str] | None = None) -> Join:
    """Compile a join; raises QueryError, which says where and why a text is not a join."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    odd = NO_XML.search(text)
    if odd is not None or PRIME in text:
        at = odd.start() if odd is not None else text.index(PRIME)
        raise QueryError("a character that joins do not have", text, at)
    if lacks_select(text):
        hint = "write SELECT before the element: SELECT <made>{$x1}</made> FROM …"
        raise QueryError("an element before FROM, but no SELECT", text, skip_space(text, 0), hint)
    if is_transformation(text):
        raise QueryError("this is a for-where-return query, not a join", text, 0)
    try:
        return _Compiler(text, namespaces or {}).compile()
    except QueryError as error:
        raise restore_error(error, text) from None


class _Compiler:
    def __init__(self, text: str, namespaces: Mapping[str, str]) -> None:
        self._text = text
        self._namespaces = namespaces

    def compile(self) -> Join:
        constructor, start = self._head()
        plain = None if match_in_any(self._namespaces) else plain_chain(self._text, start)
        chain = plain or read_chain(self._text, start, self._namespaces)
        publish = self._publish(chain)
        template: Template | None = None
        if constructor is not None:
            template = self._template(constructor, chain.variables)
        elif len(chain.blocks) > 1:
            template = default_template(tuple(block.selected for block in chain.blocks))
        return Join(self._text, chain.blocks, chain.variables, chain.links, template, publish)

    # -- clauses ---------------------------------------------------------------------------------------

    def _head(self) -> tuple[int | None, int]:
        """Return the positions of the constructor, if there is one, and of the chain."""
        word, after = keyword(self._text, 0)
        if word == "FROM":
            return None, after
        if word != "SELECT":
            return None, 0
        at = skip_space(self._text, after)
        constructor, end = (None, at + 1) if self._text.startswith("*", at) else (at, self._skip(at))
        word, after = keyword(self._text, end)
        if word != "FROM":
            at = skip_space(self._text, end)
            hint = "write SELECT … FROM stream//path"
            raise self._error(f"expected FROM after what is selected, {self._found(at)}", at, hint)
        return constructor, after

    def _skip(self, at: int) -> int:
        """Return the position after a constructor whose variables are not known yet."""
        if not self._text.startswith("<", at):
            reason = f"expected '*' or an element after SELECT, {self._found(at)}"
            raise self._error(reason, at, "put it into an element: SELECT <made>{$x1}</made>")
        marked = mark_primes(self._text)
        _, end = ConstructorReader(marked, self._namespaces, _Skipping(marked)).read(at, {})
        return end

    def _publish(self, chain: Chain) -> str:
        word, after = keyword(self._text, chain.end)
        if not word:
            return ""
        found = _NAME.match(self._text, after)
        at = skip_space(self._text, after)
        if found is None or found[1].lower() in STREAMLESS:
            hint = "write PUBLISH and the name of a stream"
            if self._text.startswith(("'", '"'), at):
                hint += ", without quotes"
            raise self._not_published(at, hint)
        if any(found[1] == block.stream for block in chain.blocks):
            reason = f"a cycle: the query reads the stream {found[1]} that it publishes"
            raise self._error(reason, at, "choose another name")
        end = skip_space(self._text, found.end())
        if end < len(self._text):
            name = _NAME.match(self._text, end)
            if name is not None and found[1].upper() in ("TO", "INTO"):
                raise self._not_published(at, f"write PUBLISH {name[1]}")
            raise self._error(f"expected the end of the query, {self._found(end)}", end, self._after(end))
        return found[1]

    def _not_published(self, at: int, hint: str) -> QueryError:
        return self._error(f"expected the name of a stream after PUBLISH, {self._found(at)}", at, hint)

    def _after(self, at: int) -> str | None:
        """The hint for text after the stream that is published."""
        word, _ = keyword(self._text, at)
        if word in ("JOIN", "FOLLOWED"):
            return "PUBLISH comes last"
        if word == "PUBLISH" or self._text.startswith(",", at):
            return "a query publishes one stream"
        return error_hints.NO_LINKS.get(word or self._text[at])

    # -- SELECT ----------------------------------------------------------------------------------------

    def _template(self, start: int, variables: tuple[BlockVariable, ...]) -> Template:
        text = mark_primes(self._text)
        reader = _HoleReader(text, self._namespaces, variables)
        parts, _ = ConstructorReader(text, self._namespaces, reader).read(start, {})
        compiler = HoleCompiler(reader.numbers)
        template = [piece for part in parts for piece in compiler.part(part)]
        if compiler.reasons:
            reason = compiler.reasons[0]
            why = f"this expression cannot be part of a join: {reason.why}"
            raise self._error(why, reason.start, DECIDABLE)
        return tuple(decode_primes(piece) if isinstance(piece, str) else piece for piece in template)

    # -- helpers ---------------------------------------------------------------------------------------

    def _found(self, at: int) -> str:
        return describe_found(self._text, at)

    def _error(self, reason: str, at: int, hint: str | None = None) -> QueryError:
        return QueryError(reason, self._text, at, hint)


class _Skipping:
    """Skips the expressions in a constructor's braces."""

    def __init__(self, text: str) -> None:
        self._text = text

    def enclosed(self, start: int, tag: Tag, in_value: bool) -> tuple[str, Standing, int]:
        found = _IN_BRACES.match(self._text, start)
        end = found.end() if found else start
        if not self._text.startswith("}", end):
            raise QueryError("a '{' that is never closed", self._text, start - 1, "add the missing }")
        return "", "content", end


class _HoleReader(ExpressionReader):
    """Reads the expressions in a constructor's braces: paths from variables, string() and count() of them."""

    path_starts = "start it with a variable: $x1/title"

    def __init__(
        self, text: str, namespaces: Mapping[str, str], variables: tuple[BlockVariable, ...]
    ) -> None:
        super().__init__(text, namespaces)
        named = {encode_primes(v.name): number for number, v in enumerate(variables) if v.name}
        self.numbers: Mapping[str, int] = named
        # Unknown ones, too: `_expression` refuses them with a better hint than the parser has.
        names = (*named, *_VARIABLE.findall(text))
        self._variables.update({name: ast.Variable(name, start=0, end=0) for name in names})
        self._of_attributes.update(
            name for name, number in named.items() if variables[number].path.steps[-1].axis is Axis.ATTRIBUTE
        )

    def _expression(self, at: int, scope: Mapping[str, str] | None = None) -> tuple[Enclosed, int]:
        found, end = super()._expression(at, scope)
        for mentioned in _STRING_OR_VARIABLE.finditer(self._text, found.start, end):
            if mentioned[1] and mentioned[1] not in self.numbers:
                hint = error_hints.hint_unbound_variable(mentioned[1], self.numbers, "$")
                raise self._error(f"there is no variable {mentioned[1]}", mentioned.start(), hint)
        if None in origins_of(found.expr):
            raise self._error("a path from a document, but from which?", found.start, self.path_starts)
        match found.expr:
            case ast.Text() | ast.Number() | ast.Call(name="count"):
                return found, end
            case ast.Call(name="string", args=(argument,)) if ast.is_node_set(argument):
                return found, end
            case expr if ast.is_node_set(expr):
                return found, end
        hint = "write {$x1/title}, {string($x1)}, {count($x1/author)}, or text outside the braces"
        reason = "a join writes paths, string() and count() of paths, and constants"
        raise self._error(reason, found.start, hint)
