"""Entries are numbered per inbox, and segments hold what the tail held."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sapwood.serve.log.entries import (
    ENTRY,
    Entries,
    InboxEntry,
    decode_batch,
    encode_batch,
    entries_of,
    number_entries,
    read_segment,
    to_segments,
)

inboxes = st.integers(1, 5) | st.sampled_from([70_000, 70_001])  # beyond 16 bits, too
batches = st.lists(st.lists(st.tuples(inboxes, st.integers(-1, 3)), max_size=20), max_size=6)


def make_batches(described: list[list[tuple[int, int]]]) -> list[Entries]:
    """Return numbered batches, each entry with a message and a place of its own."""
    last = np.zeros(70_002, np.int64)
    made, seq = [], 0
    for batch in described:
        entries = np.zeros(len(batch), ENTRY)
        for i, (inbox, output) in enumerate(batch):
            seq += 1
            entries[i] = (inbox, output, seq, 100 + seq, 0)
        number_entries(entries, last)
        made.append(entries)
    return made


@given(batches)
def test_numbers_count_from_1_in_each_inbox(described: list[list[tuple[int, int]]]) -> None:
    numbers: dict[int, list[int]] = {}
    for entries in make_batches(described):
        for entry in entries:
            numbers.setdefault(int(entry["inbox"]), []).append(int(entry["number"]))
    for found in numbers.values():
        assert found == list(range(1, len(found) + 1))


@given(batches, st.integers(0, 10))
def test_segments_hold_what_the_tail_held(described: list[list[tuple[int, int]]], after: int) -> None:
    tail = make_batches(described)
    segments = {segment.inbox: segment for segment in to_segments(tail)}
    assert set(segments) == {inbox for batch in described for inbox, _ in batch}
    for inbox, segment in segments.items():
        expected = [entry for entries in tail for entry in entries_of(entries, inbox, after)]
        assert read_segment(segment.first, segment.entries, after) == expected
        whole = read_segment(segment.first, segment.entries)
        assert (whole[0].number, whole[-1].number) == (segment.first, segment.last)
        assert whole[-1].seq == segment.last_seq


@given(batches)
def test_a_batch_is_read_as_written(described: list[list[tuple[int, int]]]) -> None:
    for entries in make_batches(described):
        assert decode_batch(encode_batch(entries)).tolist() == entries.tolist()


def test_no_entries_make_no_segments() -> None:
    assert list(to_segments([])) == []
    number_entries(np.zeros(0, ENTRY), np.zeros(1, np.int64))


def test_an_entry_keeps_its_message_place_and_output() -> None:
    [tail] = make_batches([[(2, 7)]])
    [segment] = to_segments([tail])
    assert read_segment(segment.first, segment.entries) == [InboxEntry(1, 1, 101, 7)]
