"""Ranges of neighbouring records, which one process finds and others read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from sapwood.records.record_context import Context, message
from sapwood.records.record_scanner import Record


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Records with the same context, close enough to each other to be read at once."""

    context: Context
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    complete: bool
    """False if the file ends within the last record"""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def start(self) -> int:
        return int(self.starts[0])

    @property
    def end(self) -> int:
        return int(self.ends[-1])

    def messages(self, file: BinaryIO) -> Iterator[bytes]:
        """Read the records as messages from a seekable file; fewer if the file has become shorter."""
        first = self.start
        file.seek(first)
        data = file.read(self.end - first)
        for start, end in zip((self.starts - first).tolist(), (self.ends - first).tolist(), strict=True):
            if end <= len(data):
                yield message(self.context, data[start:end])


def ranges(
    records: Iterable[Record], max_bytes: int = 8 << 20, max_records: int = 100_000
) -> Iterator[Range]:
    """Group the records, in order, into ranges; one of more than `max_bytes` has a range of its own.

    The bytes of a range are all from its start to its end, including those between its records.
    """
    starts: list[int] = []
    ends: list[int] = []
    context: Context | None = None
    limit = 0
    for start, end, needed, complete in records:
        if end > limit or needed is not context or len(starts) == max_records:
            if starts and context is not None:
                yield _build_range(context, starts, ends, True)
            starts, ends, context = [], [], needed
            limit = start + max_bytes
        starts.append(start)
        ends.append(end)
        if not complete:
            yield _build_range(needed, starts, ends, False)
            return
    if starts and context is not None:
        yield _build_range(context, starts, ends, True)


def _build_range(context: Context, starts: list[int], ends: list[int], complete: bool) -> Range:
    return Range(context, np.array(starts, np.int64), np.array(ends, np.int64), complete)
