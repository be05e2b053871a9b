"""Random sampling of queries, distinct if asked."""

from __future__ import annotations

from abc import abstractmethod

from sapwood.errors import SapwoodError
from sapwood.workload.dtd.model import Dtd
from sapwood.workload.generator import Generator

TRIES = 2_000  # in a row without a new query: then what is left is too rare to look for


class QueriesExhausted(SapwoodError, ValueError):
    """Raised when very many draws give no new query; `found` is the number of distinct queries before.

    `reason` and `remedy` are its text; if `repeatable`, equal queries could be drawn, which callers allow
    each in their own way.
    """

    def __init__(self, reason: str, remedy: str, found: int, repeatable: bool) -> None:
        repeats = ", or repeats with distinct=False" if repeatable else ""
        super().__init__(f"{reason}: {remedy}{repeats}")
        self.reason = reason
        self.remedy = remedy
        self.found = found
        self.repeatable = repeatable

    def __reduce__(self) -> tuple[type[QueriesExhausted], tuple[str, str, int, bool]]:
        return type(self), (self.reason, self.remedy, self.found, self.repeatable)


class Drawing(Generator[str]):
    """An endless iterator of queries over documents of a DTD."""

    def __init__(self, dtd: Dtd, distinct: bool) -> None:
        self.dtd = dtd
        self._seen: set[str] | None = set() if distinct else None

    @abstractmethod
    def _attempt(self, even: bool) -> str | None:
        """A query, or None if it cannot be what was asked for; if `even`, all walks are equally likely."""

    @abstractmethod
    def _why_none(self) -> tuple[str, str]:
        """Explain why no attempt succeeded, and what to change."""

    @abstractmethod
    def _what_gives_more(self) -> str: ...

    def query(self) -> str:
        """The next query."""
        query = None
        for attempt in range(TRIES):
            query = self._attempt(even=attempt > 0) or query
            if query is not None and (self._seen is None or query not in self._seen):
                break
        else:
            raise self._exhausted(query)
        if self._seen is not None:
            self._seen.add(query)
        return query

    def __next__(self) -> str:
        return self.query()

    def _exhausted(self, last: str | None) -> QueriesExhausted:
        """The error for TRIES misses; `last` is the last query made, None if none could be."""
        found = len(self._seen or ())
        if last is None:
            return QueriesExhausted(*self._why_none(), found, repeatable=False)
        return QueriesExhausted(
            f"found only {found:,} distinct queries on DTD {self.dtd.name!r}, and no new one in {TRIES:,} "
            "tries",
            self._what_gives_more(),
            found,
            repeatable=True,
        )
