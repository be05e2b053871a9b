"""The public face of the relational engine: subscriptions in tables, batches of messages against them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa

from sapwood.engine.bulk_load import OnError
from sapwood.engine.failures import Failure, FailureKind
from sapwood.engine.limits import Limits
from sapwood.engine.matcher import Source
from sapwood.engine.message.message_reader import Message
from sapwood.errors import MessageError, TablesError
from sapwood.lang.namespaces import Namespaces
from sapwood.relational.executor import BatchTooLarge, MatchedIds, answers, decide, match_rules
from sapwood.relational.residual import ResidualEvaluator
from sapwood.relational.shredder import Shredder
from sapwood.relational.sql.cost_model import Choice
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import MEMORY, Connection, Tables
from sapwood.relational.storage.vacuum import Garbage, collect
from sapwood.relational.subscription_catalog import SubscriptionCatalog

CHUNK = 50_000
"""subscriptions added in one transaction"""
BATCH = 1_000
"""messages matched at a time"""
_BATCH_BYTES = 64 * 1024 * 1024
"""or less, if they have more bytes than this"""


class RelationalMatcher:
    """Matches messages against subscriptions that are kept in tables, in a file that need not fit in memory.

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
        memory: str = MEMORY,
        threads: int | None = None,
    ) -> None:
        """Opens a file of tables, which is made if it is absent; None keeps them in memory.

        `memory` is what DuckDB may use. A plan of None is the one that the file has, or the one that seems
        best when the first subscriptions come; another than it has makes part of the file anew.
        """
        wanted = Plan(plan) if plan is not None else None
        self.limits = limits or Limits()
        self.tables = Tables(tables, memory, threads)
        try:
            self.population = SubscriptionCatalog(self.tables)
            self.population.declare(namespaces or {})
            if wanted is not None:
                self.population.use(wanted)
        except BaseException:
            self.tables.close()
            raise
        self._reader = Shredder(self.population.tags, self.limits)
        self._decider = ResidualEvaluator(self.limits)
        self._at_once = 1_000_000  # messages; fewer, once they were too many
        self._failed: dict[Hashable, Counter[FailureKind]] = {}

    # -- subscriptions ---------------------------------------------------------------------------------

    @property
    def namespaces(self) -> Mapping[str, str]:
        """The prefixes that queries may use."""
        return self.population.namespaces

    def declare(self, namespaces: Namespaces) -> None:
        """Declares further prefixes for queries to come; ValueError for one that is bound already."""
        self.population.declare(namespaces)

    def add(self, id: str, query: str) -> None:
        """Subscribes `id` to a query. QueryError says where and why a query is not XPath 1.0."""
        self._check_ownership()
        self.population.change(put=[(id, query)], replace=False)

    def add_many(
        self, pairs: Iterable[tuple[str, str]], on_error: OnError | None = None, chunk: int = CHUNK
    ) -> None:
        """Subscribes many, in order, a transaction for each chunk.

        What cannot be subscribed is told to `on_error`, and the rest go in; without it, the error is raised
        with a note that names the subscription, and nothing of its chunk goes in.
        """
        if chunk < 1:
            raise ValueError(f"a chunk has one subscription at least, not {chunk!r}")
        self._check_ownership()
        rest = iter(pairs)
        while some := list(islice(rest, chunk)):
            self.population.change(put=some, on_error=on_error, replace=False)

    def replace(self, id: str, query: str) -> None:
        """Changes the query of a subscription, which keeps its place; KeyError if there is none."""
        with self.tables.lock:
            self._check_ownership()
            self._there([id])
            self.population.change(put=[(id, query)])

    def remove(self, *ids: str) -> None:
        """Ends subscriptions, all of them or, if one is not there, none; KeyError names it."""
        with self.tables.lock:
            self._check_ownership()
            self._there(ids)
            self.population.change(removed=ids)

    def _check_ownership(self) -> None:
        owner = self.tables.meta("store")
        if owner is not None:
            raise TablesError(
                f"{self.tables.path} has the subscriptions of {owner}, and follows it: change them there"
            )

    def _there(self, ids: Sequence[str]) -> None:
        found = self.population.numbers(ids)
        for id in ids:
            if id not in found:
                raise KeyError(id)

    def query(self, id: str) -> str:
        """The query that `id` is subscribed to, or one that means the same; KeyError if there is none."""
        self._there([id])
        sql = "SELECT q.text FROM subscription s JOIN query q ON q.id = s.query WHERE s.id = ?"
        text: str | None = self.tables.connect().value(sql, [id])
        if text is None:  # gone meanwhile
            raise KeyError(id)
        return text

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and bool(self.population.numbers([id]))

    def __len__(self) -> int:
        return int(self.tables.connect().value("SELECT count(*) FROM subscription"))

    # -- messages --------------------------------------------------------------------------------------

    def match(self, message: Source) -> MatchedIds:
        """The subscriptions that a message matches; MessageError says where and why it is refused."""
        return next(self.match_many([message]))

    def match_many(self, messages: Iterable[Source], batch: int = BATCH) -> Iterator[MatchedIds]:
        """The matches of each message in turn; the first that is refused ends it with a MessageError."""
        for answer in self.match_each(messages, batch):
            if isinstance(answer, MessageError):
                raise answer
            yield answer

    def match_each(
        self, messages: Iterable[Source], batch: int = BATCH
    ) -> Iterator[MatchedIds | MessageError]:
        """The matches of each message in turn, or why it is refused; a batch of them is matched at once."""
        if batch < 1:
            raise ValueError(f"a batch has one message at least, not {batch!r}")
        some: list[Message] = []
        size = 0
        for source in messages:
            try:
                message = Message(source)
            except MessageError as error:  # it cannot be had; those before it come first
                if some:
                    yield from self._batch(some)
                    some, size = [], 0
                yield error
                continue
            some.append(message)
            size += len(message.data)
            if len(some) >= batch or size >= _BATCH_BYTES:
                yield from self._batch(some)
                some, size = [], 0
        if some:
            yield from self._batch(some)

    def _batch(self, messages: Sequence[Message]) -> Iterator[MatchedIds | MessageError]:
        """The answers to a batch; in two batches if one needs too much memory."""
        connection = self.tables.connect()
        try:
            with self.tables.lock:  # nothing may change between what is asked for and what is told
                said = self._reader.read(messages)
                connection.run("BEGIN TRANSACTION")
                connection.run("SELECT 1 FROM meta LIMIT 1")  # from now on it sees the tables as they are
                found = self.population.extents(connection)
                namespaces = dict(self.namespaces)
            done = 0
            while done < len(messages):
                some = range(done, min(done + self._at_once, len(messages)))
                try:
                    match_rules(connection, said, found, self.place_points, some)
                    failures = decide(connection, messages, self._decider, namespaces)
                    for answer in answers(connection, some):
                        if done in failures:
                            answer.undecided = tuple(failures[done])
                            self._count(answer.undecided)
                        yield said.refused.get(done, answer)
                        done += 1
                except BatchTooLarge:
                    self._at_once = max(1, len(some) // 2)
                    continue
                except duckdb.OutOfMemoryException:
                    if len(some) == 1:
                        raise
                    self._at_once = max(1, len(some) // 2)
                    break
                self._at_once += self._at_once // 8 + 1  # the next ones may be smaller
        finally:
            connection.close()
        if done < len(messages):  # a transaction does not survive that: the rest may see newer subscriptions
            yield from self._batch(messages[done:])

    def _count(self, failures: Iterable[Failure]) -> None:
        for failure in failures:
            self._failed.setdefault(failure.subscription, Counter())[failure.kind] += 1

    def failure_counts(self) -> dict[Hashable, dict[FailureKind, int]]:
        """On how many messages each subscription had no answer, by kind, since the tables were opened; those
        that always had one are not there."""
        return {id: dict(counts) for id, counts in self._failed.items()}

    def place_points(self, missing: list[tuple[Any, ...]]) -> pa.Table:
        """Where branching points lie that nobody has placed yet, put on record for batches to come."""
        found = self.population.tags.place_points(missing)
        if len(found):
            with self.tables.changing() as connection, connection.given(new_places=found):
                connection.run(  # another batch may have been faster
                    """
                    INSERT INTO tag_branching BY NAME
                    SELECT * FROM new_places ANTI JOIN tag_branching USING (tag, branching)"""
                )
        return found

    # -- upkeep ----------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """The plan in use; None as long as there are no subscriptions."""
        return self.population.plan

    def explain(self) -> Choice:
        """What each plan would cost, by what is known of the subscriptions, and which is in use."""
        return self.population.explain()

    def collect_garbage(self, plan: Plan | str | None = None) -> Garbage:
        """Drops paths, tag paths and constants that no subscription uses any more, and puts the tables in
        order; changes to the plan given, or to the one that seems best by now."""
        with self.tables.lock:
            self.population.use(Plan(plan) if plan is not None else self.explain().best)
            try:
                return collect(self.tables)
            finally:
                self.population.shrink()

    @property
    def connection(self) -> Connection:
        """A connection of one's own, to look at the tables."""
        return self.tables.connect()

    def close(self) -> None:
        """Lets the file go."""
        self._decider.close()
        self.tables.close()

    def __enter__(self) -> RelationalMatcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
