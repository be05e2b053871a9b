"""A part of a file that moves forward over it."""

from __future__ import annotations

from typing import BinaryIO

from sapwood.errors import RecordError

LONGEST_MARKUP = 16 * 1024 * 1024
"""A tag or document type must fit in memory; one that is longer fits into no message either."""


class Window:
    """Some bytes of a file, and a place in them before which nothing is needed any more."""

    __slots__ = ("_base", "_file", "_step", "data", "pos")

    def __init__(self, file: BinaryIO, step: int) -> None:
        self.data = b""
        self.pos = 0
        self._base = 0  # offset of `data` in the file
        self._file = file
        self._step = step

    @property
    def offset(self) -> int:
        """Of the place, in the file."""
        return self._base + self.pos

    def offset_of(self, place: int) -> int:
        return self._base + place

    def more(self) -> bool:
        """Drops what is before the place and reads on; False, and nothing changes, at the end of the file."""
        # As much again as is kept: what is looked at anew each time adds up to no more than twice its length.
        read = self._file.read(max(self._step, len(self.data) - self.pos))
        if not read:
            return False
        self.data = self.data[self.pos :] + read
        self._base += self.pos
        self.pos = 0
        return True

    def more_of(self, what: str) -> bool:
        """Reads on to have a piece of markup in whole, unless there is too much of it."""
        if len(self.data) - self.pos > LONGEST_MARKUP:
            hint = "is a quote or a bracket missing?"
            raise RecordError(f"{what} of more than {LONGEST_MARKUP:,} bytes", self.offset, hint)
        return self.more()

    def ahead(self, count: int) -> bytes:
        """So many of the next bytes, or fewer at the end of the file."""
        while len(self.data) - self.pos < count and self.more():
            pass
        return self.data[self.pos : self.pos + count]

    def skip_to(self, wanted: bytes) -> bool:
        """Goes to the next such bytes; if there are none, to the end of the file, and answers False."""
        while (found := self.data.find(wanted, self.pos)) < 0:
            # Its first bytes may be here already.
            self.pos = max(self.pos, len(self.data) - len(wanted) + 1)
            if not self.more():
                self.pos = len(self.data)
                return False
        self.pos = found
        return True

    def skip_past(self, wanted: bytes) -> bool:
        """Goes to where the next such bytes end, or to the end of the file, and answers False."""
        found = self.skip_to(wanted)
        if found:
            self.pos += len(wanted)
        return found
