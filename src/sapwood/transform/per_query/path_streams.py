"""Path-tuple streams: all the ways in which a message matches a path, one element number for each step.

    <a1><a2><b3/></a2></a1>      //a//b → (1, 3) (2, 3)

Every distinct combination comes once. A stream never decreases on its last field; on the others it may.
The stream of a path extends that of the path without its last step, so paths with a common prefix share
its tuples, and a path used by many plans is matched once a message.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.engine.message.document import Document
from sapwood.lang.pattern import Axis, Path

Tuples = list[tuple[int, ...]]

MOST_TUPLES = 1_000_000
"""tuples of one stream: several // over nested elements make more than memory holds"""


class TooManyTuples(Exception):
    """Raised when a stream would be too long."""


class PathStreams:
    """The streams of one message, each made on first use."""

    def __init__(self, document: Document, most: int = MOST_TUPLES) -> None:
        self.document = document
        self._most = most
        self._streams: dict[Path, Tuples] = {}
        self._ending_at: dict[Path, dict[int, Tuples]] = {}
        self._nearest: dict[Path, list[int]] = {}
        self._hopeless: set[Path] = set()
        self._passing: dict[str, Sequence[int]] = {"*": range(1, len(document))}

    def of(self, path: Path) -> Tuples:
        """Return the stream of a path of child and descendant steps without conditions; not to be changed."""
        found = self._streams.get(path)
        return self._matched(path) if found is None else found

    def _matched(self, path: Path) -> Tuples:
        found: Tuples = [()]
        prefix = Path(())
        for length in range(1, len(path.steps) + 1):
            longer = Path(path.steps[:length])
            known = self._streams.get(longer)
            found = self._extended(prefix, found, longer) if known is None else known
            prefix = longer
        return found

    def _extended(self, prefix: Path, tuples: Tuples, path: Path) -> Tuples:
        if path in self._hopeless:
            raise TooManyTuples(str(path))
        last = path.steps[-1]
        candidates = self._elements(last.test) if tuples else ()
        if last.axis is Axis.DESCENDANT and not prefix.steps:
            found: Tuples = [(element,) for element in candidates]
        elif last.axis is Axis.DESCENDANT:
            found = self._descendants(prefix, tuples, path, candidates)
        else:
            found = self._children(prefix, tuples, path, candidates)
        self._streams[path] = found
        return found

    def _elements(self, test: str) -> Sequence[int]:
        found = self._passing.get(test)
        if found is None:
            found = self._passing[test] = self.document.named(test, 1, len(self.document))
        return found

    def _children(self, prefix: Path, tuples: Tuples, path: Path, candidates: Sequence[int]) -> Tuples:
        ending_at, parents = self._by_last(prefix, tuples), self.document.parents
        found: Tuples = []
        for element in candidates:
            above = ending_at.get(parents[element])
            if above is not None:
                self._add(found, above, element, path)
        return found

    def _descendants(self, prefix: Path, tuples: Tuples, path: Path, candidates: Sequence[int]) -> Tuples:
        ending_at, parents = self._by_last(prefix, tuples), self.document.parents
        nearest = self._nearest.get(prefix)
        if nearest is None:
            nearest = self._nearest[prefix] = [0] * len(parents)
            for element in range(1, len(parents)):
                nearest[element] = element if element in ending_at else nearest[parents[element]]
        found: Tuples = []
        for element in candidates:
            holders: list[int] = []  # ancestors at which tuples end, innermost first
            holder = nearest[parents[element]]
            while holder:
                holders.append(holder)
                holder = nearest[parents[holder]]
            for holder in reversed(holders):
                self._add(found, ending_at[holder], element, path)
        return found

    def _by_last(self, prefix: Path, tuples: Tuples) -> dict[int, Tuples]:
        ending_at = self._ending_at.get(prefix)
        if ending_at is None:
            ending_at = self._ending_at[prefix] = {}
            for matched in tuples:
                ending_at.setdefault(matched[-1] if matched else 0, []).append(matched)
        return ending_at

    def _add(self, found: Tuples, above: Tuples, element: int, path: Path) -> None:
        if len(found) + len(above) > self._most:
            self._hopeless.add(path)
            raise TooManyTuples(str(path))
        found += [(*matched, element) for matched in above]
