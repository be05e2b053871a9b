"""Warnings about queries that are valid but probably unintended, on the standard error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sapwood.cli.common.bounded_output import BoundedOutput
from sapwood.cli.common.console import warn
from sapwood.errors import QueryError
from sapwood.lang.languages import compile_text
from sapwood.lang.namespaces import match_in_any
from sapwood.lang.pattern import use_prefixes

if TYPE_CHECKING:
    from sapwood.lang.languages import AnyQuery

_MOST_PRINTED = 20
"""warnings that are printed one by one"""
_MOST_CHECKED = 1_000
"""queries that are compiled only to find warnings"""


class QueryWarnings:
    """Warns about suspicious queries as they are read, and at the end about prefixes that no query uses.

    `declared` are the prefixes that were given together with these queries.
    """

    def __init__(self, namespaces: Mapping[str, str], declared: Mapping[str, str]) -> None:
        self._namespaces = dict(namespaces) | dict(declared)
        self._declared = declared
        self._seen = 0
        self._warnings = BoundedOutput(_MOST_PRINTED, warn, lambda rest: warn(f"{rest} like these"))
        self._prefixed = match_in_any(self._namespaces)  # or whether a query uses a prefix

    def check(self, place: str, query: str) -> None:
        """Warn about a query, unless very many came before it; text that does not compile is ignored here."""
        if self._seen < _MOST_CHECKED:
            try:
                self.check_compiled(place, compile_text(query, self._namespaces))
            except QueryError:
                self._seen += 1
        else:
            self._prefixed = True  # for all we know

    def check_compiled(self, place: str, compiled: AnyQuery) -> None:
        """Warn about a query that is compiled already."""
        from sapwood.engine.diagnostics.lint import find_warnings, uses_prefixes

        self._seen += 1
        self._prefixed = self._prefixed or not self._declared or uses_prefixes(compiled)
        with use_prefixes(self._namespaces):
            found = find_warnings(compiled)
        for each in found:
            self._warnings.add(f"{place}: {each}")

    def finish(self) -> None:
        """Warn about unused prefixes, and print how many warnings were omitted."""
        self._warnings.finish()
        if self._declared and self._seen and not self._prefixed:
            one = len(self._declared) == 1
            what = f"the prefix {', '.join(self._declared)}" if one else f"any of {', '.join(self._declared)}"
            warn(f"nothing uses {what}, and names without a prefix have no namespace")
