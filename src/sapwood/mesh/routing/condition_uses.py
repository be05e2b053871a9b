"""The conditions that the routes of a link have, each counted as often as there are routes with it.

Routes that differ only in what they read have one condition: whoever decides whether a message is wanted
needs it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sapwood.mesh.routing.route import Route


class ConditionUses:
    """How many routes have each condition, as routes of whole messages."""

    def __init__(self) -> None:
        self._uses: Counter[Route] = Counter()

    def __iter__(self) -> Iterator[Route]:
        return iter(self._uses)

    def change(self, new: Iterable[Route], gone: Iterable[Route]) -> tuple[list[Route], list[Route]]:
        """Add and remove routes; return the conditions that none had before, and those that none has now."""
        uses = self._uses
        added: list[Route] = []
        removed: list[Route] = []
        for route in new:
            whole = route.of_whole_messages
            uses[whole] += 1
            if uses[whole] == 1:
                added.append(whole)
        for route in gone:
            whole = route.of_whole_messages
            uses[whole] -= 1
            if not uses[whole]:
                del uses[whole]
                removed.append(whole)
        return added, removed
