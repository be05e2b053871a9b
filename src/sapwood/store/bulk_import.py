"""Bulk import of subscriptions in chunks, each one transaction and one version."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

from sapwood.errors import ExistingIdError, SapwoodError, StoreError
from sapwood.lang.languages import XSCL, QueryChecker, detect_language
from sapwood.store import history
from sapwood.store.database import Database
from sapwood.store.history import StoreChange, begin_change
from sapwood.store.subscription import ImportReport, NewSubscription, Subscription
from sapwood.store.text_checks import check_id, check_streams, check_text

_log = logging.getLogger(__name__)

OnError = Callable[[NewSubscription, SapwoodError], None]
OnProgress = Callable[[int], None]
OnReplaced = Callable[[Subscription, Subscription], None]
OnChecked = Callable[[NewSubscription, object], None]


@dataclass(slots=True)
class _Outcome:
    """The outcome of a chunk before it is committed."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    updated: list[tuple[Subscription, Subscription]] = field(default_factory=list)
    """subscriptions before and after the change"""
    refused: list[tuple[int, SapwoodError]] = field(default_factory=list)
    """rows by their index in the chunk, with the error"""


class BulkImport:
    """An import in progress."""

    def __init__(
        self,
        database: Database,
        tenant: str,
        replace: bool,
        on_error: OnError | None,
        on_replaced: OnReplaced | None = None,
        on_checked: OnChecked | None = None,
    ) -> None:
        self._database = database
        self._tenant = tenant
        self._replace = replace
        self._on_error = on_error
        self._on_replaced = on_replaced
        self._on_checked = on_checked
        with database.reading() as connection:
            namespaces = history.read_namespaces(connection, tenant)
            self._queries = QueryChecker(namespaces, compile_all=on_checked is not None)
            self._version = history.read_state(connection).version
        self._added = self._replaced = self._unchanged = self._refused = 0

    def run(
        self, rows: Iterable[NewSubscription], chunk: int, on_progress: OnProgress | None
    ) -> ImportReport:
        """Import all rows; `on_progress` gets the number of processed rows after each chunk."""
        rest = iter(rows)
        done = 0
        while some := list(islice(rest, chunk)):
            self._import(some)
            done += len(some)
            if on_progress is not None:
                on_progress(done)
        return ImportReport(self._added, self._replaced, self._refused, self._version, self._unchanged)

    def _import(self, rows: list[NewSubscription]) -> None:
        outcome = _Outcome()
        # Checking takes longest, so it is done before the transaction blocks other writers.
        good = [i for i, row in enumerate(rows) if self._is_good(i, row, outcome)]
        with begin_change(self._database, self._tenant) as change:
            self._enter(change, rows, good, outcome)
        self._version = change.version
        _log.info(
            "imported a chunk of %d rows as version %d: %d added, %d replaced, %d unchanged, %d refused",
            len(rows),
            self._version,
            outcome.added,
            outcome.replaced,
            outcome.unchanged,
            len(outcome.refused),
        )
        self._added += outcome.added
        self._replaced += outcome.replaced
        self._unchanged += outcome.unchanged
        self._refused += len(outcome.refused)
        if self._on_replaced is not None:
            for old, new in outcome.updated:
                self._on_replaced(old, new)
        if self._on_error is not None:
            for i, error in sorted(outcome.refused, key=lambda refusal: refusal[0]):
                self._on_error(rows[i], error)

    def _is_good(self, i: int, row: NewSubscription, outcome: _Outcome) -> bool:
        try:
            check_row(row)
            compiled = self._queries.check(row.query, row.language)
        except SapwoodError as error:
            self._refuse(i, row, error, outcome)
            return False
        if compiled is not None and self._on_checked is not None:
            self._on_checked(row, compiled)
        return True

    def _refuse(self, i: int, row: NewSubscription, error: SapwoodError, outcome: _Outcome) -> None:
        if self._on_error is None:
            error.add_note(f"in the subscription {row.id!r}")
            raise error
        outcome.refused.append((i, error))

    def _enter(
        self, change: StoreChange, rows: list[NewSubscription], good: list[int], outcome: _Outcome
    ) -> None:
        found = history.find_current(change.connection, self._tenant, {rows[i].id for i in good})
        now: dict[str, Subscription] = {}
        for i in good:
            row = rows[i]
            old = now.get(row.id) or found.get(row.id)
            try:
                new = self._become(change, row, old)
            except StoreError as error:
                self._refuse(i, row, error, outcome)
                continue
            if old is None:
                outcome.added += 1
            elif new.same(old):
                outcome.unchanged += 1
                continue
            else:
                outcome.replaced += 1
            now[row.id] = new
        changed = [new for id, new in now.items() if id not in found or not new.same(found[id])]
        outcome.updated = [(found[new.id], new) for new in changed if new.id in found]
        change.end(old for old, _ in outcome.updated)
        change.put(changed)

    def _become(self, change: StoreChange, row: NewSubscription, old: Subscription | None) -> Subscription:
        if old is None:
            return new_subscription(row, change)
        if not self._replace:
            raise ExistingIdError(row.id)
        return updated_subscription(old, row, change)


def check_row(row: NewSubscription) -> None:
    """Raise StoreError for a row that no database could store; the query's syntax is not checked."""
    check_id(row.id)
    check_text(row.query, "a query")
    if row.subscriber is not None:
        check_text(row.subscriber, "a subscriber")
    if row.active is not None and not isinstance(row.active, bool):
        raise StoreError(f"'active' is True or False, not {row.active!r}")
    if row.streams is not None:
        check_streams(row.streams)


def new_subscription(row: NewSubscription, change: StoreChange) -> Subscription:
    """Create a subscription that begins with this change; StoreError if it is a restricted join."""
    language = detect_language(row.query, row.language)
    _check_restriction(row, language, row.streams)
    return Subscription(
        row.id,
        row.query,
        row.subscriber or "",
        language,
        row.active is not False,
        change.new_place(),
        change.next_version,
        row.streams or (),
    )


def updated_subscription(old: Subscription, row: NewSubscription, change: StoreChange) -> Subscription:
    """Update a subscription from this change on; fields that are None in the row stay. StoreError if it would
    become a restricted join."""
    language = detect_language(row.query, row.language)
    streams = old.streams if row.streams is None else row.streams
    _check_restriction(row, language, streams)
    return replace(
        old,
        query=row.query,
        subscriber=old.subscriber if row.subscriber is None else row.subscriber,
        language=language,
        active=old.active if row.active is None else row.active,
        since=change.next_version,
        streams=streams,
    )


def _check_restriction(row: NewSubscription, language: str, streams: tuple[str, ...] | None) -> None:
    """Raise StoreError for a join that is restricted to streams, by its row or by what the row replaces."""
    if language != XSCL or not streams:
        return
    names = ", ".join(map(repr, streams))
    reason = f"the join {row.id!r} cannot be restricted to streams ({names}): a join names its streams itself"
    if row.streams is None:
        reason += "; the query that it replaces is restricted, which empty streams lift"
    raise StoreError(reason)
