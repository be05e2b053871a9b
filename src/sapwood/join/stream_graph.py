"""The graph of streams: which streams queries read, and which they publish to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def describe_cycle(cycle: Sequence[str]) -> str:
    """Return an error message for a cycle of streams."""
    return f"a cycle of streams: {' → '.join(map(repr, cycle))}"


class StreamGraph:
    """The streams of all queries, with an edge from each stream that a query reads to the one it publishes
    to."""

    def __init__(self) -> None:
        self._read: Counter[str] = Counter()
        self._joined: Counter[str] = Counter()
        self._edges: dict[str, Counter[str]] = {}

    def add(self, read: Sequence[str], published: str, joined: bool) -> None:
        """Add a query by the streams it reads and the one it publishes to, empty for none; `joined` if it
        joins messages of these streams with others."""
        self._read.update(read)
        if joined:
            self._joined.update(read)
        for name in read if published else ():
            self._edges.setdefault(name, Counter())[published] += 1

    def remove(self, read: Sequence[str], published: str, joined: bool) -> None:
        """Remove a query that was added with the same arguments."""
        for name in read:
            self._read[name] -= 1
            self._joined[name] -= joined
            if published:
                edges = self._edges[name]
                edges[published] -= 1
                if not edges[published]:
                    del edges[published]

    def read(self, name: str) -> bool:
        """Return whether any query reads a stream."""
        return self._read[name] > 0

    def joined(self, name: str) -> bool:
        """Return whether any query joins the messages of a stream with others."""
        return self._joined[name] > 0

    @property
    def has_publishers(self) -> bool:
        """True if any query publishes to a stream."""
        return any(self._edges.values())

    def cycle(self, read: Sequence[str], published: str) -> list[str]:
        """Return the cycle of streams that a query would close, each publishing to the next; empty if it
        would close none."""
        if not published:
            return []
        came_from: dict[str, str | None] = {published: None}
        stack = [published]
        while stack:
            name = stack.pop()
            if name in read:
                trail = [name]
                while (before := came_from[trail[-1]]) is not None:
                    trail.append(before)
                return [name, *reversed(trail)]
            for following in self._edges.get(name, ()):
                if following not in came_from:
                    came_from[following] = name
                    stack.append(following)
        return []
