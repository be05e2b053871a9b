"""Where in a window plain records are, found by whole-array operations.

Most records are plain: `<record` … `</record>` with no comment, CDATA section, processing instruction or
other record in between, and nothing but text before the next one. In a well-formed file, a start tag of the
record's name that is followed by an end tag of that name before anything else that could matter is closed by
it, so that its attributes need not be looked at. Going through the tags one by one takes some four times as
long.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

_START, _END, _HIDING = 1, 2, 3
_GREATER, _SLASH, _EXCLAMATION, _QUESTION = b">/!?"
_AFTER_NAME = np.zeros(256, np.bool_)
_AFTER_NAME[list(b" \t\r\n/>")] = True


class RecordMarks:
    """The tags of records in a window, and what begins with `<!` or `<?`."""

    __slots__ = ("_breaks", "_ends", "_known", "_places", "_starts")

    def __init__(self, data: bytes, name: bytes) -> None:
        size = len(name)
        array = np.frombuffer(data, np.uint8)
        self._known = max(0, len(data) - size - 3)  # a mark after this may be cut
        tags = np.flatnonzero(array[: self._known] == ord("<"))
        following = array[tags + 1]
        kinds = np.zeros(len(tags), np.uint8)
        kinds[_named(array, tags, np.flatnonzero(following == name[0]), 1, name)] = _START
        kinds[_named(array, tags, np.flatnonzero(following == _SLASH), 2, name)] = _END
        kinds[(following == _EXCLAMATION) | (following == _QUESTION)] = _HIDING

        marked = np.flatnonzero(kinds)
        kinds, places = kinds[marked], tags[marked]
        plain = np.flatnonzero((kinds[:-1] == _START) & (kinds[1:] == _END))
        plain = plain[array[places[plain + 1] + 2 + size] == _GREATER]
        # A run of records goes on where the tag after an end tag is the start tag of the next plain one.
        breaks = np.flatnonzero(marked[plain[1:]] != marked[plain[:-1] + 1] + 1)
        self._places: list[int] = places.tolist()
        self._starts: list[int] = places[plain].tolist()
        self._ends: list[int] = (places[plain + 1] + 3 + size).tolist()
        self._breaks: list[int] = breaks.tolist()

    def run(self, place: int) -> tuple[list[int], list[int]] | None:
        """Starts and ends of plain records from that place on, only text between; None: none begins there."""
        starts, breaks = self._starts, self._breaks
        first = bisect_left(starts, place)
        if first == len(starts) or starts[first] != place:
            return None
        at = bisect_left(breaks, first)
        stop = breaks[at] + 1 if at < len(breaks) else len(starts)
        return starts[first:stop], self._ends[first:stop]

    def none_in(self, start: int, end: int) -> bool:
        """Whether it is certain that nothing is marked there."""
        at = bisect_left(self._places, start)
        return end <= self._known and (at == len(self._places) or self._places[at] >= end)


def _named(
    array: NDArray[np.uint8], tags: NDArray[np.intp], chosen: NDArray[np.intp], shift: int, name: bytes
) -> NDArray[np.intp]:
    """Those of the chosen tags that have the name after so many bytes."""
    for i, byte in enumerate(name, shift):
        chosen = chosen[array[tags[chosen] + i] == byte]
    return chosen[_AFTER_NAME[array[tags[chosen] + shift + len(name)]]]
