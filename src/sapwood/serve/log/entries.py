"""Entries: which subscription gets which message, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MESSAGE = -1
"""the output of an entry whose delivery is the message itself"""

ENTRY = np.dtype([("inbox", "<i4"), ("output", "<i4"), ("seq", "<i8"), ("place", "<i8"), ("number", "<i8")])
"""An entry of the tail; numbers count from 1 in each inbox, a place is a subscription's in the store."""

SEGMENT_ENTRY = np.dtype([("seq", "<i8"), ("place", "<i8"), ("output", "<i4")])
"""An entry of a segment, whose inbox and first number are those of the segment."""

Entries = NDArray[np.void]
Ints = NDArray[np.int64]

NO_ENTRIES: Entries = np.empty(0, ENTRY)


class InboxEntry(NamedTuple):
    """An entry of an inbox."""

    number: int
    seq: int
    place: int
    output: int


class Segment(NamedTuple):
    """Consecutive entries of one inbox."""

    inbox: int
    first: int
    last: int
    first_seq: int
    last_seq: int
    entries: bytes


def number_entries(entries: Entries, last: Ints) -> None:
    """Number entries, which are in the order of messages, in their inboxes; `last`, the last number of each
    inbox, is advanced."""
    if not len(entries):
        return
    inboxes = entries["inbox"]
    order = order_by_inbox(inboxes)
    ordered = inboxes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(np.append(starts, len(ordered)))
    ranks = np.arange(len(ordered)) - np.repeat(starts, counts)
    entries["number"][order] = last[ordered] + ranks + 1
    last[ordered[starts]] += counts


def order_by_inbox(inboxes: Ints) -> Ints:
    """Return the order of entries by inbox, those of one as they are."""
    few = len(inboxes) and int(inboxes.max()) < 2**16
    return np.argsort(inboxes.astype(np.uint16) if few else inboxes, kind="stable")  # radix sort, if few


def to_segments(parts: Iterable[Entries]) -> Iterator[Segment]:
    """Yield the entries of a tail as one segment for each inbox."""
    joined = [part for part in parts if len(part)]
    if not joined:
        return
    entries = np.concatenate(joined)
    entries = entries[order_by_inbox(entries["inbox"])]
    inboxes = entries["inbox"]
    starts = np.flatnonzero(np.concatenate(([True], inboxes[1:] != inboxes[:-1])))
    stored = np.empty(len(entries), SEGMENT_ENTRY)
    for name in ("seq", "place", "output"):
        stored[name] = entries[name]
    numbers, seqs = entries["number"], entries["seq"]
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(entries)], strict=True):
        yield Segment(
            int(inboxes[start]),
            int(numbers[start]),
            int(numbers[end - 1]),
            int(seqs[start]),
            int(seqs[end - 1]),
            stored[start:end].tobytes(),
        )


def read_segment(first: int, stored: bytes, after: int = 0) -> list[InboxEntry]:
    """Return the entries of a segment with numbers above `after`."""
    skipped = max(0, after + 1 - first)
    entries = np.frombuffer(stored, SEGMENT_ENTRY)[skipped:]
    return [
        InboxEntry(number, seq, place, output)
        for number, (seq, place, output) in enumerate(entries.tolist(), first + skipped)
    ]


def entries_of(entries: Entries, inbox: int, after: int = 0) -> list[InboxEntry]:
    """Return the entries of one inbox with numbers above `after`."""
    chosen = entries[(entries["inbox"] == inbox) & (entries["number"] > after)]
    return [InboxEntry(number, seq, place, output) for _, output, seq, place, number in chosen.tolist()]
