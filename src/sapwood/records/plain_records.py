"""Finds plain records in a window by array operations.

Most records are plain: `<record` … `</record>` with no comment, CDATA section, processing instruction or
other record in between, and only text before the next one. In a well-formed file, a start tag of the record's
name is closed by the end tag of that name that follows it, if none of these is in between, so that its
attributes need not be parsed. Parsing the tags one by one takes some four times as long.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

_START, _END, _OTHER = 1, 2, 3
_GREATER, _SLASH, _EXCLAMATION, _QUESTION = b">/!?"
_AFTER_NAME = np.zeros(256, np.bool_)
_AFTER_NAME[list(b" \t\r\n/>")] = True


class PlainRecordIndex:
    """The positions of the tags of records in a window, and of markup that begins with `<!` or `<?`."""

    __slots__ = ("_breaks", "_ends", "_known", "_positions", "_starts")

    def __init__(self, data: bytes, name: bytes) -> None:
        size = len(name)
        array = np.frombuffer(data, np.uint8)
        self._known = max(0, len(data) - size - 3)  # a tag after this may be truncated
        tags = np.flatnonzero(array[: self._known] == ord("<"))
        following = array[tags + 1]
        kinds = np.zeros(len(tags), np.uint8)
        kinds[_filter_named(array, tags, np.flatnonzero(following == name[0]), 1, name)] = _START
        kinds[_filter_named(array, tags, np.flatnonzero(following == _SLASH), 2, name)] = _END
        kinds[(following == _EXCLAMATION) | (following == _QUESTION)] = _OTHER

        marked = np.flatnonzero(kinds)
        kinds, positions = kinds[marked], tags[marked]
        plain = np.flatnonzero((kinds[:-1] == _START) & (kinds[1:] == _END))
        plain = plain[array[positions[plain + 1] + 2 + size] == _GREATER]
        # A run of records continues where the tag after an end tag is the start tag of the next plain one.
        breaks = np.flatnonzero(marked[plain[1:]] != marked[plain[:-1] + 1] + 1)
        self._positions: list[int] = positions.tolist()
        self._starts: list[int] = positions[plain].tolist()
        self._ends: list[int] = (positions[plain + 1] + 3 + size).tolist()
        self._breaks: list[int] = breaks.tolist()

    def find_run(self, position: int) -> tuple[list[int], list[int]] | None:
        """Return starts and ends of successive plain records, of which the first begins at the position; None
        if none begins there."""
        starts, breaks = self._starts, self._breaks
        first = bisect_left(starts, position)
        if first == len(starts) or starts[first] != position:
            return None
        at = bisect_left(breaks, first)
        stop = breaks[at] + 1 if at < len(breaks) else len(starts)
        return starts[first:stop], self._ends[first:stop]

    def has_none(self, start: int, end: int) -> bool:
        """Return whether there is certainly none of them between two positions."""
        at = bisect_left(self._positions, start)
        return end <= self._known and (at == len(self._positions) or self._positions[at] >= end)


def _filter_named(
    array: NDArray[np.uint8], tags: NDArray[np.intp], chosen: NDArray[np.intp], shift: int, name: bytes
) -> NDArray[np.intp]:
    """Return those of the chosen tags whose name, `shift` bytes after the tag begins, is the given one."""
    for i, byte in enumerate(name, shift):
        chosen = chosen[array[tags[chosen] + i] == byte]
    return chosen[_AFTER_NAME[array[tags[chosen] + shift + len(name)]]]
