"""The public class of the relational engine: subscriptions in tables, messages matched in batches."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from sapwood.engine.bulk_load import OnError
from sapwood.engine.closeable import Closeable
from sapwood.engine.failures import Failure, FailureKind
from sapwood.engine.limits import Limits
from sapwood.engine.matcher import Source
from sapwood.engine.message.message_reader import Message
from sapwood.errors import ArgumentError, MessageError, TablesError
from sapwood.lang.literals.memory_sizes import DEFAULT_MEMORY
from sapwood.lang.namespaces import Namespaces
from sapwood.relational.executor import (
    BatchTooLarge,
    MatchedIds,
    check_residuals,
    iter_matches,
    match_rules,
)
from sapwood.relational.residual import ResidualEvaluator
from sapwood.relational.shredder import Shredder
from sapwood.relational.sql.cost_model import Choice
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import Connection, DuckDBDatabase
from sapwood.relational.storage.vacuum import Garbage, vacuum
from sapwood.relational.subscription_catalog import SubscriptionCatalog

_log = logging.getLogger(__name__)

CHUNK = 50_000
"""subscriptions added in one transaction"""
BATCH = 1_000
"""messages matched at a time"""
_MAX_BATCH_BYTES = 64 * 1024 * 1024
"""the maximal number of bytes in a batch"""


class RelationalMatcher(Closeable):
    """Matches messages against subscriptions in a DuckDB file, which need not fit in memory.

    A file is used by one process at a time. In it, threads may change subscriptions while others match: a
    batch is matched with the subscriptions as they are when it begins. Every change is a transaction: after a
    crash it is there in full or not at all.
    """

    def __init__(
        self,
        tables: str | Path | None = None,
        namespaces: Namespaces | None = None,
        limits: Limits | None = None,
        *,
        plan: Plan | str | None = None,
        memory: str = DEFAULT_MEMORY,
        threads: int | None = None,
    ) -> None:
        """Open a file of tables, and create it if it is absent; None keeps the tables in memory.

        `memory` is DuckDB's memory limit. With a plan of None, the file's plan is used; an empty file gets
        the one with the lowest estimated cost for the first subscriptions. Another plan than the file's
        rebuilds the access structures.
        """
        required = Plan(plan) if plan is not None else None
        self.limits = limits or Limits()
        self.database = DuckDBDatabase(tables, memory, threads)
        try:
            self.catalog = SubscriptionCatalog(self.database)
            self.catalog.declare(namespaces or {})
            if required is not None:
                self.catalog.use_plan(required)
        except BaseException:
            self.database.close()
            raise
        self._shredder = Shredder(self.catalog.tag_paths, self.limits)
        self._evaluator = ResidualEvaluator(self.limits)
        self._max_messages = 1_000_000  # matched at once; adapted to the memory that batches need
        self._failure_counts: dict[Hashable, Counter[FailureKind]] = {}

    # -- subscriptions ---------------------------------------------------------------------------------

    @property
    def namespaces(self) -> Mapping[str, str]:
        """The prefixes that queries may use."""
        return self.catalog.namespaces

    def declare(self, namespaces: Namespaces) -> None:
        """Declare further prefixes for new queries; ValueError if one is bound already."""
        self.catalog.declare(namespaces)

    def add(self, id: str, query: str) -> None:
        """Subscribe `id` to a query. QueryError says where and why a query is not XPath 1.0."""
        self._check_ownership()
        self.catalog.apply_changes(put=[(id, query)], replace=False)

    def add_many(
        self, pairs: Iterable[tuple[str, str]], on_error: OnError | None = None, chunk: int = CHUNK
    ) -> None:
        """Subscribe many, in order, with one transaction for each chunk.

        `on_error` is called for each subscription that is refused, and the others are added. Without it, the
        error is raised with a note that names the subscription, and nothing of its chunk is added.
        """
        if chunk < 1:
            raise ArgumentError(f"a chunk has one subscription at least, not {chunk!r}")
        self._check_ownership()
        remaining = iter(pairs)
        while pending := list(islice(remaining, chunk)):
            self.catalog.apply_changes(put=pending, on_error=on_error, replace=False)

    def replace(self, id: str, query: str) -> None:
        """Replace the query of a subscription, which keeps its number; KeyError if there is none."""
        with self.database.lock:
            self._check_ownership()
            self._check_subscribed([id])
            self.catalog.apply_changes(put=[(id, query)])

    def remove(self, *ids: str) -> None:
        """Remove subscriptions, all of them or, if one is missing, none; KeyError names it."""
        with self.database.lock:
            self._check_ownership()
            self._check_subscribed(ids)
            self.catalog.apply_changes(removed=ids)

    def _check_ownership(self) -> None:
        owner = self.database.meta("store")
        if owner is not None:
            raise TablesError(
                f"{self.database.path} is synchronized with {owner}: change its subscriptions there"
            )

    def _check_subscribed(self, ids: Sequence[str]) -> None:
        found = self.catalog.numbers(ids)
        for id in ids:
            if id not in found:
                raise KeyError(id)

    def query(self, id: str) -> str:
        """Return the query of a subscription, or an equivalent one; KeyError if there is none."""
        self._check_subscribed([id])
        sql = "SELECT q.text FROM subscription s JOIN query q ON q.id = s.query WHERE s.id = ?"
        text: str | None = self.database.connect().value(sql, [id])
        if text is None:  # removed since the check
            raise KeyError(id)
        return text

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and bool(self.catalog.numbers([id]))

    def __len__(self) -> int:
        return int(self.database.connect().value("SELECT count(*) FROM subscription"))

    # -- messages --------------------------------------------------------------------------------------

    def match(self, message: Source) -> MatchedIds:
        """Return the subscriptions that a message matches; MessageError says where and why it is refused."""
        return next(self.match_many([message]))

    def match_many(self, messages: Iterable[Source], batch: int = BATCH) -> Iterator[MatchedIds]:
        """Yield the matches of each message; the first one that is refused raises a MessageError."""
        for result in self.match_each(messages, batch):
            if isinstance(result, MessageError):
                raise result
            yield result

    def match_each(
        self, messages: Iterable[Source], batch: int = BATCH
    ) -> Iterator[MatchedIds | MessageError]:
        """Yield the matches of each message, or the error with which it is refused, batch by batch."""
        if batch < 1:
            raise ArgumentError(f"a batch has one message at least, not {batch!r}")
        pending: list[Message] = []
        size = 0
        for source in messages:
            try:
                message = Message(source)
            except MessageError as error:  # unreadable source; the messages before it come first
                if pending:
                    yield from self._match_batch(pending)
                    pending, size = [], 0
                yield error
                continue
            pending.append(message)
            size += len(message.data)
            if len(pending) >= batch or size >= _MAX_BATCH_BYTES:
                yield from self._match_batch(pending)
                pending, size = [], 0
        if pending:
            yield from self._match_batch(pending)

    def _match_batch(self, messages: Sequence[Message]) -> Iterator[MatchedIds | MessageError]:
        """Yield the results of a batch, matching fewer messages at once where memory runs out."""
        connection = self.database.connect()
        try:
            with self.database.lock:  # values are shredded for the tables that the transaction sees
                batch = self._shredder.shred(messages)
                connection.run("BEGIN TRANSACTION")
                connection.run("SELECT 1 FROM meta LIMIT 1")  # DuckDB takes its snapshot at the first read
                parameters = self.catalog.plan_parameters(connection)
                namespaces = dict(self.namespaces)
            done = 0
            while done < len(messages):
                numbers = range(done, min(done + self._max_messages, len(messages)))
                try:
                    match_rules(connection, batch, parameters, self.locate_branching_nodes, numbers)
                    failures = check_residuals(connection, messages, self._evaluator, namespaces)
                    for matches in iter_matches(connection, numbers):
                        if done in failures:
                            matches.undecided = tuple(failures[done])
                            self._count_failures(matches.undecided)
                        yield batch.rejected.get(done, matches)
                        done += 1
                except BatchTooLarge:
                    self._reduce_batch_size(numbers)
                    continue
                except duckdb.OutOfMemoryException:
                    if len(numbers) == 1:
                        raise
                    self._reduce_batch_size(numbers)
                    break
                self._max_messages += self._max_messages // 8 + 1  # later messages may need less memory
        finally:
            connection.close()
        if done < len(messages):  # the transaction was lost, so the rest may see newer subscriptions
            yield from self._match_batch(messages[done:])

    def _reduce_batch_size(self, numbers: range) -> None:
        self._max_messages = max(1, len(numbers) // 2)
        _log.debug("%d messages need too much memory: matching %d at once", len(numbers), self._max_messages)

    def _count_failures(self, failures: Iterable[Failure]) -> None:
        for failure in failures:
            self._failure_counts.setdefault(failure.subscription, Counter())[failure.kind] += 1

    def failure_counts(self) -> dict[Hashable, dict[FailureKind, int]]:
        """Return, by subscription and kind of failure, the messages since opening that it failed on."""
        return {id: dict(counts) for id, counts in self._failure_counts.items()}

    def locate_branching_nodes(self, missing: list[tuple[Any, ...]]) -> pa.Table:
        """Compute positions of branching points that `tag_branching` lacks, and store them there."""
        positions = self.catalog.tag_paths.locate_branching_nodes(missing)
        if len(positions):
            writing = self.database.write_transaction()
            with writing as connection, connection.register(new_positions=positions):
                connection.run(  # a concurrent batch may have stored them already
                    """
                    INSERT INTO tag_branching BY NAME
                    SELECT * FROM new_positions ANTI JOIN tag_branching USING (tag, branching)"""
                )
        return positions

    # -- maintenance -----------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """The plan in use; None as long as there are no subscriptions."""
        return self.catalog.plan

    def explain(self) -> Choice:
        """Return the estimated cost of each plan for the subscriptions, and the plan in use."""
        return self.catalog.explain()

    def collect_garbage(self, plan: Plan | str | None = None) -> Garbage:
        """Vacuum: delete paths, tag paths and constants that no subscription uses, and compact the file.

        Changes to the plan given, or to the one with the lowest estimated cost.
        """
        with self.database.lock:
            self.catalog.use_plan(Plan(plan) if plan is not None else self.explain().best)
            try:
                return vacuum(self.database)
            finally:
                self.catalog.update_structure_size()

    @property
    def connection(self) -> Connection:
        """A new connection to the tables, for queries of one's own."""
        return self.database.connect()

    def close(self) -> None:
        """Close the file."""
        self._evaluator.close()
        self.database.close()
