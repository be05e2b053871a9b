"""A matcher with the compiled kernel and one in Python, which have to agree."""

from __future__ import annotations

from collections.abc import Hashable

from sapwood import Matcher, Tuning
from sapwood.engine.matches import Matches
from tests.support.oracles import lxml_oracle


class MatcherPair:
    """A matcher with the kernel and one without, which have to agree."""

    def __init__(self, tuning: Tuning | None = None) -> None:
        self.compiled = Matcher(lxml_oracle.NAMESPACES, tuning=tuning or Tuning())
        self.python = Matcher(lxml_oracle.NAMESPACES, tuning=Tuning(kernel=False))
        self.queries: dict[Hashable, str] = {}
        self.unread: list[tuple[Matches, int, list[Hashable]]] = []

    def add(self, id: Hashable, query: str) -> None:
        self.compiled.add(id, query)
        self.python.add(id, query)
        self.queries[id] = query

    def remove(self, id: Hashable) -> None:
        self.compiled.remove(id)
        self.python.remove(id)
        del self.queries[id]

    def compare(self, message: str) -> None:
        found, wanted = self.compiled.match(message), self.python.match(message)
        assert len(found) == len(wanted), message
        assert list(found) == list(wanted), message

    def leave_unread(self, message: str) -> None:
        wanted = self.python.match(message)
        self.unread.append((self.compiled.match(message), len(wanted), list(wanted)))

    def read(self) -> None:
        for found, count, ids in self.unread:
            assert len(found) == count
            assert list(found) == ids
        self.unread.clear()
