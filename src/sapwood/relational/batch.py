"""A batch of messages against the tables, as these are when it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sapwood.engine.reader import Message
from sapwood.relational.deciding import Decider
from sapwood.relational.plans import HIT, Extents, steps
from sapwood.relational.sql import DuckDialect
from sapwood.relational.tables import Connection
from sapwood.relational.values import Said

_FETCHED = 100_000
"""rows of answers in memory at a time"""

Placed = Callable[[list[tuple[object, ...]]], pa.Table]
"""Finds where branching points lie, and puts it on record: see `Tags.place_points`."""

MISSING_PLACES = """
    SELECT DISTINCT h.tag, h.branching, t.text, p.text, b.points
    FROM (SELECT DISTINCT tag, branching FROM hit) h
         ANTI JOIN tag_branching k ON k.tag = h.tag AND k.branching = h.branching
         JOIN tag_path t ON t.id = h.tag
         JOIN path_branching b ON b.id = h.branching
         JOIN linear_path p ON p.id = b.path"""


def match_rules(connection: Connection, said: Said, extents: Extents, placed: Placed) -> None:
    """Makes the table `matched` of what a batch says."""
    with connection.given(given_values=said.values, given_messages=said.messages):
        connection.keep("value", "SELECT * FROM given_values")
        connection.keep("message", "SELECT * FROM given_messages")
    for step in steps(extents, DuckDialect()):
        connection.keep(step.name, step.sql)
        if step is HIT:
            new = placed(connection.rows(MISSING_PLACES))
            with connection.given(new_places=new):
                connection.keep(
                    "point_place",
                    """
                    SELECT k.* FROM tag_branching k
                    SEMI JOIN hit h ON h.tag = k.tag AND h.branching = k.branching
                    UNION ALL SELECT * FROM new_places""",
                )


def decide(connection: Connection, messages: Sequence[Message], decider: Decider) -> None:
    """Takes the queries out of `matched` that turn out not to match."""
    rows = connection.rows(
        """
        SELECT m.msg, m.query, q.text FROM query q JOIN matched m ON m.query = q.id
        WHERE NOT (q.exact AND m.certain) ORDER BY 1"""
    )
    wrong: list[tuple[int, int]] = []
    start = 0
    while start < len(rows):
        number = rows[start][0]
        end = start
        while end < len(rows) and rows[end][0] == number:
            end += 1
        some = rows[start:end]
        answers = decider.true_of(messages[number], [text for _, _, text in some])
        wrong += [(number, query) for (_, query, _), true in zip(some, answers, strict=True) if not true]
        start = end
    if wrong:
        table = pa.table({"msg": [msg for msg, _ in wrong], "query": [query for _, query in wrong]})
        with connection.given(wrong=table):
            connection.keep(
                "matched",
                "SELECT m.* FROM matched m ANTI JOIN wrong w ON w.msg = m.msg AND w.query = m.query",
            )


class MatchedIds:
    """The subscriptions that a message matched, in the order added."""

    __slots__ = ("_ids", "numbers")

    def __init__(self, numbers: NDArray[np.int64], ids: pa.ChunkedArray) -> None:
        self.numbers = numbers
        """the subscriptions' numbers, ascending"""
        self._ids = ids

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids.to_pylist())

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._ids.index(pa.scalar(id, self._ids.type)).as_py() >= 0

    def __repr__(self) -> str:
        return f"<MatchedIds: {len(self)} subscriptions>"


_ANSWER = """
    SELECT m.msg, s.number, s.id FROM subscription s JOIN matched m ON m.query = s.query
    ORDER BY m.msg, s.number"""


def answers(connection: Connection, count: int) -> Iterator[MatchedIds]:
    """The matches of the batch's messages in turn, a few of which are in memory at a time."""
    parts: list[pa.RecordBatch] = []
    current = 0
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
    while current < count:
        yield _matched(parts)
        parts = []
        current += 1


_NOTHING = MatchedIds(np.empty(0, np.int64), pa.chunked_array([], pa.string()))


def _matched(parts: list[pa.RecordBatch]) -> MatchedIds:
    if not parts:
        return _NOTHING
    numbers = [part.column(1).to_numpy() for part in parts]
    ids = pa.chunked_array([part.column(2) for part in parts])
    return MatchedIds(numbers[0] if len(numbers) == 1 else np.concatenate(numbers), ids)
