"""`sapwood subscriptions import`: load a file into a store and report refused lines by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from sapwood import SapwoodError
from sapwood.cli.common.bounded_output import BoundedOutput
from sapwood.cli.common.console import make_progress, note, report
from sapwood.cli.common.query_warnings import QueryWarnings
from sapwood.cli.common.stored_filters import MOST_REPORTED
from sapwood.errors import ExistingIdError
from sapwood.input_files import LineError, NamedQuery, read_queries

if TYPE_CHECKING:
    from sapwood.store import NewSubscription, Subscription, SubscriptionStore

_WAITING = 1_000


class _Refusals:
    """Collects refused lines and reports the first of them in the order of the file.

    The queries of a chunk are checked after its lines have been read, so refusals are reported when the chunk
    is done.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, str, str]] = []
        self._output = BoundedOutput(MOST_REPORTED, report, lambda rest: note(f"{rest} lines were refused"))

    @property
    def count(self) -> int:
        return self._output.count + len(self._waiting)

    def add(self, line: int, place: str, reason: str) -> None:
        self._waiting.append((line, place, reason))
        if len(self._waiting) >= _WAITING:
            self.flush()

    def flush(self) -> None:
        for _, place, reason in sorted(self._waiting):
            self._output.add(place, reason)
        self._waiting.clear()

    def finish(self) -> None:
        self.flush()
        self._output.finish()


def _report_replacement(old: Subscription, new: Subscription) -> None:
    note(f"{new.id}: {_differences(old, new)}")


def _differences(old: Subscription, new: Subscription) -> str:
    parts = []
    if old.query != new.query:
        parts.append(f"{_cut(new.query)}, was {_cut(old.query)}")
    if old.subscriber != new.subscriber:
        parts.append(f"subscriber {new.subscriber or 'none'}, was {old.subscriber or 'none'}")
    if old.active != new.active:
        parts.append("active again" if new.active else "no longer active")
    if old.streams != new.streams:
        parts.append(f"streams {_name_streams(new)}, was {_name_streams(old)}")
    return "; ".join(parts) or f"in {new.language}, was in {old.language}"


def _name_streams(subscription: Subscription) -> str:
    return ", ".join(subscription.streams) or "all"


def _cut(query: str) -> str:
    line = " ".join(query.split())
    return line if len(line) <= 60 else line[:59] + "…"


def import_file(
    store: SubscriptionStore, file: str, replace: bool, subscriber: str | None, declared: dict[str, str]
) -> None:
    """Import all valid lines and report the others; exit with 1 if there were any."""
    refusals = _Refusals()
    replacements = BoundedOutput(
        MOST_REPORTED, _report_replacement, lambda rest: note(f"{rest} subscriptions were replaced")
    )
    query_warnings = QueryWarnings(store.namespaces, declared)
    queries: dict[int, NamedQuery] = {}  # rows not yet imported, by identity: the store has no lines
    processed = 0

    def unreadable(error: LineError) -> None:
        place = f"{error.path}:{error.line}" if error.path == file else error.path
        refusals.add(error.line, place, error.reason)

    def rows() -> Iterator[NewSubscription]:
        for query in read_queries(file, unreadable, allow_streams=True):
            row = _row(query, subscriber)
            queries[id(row)] = query
            yield row

    def refused(row: NewSubscription, error: SapwoodError) -> None:
        taken = isinstance(error, ExistingIdError)
        reason = f"{error}; --upsert replaces it" if taken else str(error)
        refusals.add(queries[id(row)].line, queries[id(row)].place, reason)

    def checked(row: NewSubscription, compiled: Any) -> None:
        query_warnings.check_compiled(queries[id(row)].place, compiled)

    def progressed(count: int) -> None:
        nonlocal processed
        processed = count
        queries.clear()
        refusals.flush()
        progress.update(task, completed=count)

    with make_progress(rate=True) as progress:
        task = progress.add_task("importing", total=None)
        try:
            done = store.import_many(
                rows(), replace, refused, progressed, on_replaced=replacements.add, on_checked=checked
            )
        except KeyboardInterrupt:
            refusals.finish()
            print(f"interrupted after {processed:,} subscriptions; version {store.version}")
            raise
        refusals.finish()
        replacements.finish()
        query_warnings.finish()
    parts = {"added": done.added, "replaced": done.replaced, "unchanged": done.unchanged}
    summary = ", ".join(f"{name} {count:,}" for name, count in parts.items() if count or name == "added")
    print(f"{summary}, refused {refusals.count:,}; version {done.version}")
    if refusals.count:
        raise typer.Exit(1)


def _row(query: NamedQuery, subscriber: str | None) -> NewSubscription:
    from sapwood.store import NewSubscription  # here, because other commands need no database

    whose = subscriber if query.subscriber is None else query.subscriber
    return NewSubscription(str(query.id), query.text, whose, query.language, query.active, query.streams)
