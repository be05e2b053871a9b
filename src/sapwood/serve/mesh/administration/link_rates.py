"""The rates of links: differences of the counters that a node reports every second."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

_SPAN = 5.0
"""seconds that a rate is the mean of"""
_COUNTERS = ("messages in", "bytes in", "messages out", "bytes out")


class LinkRates:
    """The counters of the last seconds, by link."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[str, dict[str, int]]]] = deque()

    def add(self, now: float, links: Mapping[str, Mapping[str, Any]]) -> None:
        """Note the counters at a time; those of a node that was started again begin at zero."""
        counts = {
            link: {name: int(state.get(name, 0)) for name in _COUNTERS} for link, state in links.items()
        }
        self._samples.append((now, counts))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _SPAN:
            self._samples.popleft()

    def clear(self) -> None:
        """Forget all, because the counters begin anew."""
        self._samples.clear()

    def get(self, link: str) -> dict[str, float]:
        """Return messages and bytes for each second, in and out."""
        if len(self._samples) < 2:
            return dict.fromkeys(_COUNTERS, 0.0)
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        before, after = first.get(link, {}), last.get(link, {})
        seconds = max(end - start, 1e-3)
        return {
            name: max(0, after.get(name, 0) - before.get(name, 0)) / seconds if link in first else 0.0
            for name in _COUNTERS
        }
