"""The inboxes of all subscribers: how far they are filled and read, and what happens when one is full."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.serve.log.entries import Entries, number_entries
from sapwood.serve.log.log_batch import Gap, InboxRow

NOBODY = 0
"""the inbox of subscriptions without a subscriber, whose deliveries nobody gets"""


class FullPolicy(StrEnum):
    """What happens when an inbox holds as many deliveries as its limit allows."""

    WAIT = "wait"
    """publishers of the tenant have to wait"""
    DROP_OLDEST = "drop-oldest"
    """the oldest deliveries are dropped, and a gap is recorded"""
    SUSPEND = "suspend"
    """the subscriber gets nothing more until it is resumed, and a gap is recorded"""


class InboxTable:
    """All inboxes by number, as arrays."""

    def __init__(self, limit: int = 1_000_000, policy: FullPolicy = FullPolicy.DROP_OLDEST) -> None:
        """`limit` and `policy` are those of inboxes whose settings have none."""
        self._default_limit, self._default_policy = limit, policy
        self.last: NDArray[np.int64] = np.zeros(64, np.int64)
        """the number of the last delivery in each inbox"""
        self.acknowledged: NDArray[np.int64] = np.zeros(64, np.int64)
        self.dropped: NDArray[np.int64] = np.zeros(64, np.int64)
        """the last delivery that is not kept, though it was not acknowledged"""
        self._limits: NDArray[np.int64] = np.full(64, limit)
        self.suspended: set[int] = set()
        self._policies: dict[int, FullPolicy] = {}
        self._awaited: set[int] = set()
        """those that publishers wait for when they are full"""
        self.names: dict[int, tuple[str, str]] = {}
        """tenant and subscriber by number"""
        self.settings: dict[int, str] = {}
        self._parsed: dict[int, dict[str, Any]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self.last_number = 0
        """the last that was given; a number is not given twice"""
        self._open_gaps: dict[int, Gap] = {}

    # -- inboxes ---------------------------------------------------------------------------------------

    def load(self, rows: Iterable[InboxRow]) -> None:
        """Add the inboxes of the log, or bring them to their present state."""
        for row in rows:
            if row.number not in self.names:
                self._insert(row.number, row.tenant, row.subscriber)
            self.last[row.number] = max(row.last, self.last[row.number])
            self.acknowledged[row.number] = row.acknowledged
            self.dropped[row.number] = row.dropped
            if self.settings[row.number] != row.settings:
                self.configure(row.number, row.settings)
            if row.suspended:
                self.suspended.add(row.number)
            else:
                self.suspended.discard(row.number)

    def find(self, tenant: str, subscriber: str) -> int | None:
        """Return the number of a subscriber's inbox, or None."""
        return self._numbers.get((tenant, subscriber))

    def create(self, tenant: str, subscriber: str) -> int:
        """Return the number of a new inbox."""
        number = self.last_number + 1
        self._insert(number, tenant, subscriber)
        return number

    def _insert(self, number: int, tenant: str, subscriber: str) -> None:
        if number >= len(self.last):
            grown = max(number + 1, 2 * len(self.last))
            for name in ("last", "acknowledged", "dropped", "_limits"):
                old = getattr(self, name)
                new = np.full(grown, self._default_limit if name == "_limits" else 0)
                new[: len(old)] = old
                setattr(self, name, new)
        self.names[number] = tenant, subscriber
        self._numbers[tenant, subscriber] = number
        self.configure(number, "{}")
        self.last_number = max(self.last_number, number)

    def configure(self, number: int, settings: str) -> None:
        """Set the settings of an inbox, a JSON object."""
        self.settings[number] = settings
        given = self._parsed[number] = json.loads(settings)
        self._limits[number] = given.get("limit") or self._default_limit
        policy = self._policies[number] = FullPolicy(given.get("policy") or self._default_policy)
        (self._awaited.add if policy is FullPolicy.WAIT else self._awaited.discard)(number)

    def get_settings(self, number: int) -> dict[str, Any]:
        """Return the settings of an inbox, to be changed."""
        found: dict[str, Any] = json.loads(self.settings[number])
        return found

    def get_setting(self, number: int, name: str) -> Any:
        """Return a setting of an inbox, or None."""
        return self._parsed[number].get(name)

    def delete(self, number: int) -> None:
        """Forget an inbox; its number is not given again."""
        del self._numbers[self.names.pop(number)]
        for known in (self.settings, self._parsed, self._policies, self._open_gaps):
            known.pop(number, None)
        self.suspended.discard(number)
        self._awaited.discard(number)

    def row(self, number: int) -> InboxRow:
        """Return an inbox as the log holds it."""
        tenant, subscriber = self.names[number]
        return InboxRow(
            number,
            tenant,
            subscriber,
            self.settings[number],
            int(self.last[number]),
            int(self.acknowledged[number]),
            int(self.dropped[number]),
            number in self.suspended,
        )

    def find_full(self) -> dict[str, str]:
        """Return the tenants whose publishers have to wait for a subscriber, with the reason."""
        return {
            self.names[n][0]: f"the subscriber {self.names[n][1]!r} has {self.backlog(n):,} deliveries to "
            "acknowledge, and publishers wait for it"
            for n in self._awaited
            if self.backlog(n) >= self._limits[n]
        }

    def floor(self, number: int) -> int:
        """Return the last delivery that is acknowledged or dropped."""
        return int(max(self.acknowledged[number], self.dropped[number]))

    def backlog(self, number: int) -> int:
        """Return how many deliveries a subscriber has not acknowledged."""
        return int(self.last[number]) - self.floor(number)

    # -- deliveries ------------------------------------------------------------------------------------

    def acknowledge(self, number: int, upto: int) -> bool:
        """Acknowledge deliveries up to a number; return whether any are acknowledged by that."""
        upto = min(upto, int(self.last[number]))
        if upto <= self.acknowledged[number]:
            return False
        self.acknowledged[number] = upto
        return True

    def admit(self, entries: Entries) -> tuple[Entries, list[Gap], set[int]]:
        """Number entries and drop what full inboxes do not take.

        Returns the entries that remain, the gaps that begin or grow, and the inboxes that were suspended, or
        whose oldest deliveries were dropped.
        """
        gaps: dict[int, Gap] = {}
        affected: set[int] = set()
        if self.suspended:
            entries = self._exclude(entries, sorted(self.suspended), gaps)
        touched, counts = _count(entries["inbox"], self.last_number)
        floor = np.maximum(self.acknowledged[touched], self.dropped[touched])
        backlog = self.last[touched] - floor + counts
        over = touched[backlog > self._limits[touched]].tolist()
        suspended = [inbox for inbox in over if self._policies[inbox] is FullPolicy.SUSPEND]
        for inbox in suspended:
            entries = self._suspend(inbox, entries, gaps)
        number_entries(entries, self.last)
        for inbox in over:
            if self._policies[inbox] is FullPolicy.DROP_OLDEST:
                self._drop_oldest(inbox, gaps)
                affected.add(inbox)
        # copies, because a gap may go on growing before this state of it is in the log
        return entries, [replace(gap) for gap in gaps.values()], affected.union(suspended)

    def _exclude(self, entries: Entries, inboxes: list[int], gaps: dict[int, Gap]) -> Entries:
        missed = np.isin(entries["inbox"], inboxes)
        if not missed.any():
            return entries
        found, counts = np.unique(entries["inbox"][missed], return_counts=True)
        for inbox, count in zip(found.tolist(), counts.tolist(), strict=True):
            gaps[inbox] = self._extend_gap(inbox, int(self.last[inbox]), count, "suspended")
        return entries[~missed]

    def _suspend(self, inbox: int, entries: Entries, gaps: dict[int, Gap]) -> Entries:
        """Suspend an inbox that takes only some of the entries."""
        self.suspended.add(inbox)
        room = max(0, int(self._limits[inbox]) - self.backlog(inbox))
        positions = np.flatnonzero(entries["inbox"] == inbox)
        kept = np.ones(len(entries), np.bool_)
        kept[positions[room:]] = False
        missed = len(positions) - min(room, len(positions))
        if missed:
            gaps[inbox] = self._extend_gap(inbox, int(self.last[inbox]) + room, missed, "suspended")
        return entries[kept]

    def _drop_oldest(self, inbox: int, gaps: dict[int, Gap]) -> None:
        before = self.floor(inbox)
        self.dropped[inbox] = self.last[inbox] - self._limits[inbox]
        gaps[inbox] = self._extend_gap(inbox, before, int(self.dropped[inbox]) - before, "full")

    def expire(self, inbox: int, upto: int) -> Gap | None:
        """Drop the deliveries up to a number, whose messages are not kept any longer."""
        before = self.floor(inbox)
        if upto <= before:
            return None
        self.dropped[inbox] = upto
        return replace(self._extend_gap(inbox, before, upto - before, "expired"))

    def load_gaps(self, gaps: Iterable[Gap]) -> None:
        """Go on with gaps of the log, at whose ends inboxes were suspended."""
        for gap in gaps:
            if gap.inbox in self.suspended and gap.after == self.last[gap.inbox]:
                self._open_gaps[gap.inbox] = gap

    def _extend_gap(self, inbox: int, after: int, count: int, reason: str) -> Gap:
        """Return the gap after a delivery, which goes on if nothing was delivered in between."""
        now = time.time()
        gap = self._open_gaps.get(inbox)
        end = after if reason == "suspended" else after - (gap.count if gap is not None else 0)
        if gap is None or gap.reason != reason or gap.after != end:
            gap = self._open_gaps[inbox] = Gap(inbox, after, 0, reason, now, now)
        gap.count += count
        gap.until = now
        return gap


def _count(inboxes: NDArray[np.int64], last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the inboxes that occur, and how often each does."""
    if last > 8 * len(inboxes):
        return np.unique(inboxes, return_counts=True)
    counts = np.bincount(inboxes, minlength=1)
    touched = np.flatnonzero(counts)
    return touched, counts[touched]
