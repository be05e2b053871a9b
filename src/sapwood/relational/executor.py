"""Runs the statements of a plan in DuckDB: a shredded batch in, the matching subscriptions out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sapwood.engine.failures import Failure, QueryProblem
from sapwood.engine.message.message_reader import Message
from sapwood.relational.residual import ResidualEvaluator
from sapwood.relational.sql.dialect import DuckDBDialect
from sapwood.relational.sql.match_plan import HIT, TRUE_FACT, PlanParameters, plan_steps
from sapwood.relational.storage.duckdb_database import Connection

_MAX_TRUE_FACTS = 2_000_000
"""facts of messages that are joined with rules at once: their hash tables have to fit into memory"""
_MAX_RESIDUAL_PAIRS = 500_000
"""pairs of message and query that are left to the residual check at once"""
_ROWS_PER_FETCH = 100_000

BranchingLocator = Callable[[list[tuple[object, ...]]], pa.Table]
"""Computes and stores the positions of branching points: see `TagPathCatalog.locate_branching_nodes`."""

MISSING_BRANCHING_NODES = """
    SELECT DISTINCT h.tag, h.branching, t.text, p.text, b.points
    FROM (SELECT DISTINCT tag, branching FROM hit) h
         ANTI JOIN tag_branching k ON k.tag = h.tag AND k.branching = h.branching
         JOIN tag_path t ON t.id = h.tag
         JOIN path_branching b ON b.id = h.branching
         JOIN linear_path p ON p.id = b.path"""
"""the branching points of `hit` whose positions are not in `tag_branching` yet"""
BRANCHING_NODES = """
    SELECT k.* FROM tag_branching k SEMI JOIN hit h ON h.tag = k.tag AND h.branching = k.branching
    UNION ALL SELECT * FROM new_positions"""
"""the positions of all of them, the newly computed ones included"""
RESIDUAL_QUERIES = """
    SELECT m.msg, m.query, q.text FROM query q JOIN matched m ON m.query = q.id
    WHERE NOT (q.exact AND m.certain)"""
"""candidates that need a residual check: their rules are weaker than the query, or were not decided"""


class ShreddedRows(Protocol):
    """The value and message rows of a shredded batch."""

    @property
    def values(self) -> pa.Table: ...
    @property
    def messages(self) -> pa.Table: ...


class BatchTooLarge(Exception):
    """Raised when more than one message has more intermediate rows than may be joined at once."""


def match_rules(
    connection: Connection,
    batch: ShreddedRows,
    parameters: PlanParameters,
    locate_branching_nodes: BranchingLocator,
    numbers: range,
) -> None:
    """Create the temporary table `matched` for the messages of a batch with these numbers.

    BatchTooLarge if fewer messages must be matched at once.
    """
    chosen = f"WHERE msg BETWEEN {numbers.start} AND {numbers.stop - 1}"
    with connection.register(batch_values=batch.values, batch_messages=batch.messages):
        connection.create_temp_table("value", f"SELECT * FROM batch_values {chosen}")
        connection.create_temp_table("message", f"SELECT * FROM batch_messages {chosen}")
    for step in plan_steps(parameters, DuckDBDialect()):
        connection.create_temp_table(step.name, step.sql)
        if step.name == TRUE_FACT and len(numbers) > 1:
            if connection.value(f"SELECT count(*) FROM {TRUE_FACT}") > _MAX_TRUE_FACTS:
                raise BatchTooLarge
        elif step is HIT:
            new = locate_branching_nodes(connection.rows(MISSING_BRANCHING_NODES))
            with connection.register(new_positions=new):
                connection.create_temp_table("branching_position", BRANCHING_NODES)
    if len(numbers) > 1:
        residual = connection.value(f"SELECT count(*) FROM ({RESIDUAL_QUERIES}) u")
        if residual > _MAX_RESIDUAL_PAIRS:
            raise BatchTooLarge


def check_residuals(
    connection: Connection,
    messages: Sequence[Message],
    evaluator: ResidualEvaluator,
    namespaces: Mapping[str, str],
) -> dict[int, list[Failure]]:
    """Delete from `matched` the candidates whose residual check fails.

    Return, by message number, the subscriptions whose queries could not be evaluated.
    """
    problems: list[tuple[int, int, QueryProblem]] = []
    rejected: list[tuple[int, int]] = []
    rows = connection.rows(f"{RESIDUAL_QUERIES} ORDER BY 1")
    for number, group in groupby(rows, itemgetter(0)):
        candidates = list(group)
        results = evaluator.evaluate(messages[number], [text for _, _, text in candidates], namespaces)
        for (_, query, _), result in zip(candidates, results, strict=True):
            if isinstance(result, QueryProblem):
                problems.append((number, query, result))
            if result is not True:
                rejected.append((number, query))
    if rejected:
        table = pa.table({"msg": [msg for msg, _ in rejected], "query": [query for _, query in rejected]})
        with connection.register(rejected=table):
            connection.create_temp_table(
                "matched",
                "SELECT m.* FROM matched m ANTI JOIN rejected r ON r.msg = m.msg AND r.query = m.query",
            )
    return _failures_by_message(connection, problems)


_FAILED_SUBSCRIPTIONS = """
    SELECT s.query, s.id FROM subscription s SEMI JOIN failed f ON f.query = s.query ORDER BY s.number"""


def _failures_by_message(
    connection: Connection, problems: list[tuple[int, int, QueryProblem]]
) -> dict[int, list[Failure]]:
    """Translate problems of queries into failures of their subscriptions."""
    failures: dict[int, list[Failure]] = {}
    if not problems:
        return failures
    subscribed: dict[int, list[str]] = {}
    with connection.register(failed=pa.table({"query": [*{query for _, query, _ in problems}]})):
        for query, id in connection.rows(_FAILED_SUBSCRIPTIONS):
            subscribed.setdefault(query, []).append(id)
    for number, query, problem in problems:
        failed = [Failure(id, problem.kind, problem.reason) for id in subscribed[query]]
        failures.setdefault(number, []).extend(failed)
    return failures


class MatchedIds:
    """The ids of the subscriptions that a message matches, in the order in which they were added."""

    __slots__ = ("_ids", "numbers", "undecided")

    def __init__(self, numbers: NDArray[np.int64], ids: pa.ChunkedArray) -> None:
        self.numbers = numbers
        """the subscriptions' numbers, ascending"""
        self._ids = ids
        self.undecided: tuple[Failure, ...] = ()
        """the subscriptions whose queries could not be evaluated on the message, and why"""

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids.to_pylist())

    def __contains__(self, id: object) -> bool:
        try:
            return isinstance(id, str) and self._ids.index(pa.scalar(id, self._ids.type)).as_py() >= 0
        except UnicodeEncodeError:  # half of a surrogate pair, which no id has
            return False

    def __repr__(self) -> str:
        return f"<MatchedIds: {len(self)} subscriptions>"


