"""The registry of query languages: detects the language of a text and compiles the text.

    XPath 1.0           filters                     → Query
    for-where-return    transformations             → Transformation
    XSCL                joins between messages      → Join

A text is compiled by `compile_text`, and callers dispatch on the type of the result; nothing else looks at
the first words of a query. `detect_language` is for those who need only the language: it is a few regular
expressions. Compilers are imported when the first query of their language comes, so that a process that only
filters loads only XPath.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from sapwood.errors import ArgumentError
from sapwood.lang.names import NAME

if TYPE_CHECKING:
    from sapwood.lang.fwr.model import Transformation
    from sapwood.lang.query import Query
    from sapwood.lang.xscl.model import Join

    AnyQuery: TypeAlias = "Query | Transformation | Join"

XPATH, FOR_WHERE_RETURN, XSCL = "xpath", "for-where-return", "xscl"

_REMEMBERED = 50_000
_LONGEST_REMEMBERED = 1_000

# -- detection -------------------------------------------------------------------------------------------

_NO_OPERATOR = r"(?!(?:and|or|div|mod)\b)"
FLWOR_START = re.compile(
    rf"\s*(?:<|\(:|(?:for|let)\s*(?:\$|\(:)|(?:for|let)\s+{_NO_OPERATOR}{NAME}\s+(?:in\b|:=)"
    rf"|(?:declare|import|xquery)\s+{_NO_OPERATOR}{NAME}\s)"
)
"""the start of a for-where-return query; no XPath starts like this"""
_SIGNS_OF_JOIN = ("->", "{", "select", "from", "join", "followed", "publish", "as")
_MAY_BE_JOIN = re.compile(r"->|\{|\b(?:select|from|join|followed|publish|as)\b", re.IGNORECASE)


def detect_language(query: str, given: str | None = None) -> str:
    """Return the language of a query: the given one, or else the one that its text looks like."""
    if given is not None:
        return given
    if is_transformation(query):
        return FOR_WHERE_RETURN
    return XSCL if is_join(query) else XPATH


def is_transformation(text: str) -> bool:
    """Return whether a text looks like a for-where-return query; no XPath does."""
    return FLWOR_START.match(text) is not None


def is_join(text: str) -> bool:
    """Return whether a text looks like a join; no XPath 1.0 or for-where-return query does.

    There are two exceptions, which XPath reads as a comparison with an element called `a-`, and as a product:
    `a->b`, and `SELECT * FROM //a`. A join whose SELECT is missing is recognized, too.
    """
    folded = text.casefold()  # to search for each sign is ten times as fast as for the expression
    if not any(sign in folded for sign in _SIGNS_OF_JOIN) or _MAY_BE_JOIN.search(text) is None:
        return False
    from sapwood.lang.xscl.lexer import has_signs_of_join

    return has_signs_of_join(text)


# -- compilation -----------------------------------------------------------------------------------------


def _compile_xpath(text: str, namespaces: Mapping[str, str] | None = None) -> Query:
    from sapwood.lang.xpath.query_templates import share_compiler

    return share_compiler(frozenset((namespaces or {}).items())).compile(text)


def _compile_for_where_return(text: str, namespaces: Mapping[str, str] | None = None) -> Transformation:
    from sapwood.lang.fwr.compiler import compile_transformation

    return compile_transformation(text, namespaces)


def _compile_xscl(text: str, namespaces: Mapping[str, str] | None = None) -> Join:
    from sapwood.lang.xscl.compiler import compile_join

    return compile_join(text, namespaces)


LANGUAGES: Mapping[str, Callable[[str, Mapping[str, str]], AnyQuery]] = {
    XPATH: _compile_xpath,
    FOR_WHERE_RETURN: _compile_for_where_return,
    XSCL: _compile_xscl,
}
"""The compiler of each language; it takes a query and its namespaces, and raises QueryError."""


def compile_text(query: str, namespaces: Mapping[str, str], language: str | None = None) -> AnyQuery:
    """Compile a query in the given language, or in the one that its text looks like.

    Raises QueryError if the text is no query of that language, and ArgumentError for an unknown language.
    """
    language = detect_language(query, language)
    if not isinstance(language, str) or language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise ArgumentError(f"there is no language {language!r}; there are: {known}")
    if len(query) > _LONGEST_REMEMBERED:
        return LANGUAGES[language](query, namespaces)
    return _compile_once(query, language, frozenset(namespaces.items()))


@lru_cache(maxsize=4_096)
def _compile_once(query: str, language: str, namespaces: frozenset[tuple[str, str]]) -> AnyQuery:
    """Compile a query, unless that was done lately: what a store has checked is asked for its routes next."""
    return LANGUAGES[language](query, dict(namespaces))


class QueryChecker:
    """Checks queries, and remembers those that passed: real imports repeat a query a dozen times over."""

    def __init__(self, namespaces: Mapping[str, str], compile_all: bool = False) -> None:
        """With `compile_all`, queries are compiled even if a template shows that they are valid."""
        self._namespaces = dict(namespaces)
        self._compile_all = compile_all
        self._passed: set[tuple[str, str | None]] = set()

    def check(self, query: str, language: str | None) -> AnyQuery | None:
        """Compile a query as `compile_text` does; None for a query that need not be, or has passed before."""
        if (query, language) in self._passed:
            return None
        compiled = None
        if self._compile_all or language not in (None, XPATH) or not self._recognizes(query):
            compiled = compile_text(query, self._namespaces, language)
        if len(query) <= _LONGEST_REMEMBERED:
            if len(self._passed) >= _REMEMBERED:
                self._passed.clear()
            self._passed.add((query, language))
        return compiled

    def _recognizes(self, query: str) -> bool:
        from sapwood.lang.xpath.query_templates import share_compiler

        return share_compiler(frozenset(self._namespaces.items())).recognizes(query)
