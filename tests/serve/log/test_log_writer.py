"""The log: what a batch writes is read again, in whichever of tail and segments it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sapwood.serve.log import log_writer
from sapwood.serve.log.entries import ENTRY, Entries, number_entries
from sapwood.serve.log.inbox_table import InboxTable
from sapwood.serve.log.log_batch import LogBatch
from sapwood.serve.log.log_database import open_log
from sapwood.serve.log.log_reader import LogReader
from sapwood.serve.log.log_writer import LogWriter
from sapwood.store.database import Database

INBOXES = 7


class Filler:
    """Commits batches of messages, each of which some inboxes get."""

    def __init__(self, database: Database) -> None:
        self.writer = LogWriter(database)
        self.inboxes = InboxTable()
        for i in range(INBOXES):
            self.inboxes.create("", f"u{i}")
        self.last = np.zeros(INBOXES + 1, np.int64)
        self.batch = self.seq = 0
        self.expected: dict[int, list[tuple[int, int]]] = {}

    def commit(self, messages: int) -> LogBatch:
        batch = self.make(messages)
        self.writer.commit(batch)
        return batch

    def make(self, messages: int) -> LogBatch:
        self.batch += 1
        rows, chosen = [], []
        for _ in range(messages):
            self.seq += 1
            rows.append(
                {
                    "seq": self.seq,
                    "tenant": "",
                    "stream": "s",
                    "id": f"m{self.seq}",
                    "time": 0.0,
                    "has_time": False,
                    "received": 0.0,
                    "version": 0,
                    "deliveries": 0,
                    "body": b"<a/>",
                }
            )
            chosen += [(inbox, self.seq) for inbox in range(1, INBOXES + 1) if self.seq % inbox == 0]
        entries: Entries = np.zeros(len(chosen), ENTRY)
        entries["inbox"] = [inbox for inbox, _ in chosen]
        entries["seq"] = [seq for _, seq in chosen]
        entries["output"] = -1
        number_entries(entries, self.last)
        for inbox, number, seq in zip(
            entries["inbox"].tolist(), entries["number"].tolist(), entries["seq"].tolist(), strict=True
        ):
            self.expected.setdefault(inbox, []).append((number, seq))
        batch = LogBatch(self.batch, self.seq, INBOXES, messages=rows, entries=entries)
        if self.batch == 1:
            batch.inboxes = {number: self.inboxes.row(number) for number in self.inboxes.names}
        return batch


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return open_log(str(tmp_path / "log.db"))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tail become segments after three batches, two segments at a time."""
    monkeypatch.setattr(log_writer, "TAIL_BATCHES", 3)
    monkeypatch.setattr(log_writer, "_PART_BYTES", 800)


def read_all(reader: LogReader, inbox: int, limit: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while page := reader.read_entries(inbox, found[-1][0] if found else 0, limit):
        found += [(entry.number, entry.seq) for entry in page]
    return found


@pytest.mark.usefixtures("small_parts")
def test_an_inbox_is_read_whole_at_every_moment_of_a_compaction(database: Database) -> None:
    filler, reader = Filler(database), LogReader(database)
    for _ in range(20):
        filler.commit(3)
        for inbox, expected in filler.expected.items():
            assert read_all(reader, inbox, 4) == expected
        filler.writer.compact()
        for inbox, expected in filler.expected.items():
            assert read_all(reader, inbox, 4) == expected


@pytest.mark.usefixtures("small_parts")
def test_a_compaction_that_a_crash_ended_is_done_again(database: Database) -> None:
    filler = Filler(database)
    for _ in range(4):
        filler.commit(3)
    filler.writer.compact()  # two of seven segments
    filler.writer = LogWriter(database)  # which knows nothing of that
    for _ in range(8):
        filler.commit(2)
        filler.writer.compact()
    reader = LogReader(database)
    for inbox, expected in filler.expected.items():
        assert read_all(reader, inbox, 1_000) == expected


def test_a_batch_whose_commit_was_not_confirmed_is_stored_once(database: Database) -> None:
    filler = Filler(database)
    batch = filler.commit(3)
    filler.writer.commit(batch)
    assert read_all(LogReader(database), 1, 100) == filler.expected[1]
    assert set(LogReader(database).read_messages([1, 2, 3, 4])) == {1, 2, 3}
