"""Which streams queries read, and which they feed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def describe_cycle(cycle: Sequence[str]) -> str:
    """What is wrong with streams that feed each other."""
    return f"a cycle of streams: {' → '.join(map(repr, cycle))}"


class StreamGraph:
    """The streams of all queries, and what is made of what."""

    def __init__(self) -> None:
        self._read: Counter[str] = Counter()
        self._joined: Counter[str] = Counter()
        self._feeds: dict[str, Counter[str]] = {}

    def add(self, read: Sequence[str], fed: str, joined: bool) -> None:
        """Adds a query that reads streams, and perhaps feeds one and joins their messages with others."""
        self._read.update(read)
        if joined:
            self._joined.update(read)
        for name in read if fed else ():
            self._feeds.setdefault(name, Counter())[fed] += 1

    def remove(self, read: Sequence[str], fed: str, joined: bool) -> None:
        for name in read:
            self._read[name] -= 1
            self._joined[name] -= joined
            if fed:
                feeds = self._feeds[name]
                feeds[fed] -= 1
                if not feeds[fed]:
                    del feeds[fed]

    def read(self, name: str) -> bool:
        """Whether any query reads a stream."""
        return self._read[name] > 0

    def joined(self, name: str) -> bool:
        """Whether any query joins the messages of a stream with others."""
        return self._joined[name] > 0

    @property
    def fed(self) -> bool:
        """Whether any query feeds a stream."""
        return any(self._feeds.values())

    def cycle(self, read: Sequence[str], fed: str) -> list[str]:
        """The streams, each feeding the next, by which a query would feed itself; none if it would not."""
        if not fed:
            return []
        came_from: dict[str, str | None] = {fed: None}
        waiting = [fed]
        while waiting:
            name = waiting.pop()
            if name in read:
                trail = [name]
                while (before := came_from[trail[-1]]) is not None:
                    trail.append(before)
                return [name, *reversed(trail)]
            for further in self._feeds.get(name, ()):
                if further not in came_from:
                    came_from[further] = name
                    waiting.append(further)
        return []
