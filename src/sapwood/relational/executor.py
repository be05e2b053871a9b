"""A batch of messages against the tables, as these are when it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sapwood.engine.failures import Failure, QueryProblem
from sapwood.engine.message.message_reader import Message
from sapwood.relational.residual import ResidualEvaluator
from sapwood.relational.sql.dialect import DuckDialect
from sapwood.relational.sql.match_plan import HIT, HOLDING, Extents, plan_steps
from sapwood.relational.storage.duckdb_database import Connection

_MOST_HELD = 2_000_000
"""facts of messages that are joined with rules at once: hash tables of these have to fit into memory"""
_MOST_UNDECIDED = 500_000
"""pairs of message and query that are evaluated one by one"""
_FETCHED = 100_000
"""rows of answers in memory at a time"""

Placed = Callable[[list[tuple[object, ...]]], pa.Table]
"""Finds where branching points lie, and puts it on record: see `Tags.place_points`."""

MISSING_BRANCHING_NODES = """
    SELECT DISTINCT h.tag, h.branching, t.text, p.text, b.points
    FROM (SELECT DISTINCT tag, branching FROM hit) h
         ANTI JOIN tag_branching k ON k.tag = h.tag AND k.branching = h.branching
         JOIN tag_path t ON t.id = h.tag
         JOIN path_branching b ON b.id = h.branching
         JOIN linear_path p ON p.id = b.path"""
"""the branching points of `hit` of which it is not known yet where they lie"""
BRANCHING_NODES = """
    SELECT k.* FROM tag_branching k SEMI JOIN hit h ON h.tag = k.tag AND h.branching = k.branching
    UNION ALL SELECT * FROM new_places"""
"""where they lie, with those found out now"""
RESIDUAL_QUERIES = """
    SELECT m.msg, m.query, q.text FROM query q JOIN matched m ON m.query = q.id
    WHERE NOT (q.exact AND m.certain)"""
"""queries that only their texts can tell whether messages match"""


class Saying(Protocol):
    """What messages say, wherever they were read."""

    @property
    def values(self) -> pa.Table: ...
    @property
    def messages(self) -> pa.Table: ...


class BatchTooLarge(Exception):
    """More than one message holds more facts than are to be joined at once."""


def match_rules(connection: Connection, said: Saying, extents: Extents, placed: Placed, some: range) -> None:
    """Makes the table `matched` of what some messages of a batch say; TooMuch if they had better be fewer."""
    chosen = f"WHERE msg BETWEEN {some.start} AND {some.stop - 1}"
    with connection.given(given_values=said.values, given_messages=said.messages):
        connection.keep("value", f"SELECT * FROM given_values {chosen}")
        connection.keep("message", f"SELECT * FROM given_messages {chosen}")
    for step in plan_steps(extents, DuckDialect()):
        connection.keep(step.name, step.sql)
        if step.name == HOLDING and len(some) > 1:
            if connection.value(f"SELECT count(*) FROM {HOLDING}") > _MOST_HELD:
                raise BatchTooLarge
        elif step is HIT:
            new = placed(connection.rows(MISSING_BRANCHING_NODES))
            with connection.given(new_places=new):
                connection.keep("point_place", BRANCHING_NODES)
    if len(some) > 1 and connection.value(f"SELECT count(*) FROM ({RESIDUAL_QUERIES}) u") > _MOST_UNDECIDED:
        raise BatchTooLarge


def decide(
    connection: Connection,
    messages: Sequence[Message],
    decider: ResidualEvaluator,
    namespaces: Mapping[str, str],
) -> dict[int, list[Failure]]:
    """Takes the queries out of `matched` that turn out not to match; by the numbers of messages, tells the
    subscriptions of which that is not known."""
    problems: list[tuple[int, int, QueryProblem]] = []
    rows = connection.rows(f"{RESIDUAL_QUERIES} ORDER BY 1")
    wrong: list[tuple[int, int]] = []
    start = 0
    while start < len(rows):
        number = rows[start][0]
        end = start
        while end < len(rows) and rows[end][0] == number:
            end += 1
        some = rows[start:end]
        answers = decider.true_of(messages[number], [text for _, _, text in some], namespaces)
        for (_, query, _), answer in zip(some, answers, strict=True):
            if isinstance(answer, QueryProblem):
                problems.append((number, query, answer))
            if answer is not True:
                wrong.append((number, query))
        start = end
    if wrong:
        table = pa.table({"msg": [msg for msg, _ in wrong], "query": [query for _, query in wrong]})
        with connection.given(wrong=table):
            connection.keep(
                "matched",
                "SELECT m.* FROM matched m ANTI JOIN wrong w ON w.msg = m.msg AND w.query = m.query",
            )
    return _failures(connection, problems)


_FAILED = """
    SELECT s.query, s.id FROM subscription s SEMI JOIN failed f ON f.query = s.query ORDER BY s.number"""


def _failures(
    connection: Connection, problems: list[tuple[int, int, QueryProblem]]
) -> dict[int, list[Failure]]:
    """The problems that queries have with messages, as their subscriptions'."""
    failures: dict[int, list[Failure]] = {}
    if not problems:
        return failures
    subscribed: dict[int, list[str]] = {}
    with connection.given(failed=pa.table({"query": [*{query for _, query, _ in problems}]})):
        for query, id in connection.rows(_FAILED):
            subscribed.setdefault(query, []).append(id)
    for number, query, problem in problems:
        failed = [Failure(id, problem.kind, problem.reason) for id in subscribed[query]]
        failures.setdefault(number, []).extend(failed)
    return failures


class MatchedIds:
    """The subscriptions that a message matched, in the order added."""

    __slots__ = ("_ids", "numbers", "undecided")

    def __init__(self, numbers: NDArray[np.int64], ids: pa.ChunkedArray) -> None:
        self.numbers = numbers
        """the subscriptions' numbers, ascending"""
        self._ids = ids
        self.undecided: tuple[Failure, ...] = ()
        """the subscriptions of which it is not known whether they match, and why"""

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


_ANSWER = """
    SELECT m.msg, s.number, s.id FROM subscription s JOIN matched m ON m.query = s.query
    ORDER BY m.msg, s.number"""


def answers(connection: Connection, some: range) -> Iterator[MatchedIds]:
    """The matches of some messages of a batch in turn, a few of which are in memory at a time."""
    parts: list[pa.RecordBatch] = []
    current = some.start
    for batch in connection.stream(_ANSWER, _FETCHED):
        messages = batch.column(0).to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(messages)) + 1).tolist()]
        for start, end in pairwise([*starts, len(messages)]):
            message = int(messages[start])
            while current < message:
                yield _matched(parts)
                parts = []
                current += 1
            parts.append(batch.slice(start, end - start))
    while current < some.stop:
        yield _matched(parts)
        parts = []
        current += 1


def _matched(parts: list[pa.RecordBatch]) -> MatchedIds:
    if not parts:
        return MatchedIds(np.empty(0, np.int64), pa.chunked_array([], pa.string()))
    numbers = [part.column(1).to_numpy() for part in parts]
    ids = pa.chunked_array([part.column(2) for part in parts])
    return MatchedIds(numbers[0] if len(numbers) == 1 else np.concatenate(numbers), ids)