_MATCHED_SUBSCRIPTIONS = """
    SELECT m.msg, s.number, s.id FROM subscription s JOIN matched m ON m.query = s.query
    ORDER BY m.msg, s.number"""


def iter_matches(connection: Connection, numbers: range) -> Iterator[MatchedIds]:
    """Yield the matches of each message with these numbers, streaming rows from `matched`."""
    parts: list[pa.RecordBatch] = []
    current = numbers.start
    for batch in connection.stream(_MATCHED_SUBSCRIPTIONS, _ROWS_PER_FETCH):
        messages = batch.column(0).to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(messages)) + 1).tolist()]
        for start, end in pairwise([*starts, len(messages)]):
            message = int(messages[start])
            while current < message:
                yield _join_record_batches(parts)
                parts = []
                current += 1
            parts.append(batch.slice(start, end - start))
    while current < numbers.stop:
        yield _join_record_batches(parts)
        parts = []
        current += 1


def _join_record_batches(parts: list[pa.RecordBatch]) -> MatchedIds:
    if not parts:
        return MatchedIds(np.empty(0, np.int64), pa.chunked_array([], pa.string()))
    numbers = [part.column(1).to_numpy() for part in parts]
    ids = pa.chunked_array([part.column(2) for part in parts])
    return MatchedIds(numbers[0] if len(numbers) == 1 else np.concatenate(numbers), ids)
