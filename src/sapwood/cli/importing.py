"""`sapwood subscriptions import`: a file goes into a store, and what does not is told with its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from sapwood import SapwoodError
from sapwood.cli.console import counting, note, report
from sapwood.files import LineError, NamedQuery, read_queries

if TYPE_CHECKING:
    from sapwood.store import NewSubscription, SubscriptionStore

_REPORTED = 50
"""refused lines that are told one by one"""
_WAITING = 1_000


class _Refusals:
    """Lines that were refused, told in the order of the file as long as there are not too many.

    A chunk's queries are checked after its lines have been read, so refusals wait until the chunk is done.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._waiting: list[tuple[int, str]] = []
        self._told = 0
        self.count = 0

    def add(self, line: int, reason: str) -> None:
        self.count += 1
        if self._told < _REPORTED:
            self._waiting.append((line, reason))
            if len(self._waiting) >= _WAITING:
                self.tell()

    def tell(self) -> None:
        for line, reason in sorted(self._waiting)[: _REPORTED - self._told]:
            report(f"{self._file}:{line}", reason)
            self._told += 1
        self._waiting.clear()

    def finish(self) -> None:
        self.tell()
        if self.count > self._told:
            note(f"and {self.count - self._told:,} more lines were refused")


def import_file(store: SubscriptionStore, file: str, replace: bool, subscriber: str | None) -> None:
    """Imports what can be imported and tells the rest; ends the command with 1 if there was any."""
    refusals = _Refusals(file)
    lines: dict[int, int] = {}  # rows that are not in yet, by identity, since the store knows no lines
    dealt_with = 0

    def unreadable(error: LineError) -> None:
        refusals.add(error.line, error.reason)

    def rows() -> Iterator[NewSubscription]:
        for query in read_queries(file, unreadable):
            row = _row(query, subscriber)
            lines[id(row)] = query.line
            yield row

    def refused(row: NewSubscription, error: SapwoodError) -> None:
        refusals.add(lines[id(row)], str(error))

    def progressed(count: int) -> None:
        nonlocal dealt_with
        dealt_with = count
        lines.clear()
        refusals.tell()
        progress.update(task, completed=count)

    with counting(rate=True) as progress:
        task = progress.add_task("importing", total=None)
        try:
            done = store.import_many(rows(), replace, refused, progressed)
        except KeyboardInterrupt:
            refusals.finish()
            print(f"interrupted after {dealt_with:,} subscriptions; version {store.version}")
            raise
        refusals.finish()
    parts = {"added": done.added, "replaced": done.replaced, "unchanged": done.unchanged}
    told = ", ".join(f"{name} {count:,}" for name, count in parts.items() if count or name == "added")
    print(f"{told}, refused {refusals.count:,}; version {done.version}")
    if refusals.count:
        raise typer.Exit(1)


def _row(query: NamedQuery, subscriber: str | None) -> NewSubscription:
    from sapwood.store import NewSubscription  # here, because other commands need no database

    whose = subscriber if query.subscriber is None else query.subscriber
    return NewSubscription(str(query.id), query.text, whose, query.language, query.active)
