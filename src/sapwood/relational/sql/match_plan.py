"""How a batch of messages finds its rules, as statements that any SQL engine runs.

They start from what the batch says:

    message   the messages that could be read, by number
    value     message, tag path, text, number, keys of both, and the numbers of the nodes down to the value

and go on step by step, each a table for those that follow:

    seen      the tag paths of each message
    probe     what it says, to look up equalities by
    extent    for each class of paths, between which bounds its values lie
    holding   the facts that hold of it
    …         the rules whose facts and bounds hold: `found`, see Shared and Unrolled
    satisfied of those whose branches must hang together, the ones where they do: see `branching`
    matched   the queries

Joins are written in the order in which they are to be done: engines that think they know better are told not
to. No step makes more rows than there are answers to its question, so nothing is multiplied by how often a
value occurs in a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sapwood.relational.rules.comparisons import (
    CONTAINS,
    EQUAL_NUMBER,
    EQUAL_TEXT,
    EXISTS,
    FIRST_BOUND,
    STARTS,
)
from sapwood.relational.sql.dialect import Dialect, SqlStep, passes, within
from sapwood.relational.storage.table_schema import NO_FACT, NO_PATH

HOLDING = "holding"


class Plan(StrEnum):
    """What leads from facts and bounds to rules."""

    SHARED = "shared"
    BUCKETS = "buckets"
    UNROLLED = "unrolled"


@dataclass(frozen=True, slots=True)
class Extents:
    """How far the tables of a population go, so that no statement asks for more."""

    plan: Plan
    fact_ops: frozenset[int]
    """operators of the facts there are"""
    fact_slots: int
    bound_slots: int
    """columns of `unrolled` in use"""
    fact_levels: int
    bound_levels: int
    """longest chains"""
    texts: bool
    """whether bounds compare texts"""
    depth: int
    """branching points above one another, at most"""


def plan_steps(extents: Extents, dialect: Dialect) -> Iterator[SqlStep]:
    """All statements, from what messages say to the queries that they match."""
    yield from _said(extents)
    if extents.plan is Plan.UNROLLED:
        yield from _unrolled(extents)
    else:
        first = """
            SELECT t.msg, c.id, c.final FROM fact_chain c JOIN holding t ON t.fact = c.fact
            WHERE c.level = 1 AND c.pre = 0"""
        yield from _chained(extents, first)
    yield from _matched(extents, dialect)


# -- what messages say ---------------------------------------------------------------------------------


def _said(extents: Extents) -> Iterator[SqlStep]:
    yield SqlStep("seen", "SELECT DISTINCT msg, tag FROM value")
    if extents.fact_ops & {EQUAL_TEXT, EQUAL_NUMBER}:
        yield SqlStep(
            "probe",
            f"""
            SELECT DISTINCT msg, tag, text_key AS key, {EQUAL_TEXT} AS op, text,
                   CAST(NULL AS DOUBLE) AS number
            FROM value WHERE text_key IS NOT NULL
            UNION ALL
            SELECT DISTINCT msg, tag, number_key, {EQUAL_NUMBER}, CAST(NULL AS STRING), number
            FROM value WHERE number_key IS NOT NULL""",
        )
    texts = "min(v.text) AS low_text, max(v.text) AS high_text" if extents.texts else _NO_TEXTS
    yield SqlStep(
        "extent",
        f"""
        SELECT v.msg, c.class, min(v.number) AS low, max(v.number) AS high, {texts},
               max(CASE WHEN v.number IS NULL THEN 1 ELSE 0 END) = 1 AS odd
        FROM value v JOIN class_tag c ON c.tag = v.tag GROUP BY v.msg, c.class
        UNION ALL
        SELECT msg, {NO_PATH}, NULL, NULL, {_NO_TEXTS}, false FROM message""",
    )
    yield SqlStep(HOLDING, " UNION ALL ".join(_facts(extents)))


_NO_TEXTS = "CAST(NULL AS STRING) AS low_text, CAST(NULL AS STRING) AS high_text"


def _facts(extents: Extents) -> Iterator[str]:
    """Each kind of fact, found in its own way; none is found twice."""
    yield f"SELECT msg, CAST({NO_FACT} AS BIGINT) AS fact FROM message"
    ops = extents.fact_ops
    if ops & {EQUAL_TEXT, EQUAL_NUMBER}:
        yield """
            SELECT DISTINCT k.msg, f.id
            FROM fact f JOIN path_match m ON m.path = f.path
                        JOIN probe k ON k.key = f.key AND k.tag = m.tag AND k.op = f.op
            WHERE f.text = k.text OR f.number = k.number"""
    if EXISTS in ops:
        yield f"""
            SELECT DISTINCT s.msg, f.id
            FROM path_match m JOIN seen s ON s.tag = m.tag
                              JOIN (SELECT id, path FROM fact WHERE op = {EXISTS}) f ON f.path = m.path"""
    if ops & {CONTAINS, STARTS}:
        yield f"""
            SELECT DISTINCT v.msg, f.id
            FROM path_match m JOIN fact f ON f.path = m.path
                              JOIN value v ON v.tag = m.tag AND {passes("v", "f")}
            WHERE f.op IN ({CONTAINS}, {STARTS})"""
    if max(ops, default=0) >= FIRST_BOUND:
        yield f"""
            SELECT e.msg, f.id
            FROM fact f JOIN path_class c ON c.path = f.path
                        JOIN extent e ON e.class = c.class AND {within("e", "f", texts=False)}
            WHERE f.op >= {FIRST_BOUND}"""


# -- chains --------------------------------------------------------------------------------------------


def _chained(extents: Extents, first: str, rows: str | None = None) -> Iterator[SqlStep]:
    """The recursive plan, in two stages: facts, each round asking for one more, then bounds.

    It goes on from `rows`, if there are any: those without `next` are through.
    """
    reached = [f"SELECT msg, next AS id FROM {rows} WHERE next IS NOT NULL"] if rows else []
    finals = [f"SELECT msg, rule FROM {rows} WHERE next IS NULL"] if rows else []
    following = first
    for level in range(1, extents.fact_levels + 1):
        yield SqlStep(f"fact_round{level}", following)
        reached.append(f"SELECT msg, id FROM fact_round{level} WHERE NOT final")
        finals.append(f"SELECT msg, id AS rule FROM fact_round{level} WHERE final")
        following = f"""
            SELECT s.msg, c.id, c.final
            FROM fact_chain c JOIN fact_round{level} s ON s.id = c.pre
                              JOIN holding t ON t.msg = s.msg AND t.fact = c.fact
            WHERE c.level = {level + 1} AND NOT s.final"""
    source = f"({' UNION ALL '.join(reached) or _NOWHERE})"
    meets = within("e", "c", extents.texts)
    for level in range(1, extents.bound_levels + 1):
        yield SqlStep(
            f"bound_round{level}",
            f"""
            SELECT s.msg, c.id, c.final
            FROM bound_chain c JOIN {source} s ON s.id = c.pre
                               JOIN path_class p ON p.path = c.path
                               JOIN extent e ON e.msg = s.msg AND e.class = p.class AND {meets}
            WHERE c.level = {level}""",
        )
        source = f"(SELECT msg, id FROM bound_round{level} WHERE NOT final)"
        finals.append(f"SELECT msg, id AS rule FROM bound_round{level} WHERE final")
    yield SqlStep("found", " UNION ALL ".join(finals) or _NOTHING)


_NOWHERE = "SELECT msg, CAST(0 AS BIGINT) AS id FROM message WHERE false"
_NOTHING = "SELECT msg, CAST(0 AS BIGINT) AS rule FROM message WHERE false"


# -- rows ----------------------------------------------------------------------------------------------


def _unrolled(extents: Extents) -> Iterator[SqlStep]:
    """Rules in one row: by the first fact, then the second; bounds; the other facts; then what is chained."""
    facts = [_fact_slot(slot) for slot in range(2, extents.fact_slots + 1)]
    bounds = [_bound_slot(slot, extents.texts) for slot in range(1, extents.bound_slots + 1)]
    joins = " ".join([*facts[:1], *bounds, *facts[1:]])
    row = f"SELECT t.msg, u.rule, u.next FROM unrolled u JOIN holding t ON t.fact = u.fact1 {joins}"
    if not extents.fact_levels and not extents.bound_levels:
        yield SqlStep("found", f"SELECT msg, rule FROM ({row}) r")
        return
    yield SqlStep("in_row", row)
    first = """
        SELECT s.msg, c.id, c.final
        FROM fact_chain c JOIN in_row s ON s.next = c.pre JOIN holding t ON t.msg = s.msg AND t.fact = c.fact
        WHERE c.level = 1"""
    yield from _chained(extents, first, "in_row")


def _fact_slot(slot: int) -> str:
    return f"JOIN holding t{slot} ON t{slot}.msg = t.msg AND t{slot}.fact = u.fact{slot}"


def _bound_slot(slot: int, texts: bool) -> str:
    return f"""
        JOIN path_class p{slot} ON p{slot}.path = u.path{slot}
        JOIN extent e{slot} ON e{slot}.msg = t.msg AND e{slot}.class = p{slot}.class
                           AND {within(f"e{slot}", "u", texts, str(slot))}"""


# -- branches that hang together -----------------------------------------------------------------------


def _matched(extents: Extents, dialect: Dialect) -> Iterator[SqlStep]:
    """The queries that messages match, `certain` unless there were too many ways to look at branches."""
    yield SqlStep(
        "candidate",
        "SELECT f.msg, f.rule, r.query, r.shape FROM rule r JOIN found f ON f.rule = r.id",
    )
    plain = "SELECT DISTINCT msg, query, true AS certain FROM candidate WHERE shape IS NULL"
    if not extents.depth:
        yield SqlStep("matched", plain)
        return
    yield from branching(extents.depth, dialect)
    yield SqlStep(
        "matched",
        f"""
        SELECT msg, query, max(CASE WHEN certain THEN 1 ELSE 0 END) = 1 AS certain
        FROM ({plain}
              UNION ALL SELECT c.msg, c.query, true
              FROM candidate c JOIN satisfied s ON s.msg = c.msg AND s.rule = c.rule
              UNION ALL SELECT c.msg, c.query, false
              FROM candidate c JOIN binding b ON b.msg = c.msg AND b.rule = c.rule AND b.unclear) a
        GROUP BY msg, query""",
    )


HIT = SqlStep(
    "hit",
    f"""
    SELECT c.msg, c.rule, c.shape, p.n, p.branching, v.tag, v.nodes
    FROM predicate p JOIN candidate c ON c.rule = p.rule
                     JOIN path_match m ON m.path = p.path
                     JOIN value v ON v.msg = c.msg AND v.tag = m.tag AND {passes("v", "p")}
    WHERE c.shape IS NOT NULL AND p.branching IS NOT NULL""",
)
"""Which values each branch of a candidate has found. Where on them the branching points lie has to be known
before the next step: whoever runs the steps makes `point_place` of `tag_branching` and what is missing there.
"""


def branching(depth: int, dialect: Dialect) -> Iterator[SqlStep]:
    """The candidates whose branches meet: from the deepest branching points up, an element stays if all that
    hangs from its point is found below it."""
    yield HIT
    nodes = ", ".join(
        f"{dialect.item('h.nodes', dialect.item('b.positions', str(d)))} AS v{d}" for d in range(1, depth + 1)
    )
    yield SqlStep(
        "binding",
        f"""
        SELECT DISTINCT h.msg, h.rule, h.shape, h.n AS part, b.positions IS NULL AS unclear, {nodes}
        FROM hit h JOIN point_place b ON b.tag = h.tag AND b.branching = h.branching""",
    )
    below = ""
    for level in range(depth, 0, -1):
        columns = ", ".join(f"v{d}" for d in range(1, level + 1))
        of_level = f"SELECT msg, rule, shape, part, {columns} FROM binding WHERE NOT unclear"
        yield SqlStep(
            f"point{level}",
            f"""
            SELECT l.msg, l.rule, l.shape, s.parent AS part, {columns}
            FROM ({of_level} {below}) l
                 JOIN shape_part s ON s.shape = l.shape AND s.part = l.part AND s.depth = {level}
            GROUP BY l.msg, l.rule, l.shape, s.parent, {columns}
            HAVING count(*) = max(s.siblings)""",
        )
        outer = ", ".join(f"v{d}" for d in range(1, level))
        # inner elements no longer matter, so that each outer one is there once for every part
        below = f"UNION ALL SELECT DISTINCT msg, rule, shape, part, {outer} FROM point{level}"
    yield SqlStep(
        "satisfied",
        """
        SELECT l.msg, l.rule FROM point1 l
             JOIN shape_part s ON s.shape = l.shape AND s.part = l.part AND s.depth = 0
        GROUP BY l.msg, l.rule HAVING count(DISTINCT l.part) = max(s.siblings)""",
    )
