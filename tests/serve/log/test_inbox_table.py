"""Inboxes: numbering, acknowledgements, and what happens when one is full."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sapwood.serve.log.entries import ENTRY, Entries
from sapwood.serve.log.inbox_table import FullPolicy, InboxTable


def entries_for(*inboxes: int) -> Entries:
    entries = np.zeros(len(inboxes), ENTRY)
    entries["inbox"] = inboxes
    return entries


def make_table(policy: FullPolicy, limit: int = 3) -> tuple[InboxTable, int]:
    table = InboxTable()
    inbox = table.create("", "desk")
    table.configure(inbox, json.dumps({"limit": limit, "policy": policy}))
    return table, inbox


def test_an_inbox_counts_what_is_not_acknowledged() -> None:
    table, inbox = make_table(FullPolicy.WAIT, 100)
    table.admit(entries_for(inbox, inbox, inbox))
    assert table.backlog(inbox) == 3
    assert table.acknowledge(inbox, 2)
    assert table.backlog(inbox) == 1
    assert not table.acknowledge(inbox, 1)  # which is acknowledged already
    assert table.acknowledge(inbox, 99)  # of which there are none yet
    assert table.backlog(inbox) == 0
    table.admit(entries_for(inbox))
    assert table.backlog(inbox) == 1


def test_publishers_wait_for_a_full_inbox() -> None:
    table, inbox = make_table(FullPolicy.WAIT)
    table.admit(entries_for(inbox, inbox))
    assert not table.find_full()
    table.admit(entries_for(inbox, inbox))  # a batch may exceed the limit, once
    assert table.backlog(inbox) == 4
    assert "desk" in table.find_full()[""]
    table.acknowledge(inbox, 2)
    assert not table.find_full()


def test_the_oldest_are_dropped_and_recorded() -> None:
    table, inbox = make_table(FullPolicy.DROP_OLDEST)
    _, gaps, affected = table.admit(entries_for(*[inbox] * 5))
    assert [(gap.after, gap.count, gap.reason) for gap in gaps] == [(0, 2, "full")]
    assert affected == {inbox}
    assert table.backlog(inbox) == 3
    _, gaps, _ = table.admit(entries_for(inbox))
    assert [(gap.after, gap.count) for gap in gaps] == [(0, 3)]  # the same gap, which has grown
    table.acknowledge(inbox, 4)
    _, gaps, _ = table.admit(entries_for(*[inbox] * 4))
    assert [(gap.after, gap.count) for gap in gaps] == [(4, 3)]


def test_a_full_inbox_is_suspended_and_resumed() -> None:
    table, inbox = make_table(FullPolicy.SUSPEND)
    entries, gaps, affected = table.admit(entries_for(*[inbox] * 5))
    assert entries["number"].tolist() == [1, 2, 3]
    assert [(gap.after, gap.count, gap.reason) for gap in gaps] == [(3, 2, "suspended")]
    assert affected == {inbox}
    table.acknowledge(inbox, 3)  # which does not resume it
    entries, gaps, _ = table.admit(entries_for(inbox))
    assert not len(entries)
    assert [(gap.after, gap.count) for gap in gaps] == [(3, 3)]
    table.suspended.discard(inbox)
    entries, gaps, _ = table.admit(entries_for(inbox))
    assert entries["number"].tolist() == [4]
    assert not gaps


def test_a_full_inbox_leaves_others_alone() -> None:
    table, full = make_table(FullPolicy.SUSPEND, 1)
    other = table.create("", "audit")
    entries, _, _ = table.admit(entries_for(full, other, full, other))
    assert entries["inbox"].tolist() == [full, other, other]
    assert entries["number"].tolist() == [1, 1, 2]


def test_what_expires_is_a_gap() -> None:
    table, inbox = make_table(FullPolicy.WAIT, 100)
    table.admit(entries_for(*[inbox] * 10))
    table.acknowledge(inbox, 2)
    gap = table.expire(inbox, 6)
    assert gap is not None
    assert (gap.after, gap.count, gap.reason) == (2, 4, "expired")
    assert table.expire(inbox, 6) is None
    assert table.backlog(inbox) == 4


def test_a_row_restores_an_inbox() -> None:
    table, inbox = make_table(FullPolicy.SUSPEND)
    table.admit(entries_for(*[inbox] * 5))
    table.acknowledge(inbox, 1)
    restored = InboxTable()
    restored.load([table.row(inbox)])
    assert restored.row(inbox) == table.row(inbox)
    assert restored.suspended == {inbox}
    assert restored.find("", "desk") == inbox
    assert restored.create("", "other") == inbox + 1


def test_a_deleted_inbox_is_forgotten_and_its_number_not_given_again() -> None:
    table, inbox = make_table(FullPolicy.WAIT)
    table.delete(inbox)
    assert table.find("", "desk") is None
    assert table.create("", "desk") != inbox


@pytest.mark.parametrize("count", [1, 1_000])
def test_many_inboxes(count: int) -> None:
    table = InboxTable()
    numbers = [table.create("", f"u{i}") for i in range(count)]
    entries, _, _ = table.admit(entries_for(*numbers, *reversed(numbers)))
    assert sorted(entries["number"].tolist()) == [1] * count + [2] * count
