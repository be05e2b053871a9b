"""Warnings of queries that are valid and likely not meant, on the standard error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sapwood.cli.common.console import warn
from sapwood.errors import QueryError
from sapwood.lang.language_detection import is_join, is_transformation
from sapwood.lang.pattern import use_prefixes
from sapwood.lang.query import compile_query

if TYPE_CHECKING:
    from sapwood.engine.diagnostics.lint import Compiled

_TOLD = 20
"""warnings that are told one by one"""
_LOOKED_AT = 1_000
"""queries that are compiled for this alone"""


class Suspicions:
    """Warns of queries as they come, and at the end of prefixes that none of them uses.

    `declared` are the prefixes that were given along with these very queries.
    """

    def __init__(self, namespaces: Mapping[str, str], declared: Mapping[str, str]) -> None:
        self._namespaces = dict(namespaces) | dict(declared)
        self._declared = declared
        self._seen = 0
        self._told = 0
        self._prefixed = False

    def look_at(self, place: str, query: str) -> None:
        """Warns of a query, unless there were very many before it; what is no query is left to others."""
        if self._seen < _LOOKED_AT:
            try:
                self.look_at_compiled(place, _compiled(query, self._namespaces))
            except QueryError:
                self._seen += 1
        else:
            self._prefixed = True  # for all we know

    def look_at_compiled(self, place: str, compiled: Compiled) -> None:
        """Warns of a query that somebody has compiled."""
        from sapwood.engine.diagnostics.lint import find_warnings, uses_prefixes

        self._seen += 1
        self._prefixed = self._prefixed or not self._declared or uses_prefixes(compiled)
        with use_prefixes(self._namespaces):
            found = find_warnings(compiled)
        for each in found:
            self._told += 1
            if self._told <= _TOLD:
                warn(f"{place}: {each}")

    def finish(self) -> None:
        """Warns of prefixes that nobody uses, and tells how many warnings were left out."""
        if self._told > _TOLD:
            warn(f"and {self._told - _TOLD:,} more like these")
        if self._declared and self._seen and not self._prefixed:
            one = len(self._declared) == 1
            what = f"the prefix {', '.join(self._declared)}" if one else f"any of {', '.join(self._declared)}"
            warn(f"nothing uses {what}, and names without a prefix have no namespace")


def _compiled(query: str, namespaces: Mapping[str, str]) -> Compiled:
    if is_transformation(query):
        from sapwood.lang.fwr.compiler import compile_transformation

        return compile_transformation(query, namespaces)
    if is_join(query):
        from sapwood.lang.xscl.compiler import compile_join

        return compile_join(query, namespaces)
    return compile_query(query, namespaces)
