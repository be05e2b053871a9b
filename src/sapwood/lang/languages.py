"""The languages that subscriptions are written in, and whether a text is a query in one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sapwood.errors import StoreError
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.language_detection import is_join, is_transformation
from sapwood.lang.query import compile_query
from sapwood.lang.xscl.compiler import compile_join

XPATH, FOR_WHERE_RETURN, XSCL = "xpath", "for-where-return", "xscl"
LANGUAGES: Mapping[str, Callable[[str, Mapping[str, str]], object]] = {
    XPATH: compile_query,
    FOR_WHERE_RETURN: compile_transformation,
    XSCL: compile_join,
}
"""Each with what raises QueryError unless it is given a query and the namespaces it may use."""

_REMEMBERED = 50_000
_LONGEST_REMEMBERED = 1_000


def detect_language(query: str, given: str | None = None) -> str:
    """The language of a query: the given one, or else what its text looks like."""
    if given is not None:
        return given
    if is_transformation(query):
        return FOR_WHERE_RETURN
    return XSCL if is_join(query) else XPATH


def check_query(query: str, language: str | None, namespaces: Mapping[str, str]) -> object:
    """The query, compiled; QueryError if it is none, and StoreError for a language nobody speaks."""
    language = detect_language(query, language)
    try:
        compiler = LANGUAGES[language]
    except (KeyError, TypeError):
        known = ", ".join(LANGUAGES)
        raise StoreError(f"there is no language {language!r}; there are: {known}") from None
    return compiler(query, namespaces)


class QueryChecker:
    """Checks queries, and remembers those that passed: real imports repeat a query a dozen times over."""

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self._namespaces = dict(namespaces)
        self._passed: set[tuple[str, str | None]] = set()

    def check(self, query: str, language: str | None) -> object | None:
        """What `check_query` promises, but None for a query that has passed before."""
        if (query, language) in self._passed:
            return None
        compiled = check_query(query, language, self._namespaces)
        if len(query) <= _LONGEST_REMEMBERED:
            if len(self._passed) >= _REMEMBERED:
                self._passed.clear()
            self._passed.add((query, language))
        return compiled
