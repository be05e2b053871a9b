"""Entries: which subscription gets which message, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapwood.serve.log.column_codec import decode_columns, encode_columns

MESSAGE = -1
"""the output of an entry whose delivery is the message itself"""

ENTRY = np.dtype([("inbox", "<i4"), ("output", "<i4"), ("seq", "<i8"), ("place", "<i8"), ("number", "<i8")])
"""An entry of the tail; numbers count from 1 in each inbox, a place is a subscription's in the store."""

Entries = NDArray[np.void]
Ints = NDArray[np.int64]

_BATCH_COLUMNS = ("inbox", "output", "seq", "place")
_SEGMENT_COLUMNS = ("seq", "place", "output")
"""as in InboxEntry; the inbox and the first number are those of the segment"""

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
    order = order_by_inbox(entries["inbox"])
    ordered = entries["inbox"][order]
    starts = _find_starts(ordered)
    counts = np.diff(np.append(starts, len(ordered)))
    ranks = np.arange(len(ordered)) - np.repeat(starts, counts)
    entries["number"][order] = last[ordered] + ranks + 1
    last[ordered[starts]] += counts


def order_by_inbox(inboxes: Ints) -> Ints:
    """Return the order of entries by inbox, those of one as they are."""
    few = len(inboxes) and int(inboxes.max()) < 2**16
    return np.argsort(inboxes.astype(np.uint16) if few else inboxes, kind="stable")  # radix sort, if few


def _find_starts(ordered: Ints) -> Ints:
    """Return where each inbox begins in entries that are ordered by it."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))


# -- batches of the tail -----------------------------------------------------------------------------------


def encode_batch(entries: Entries) -> bytes:
    """Return the entries of a batch in few bytes; of their numbers, only the first in each inbox."""
    if not len(entries):
        return b""
    order = order_by_inbox(entries["inbox"])
    firsts = order[_find_starts(entries["inbox"][order])]
    columns = encode_columns([entries[name] for name in _BATCH_COLUMNS])
    return columns + encode_columns([entries["inbox"][firsts], entries["number"][firsts] - 1])


def decode_batch(stored: bytes) -> Entries:
    """Return the entries of a batch."""
    if not stored:
        return NO_ENTRIES
    columns, end = decode_columns(stored, len(_BATCH_COLUMNS))
    (inboxes, before), _ = decode_columns(stored, 2, end)
    entries = np.empty(len(columns[0]), ENTRY)
    for name, column in zip(_BATCH_COLUMNS, columns, strict=True):
        entries[name] = column
    entries["inbox"] = np.searchsorted(inboxes, columns[0])  # places in `before`
    number_entries(entries, before)
    entries["inbox"] = columns[0]
    return entries


# -- segments ----------------------------------------------------------------------------------------------


def to_segments(parts: Iterable[Entries]) -> Iterator[Segment]:
    """Yield the entries of a tail as one segment for each inbox."""
    joined = [part for part in parts if len(part)]
    if not joined:
        return
    entries = np.concatenate(joined)
    entries = entries[order_by_inbox(entries["inbox"])]
    inboxes = entries["inbox"]
    starts = _find_starts(inboxes)
    columns = [entries[name].astype(np.int64) for name in _SEGMENT_COLUMNS]
    numbers, seqs = entries["number"], entries["seq"]
    # which are not always in order: a subscription that moves here gets messages that came before
    lowest, highest = np.minimum.reduceat(seqs, starts), np.maximum.reduceat(seqs, starts)
    ends = [*starts[1:].tolist(), len(entries)]
    for i, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
        yield Segment(
            int(inboxes[start]),
            int(numbers[start]),
            int(numbers[end - 1]),
            int(lowest[i]),
            int(highest[i]),
            encode_columns([column[start:end] for column in columns]),
        )


def read_segment(first: int, stored: bytes, after: int = 0) -> list[InboxEntry]:
    """Return the entries of a segment with numbers above `after`."""
    skipped = max(0, after + 1 - first)
    columns, _ = decode_columns(stored, len(_SEGMENT_COLUMNS))
    rows = zip(*(column[skipped:].tolist() for column in columns), strict=True)
    return [InboxEntry(number, *row) for number, row in enumerate(rows, first + skipped)]


def read_segment_seqs(stored: bytes) -> Ints:
    """Return the messages of a segment, by entry."""
    columns, _ = decode_columns(stored, 1)
    return columns[0]


def entries_of(entries: Entries, inbox: int, after: int = 0) -> list[InboxEntry]:
    """Return the entries of one inbox with numbers above `after`."""
    chosen = entries[(entries["inbox"] == inbox) & (entries["number"] > after)]
    return [InboxEntry(number, seq, place, output) for _, output, seq, place, number in chosen.tolist()]
