"""The statements that match a batch of messages, for any SQL engine.

They start from a shredded batch:

    message   the messages that could be shredded, by number
    value     message, tag path, text, number, keys of both, and the numbers of the nodes down to the value

and create tables step by step, each for those that follow:

    seen      the tag paths of each message
    probe     its texts and numbers, as keys to look up equalities by
    extent    for each class of paths, the minimum and maximum of its values
    true_fact the facts that hold for it
    …         the rules whose facts and bounds hold: `found`, by chains or by rows
    candidate the same with query and shape; where rows have both, it is found instead of `found`
    satisfied of the rules with branching points, those whose branches meet: see `branching_steps`
    matched   the queries

Joins are written in the order in which they are to be executed: the join order optimizers of engines are
switched off. No step has more rows than distinct results, so nothing is multiplied by how often a value
occurs in a message.

Statements have hints that name what comes from the batch: Spark broadcasts it, instead of shuffling tables.
To DuckDB they are comments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sapwood.relational.rules.comparisons import (
    CONTAINS,
    EQUAL_NUMBER,
    EQUAL_TEXT,
    EXISTS,
    FIRST_BOUND,
    STARTS,
)
from sapwood.relational.sql.dialect import Dialect, SqlStep, bound_condition, predicate_condition
from sapwood.relational.storage.table_schema import NO_FACT, NO_PATH

TRUE_FACT = "true_fact"


class Plan(StrEnum):
    """The access structure that leads from facts and bounds to rules."""

    SHARED = "shared"
    BUCKETS = "buckets"
    UNROLLED = "unrolled"


class StructureSize(NamedTuple):
    """The columns of `unrolled` in use, and the levels of the longest chains; stored in `meta` as `reach`."""

    fact_slots: int = 0
    bound_slots: int = 0
    fact_levels: int = 0
    bound_levels: int = 0

    def __or__(self, other: StructureSize) -> StructureSize:
        return StructureSize(*map(max, self, other))


@dataclass(frozen=True, slots=True)
class PlanParameters:
    """The sizes of the tables on which the statements depend, so that none reads more than there is."""

    plan: Plan
    fact_ops: frozenset[int]
    """operators of the stored facts"""
    size: StructureSize
    texts: bool
    """whether bounds compare texts"""
    depth: int
    """nesting of branching points, at most"""


def plan_steps(parameters: PlanParameters, dialect: Dialect) -> Iterator[SqlStep]:
    """Yield all statements, from the values of messages to the queries that they match."""
    yield from _value_steps(parameters)
    if parameters.plan is Plan.UNROLLED:
        yield from _unrolled_steps(parameters, dialect)
    else:
        first = """
            SELECT /*+ BROADCAST(t) */ t.msg, c.id, c.final
            FROM fact_chain c JOIN true_fact t ON t.fact = c.fact
            WHERE c.level = 1 AND c.pre = 0"""
        yield from _chain_steps(parameters, first)
    if not _has_candidate_rows(parameters, dialect):
        yield _CANDIDATE
    yield from _match_steps(parameters, dialect)


# -- values to facts -----------------------------------------------------------------------------------


def _value_steps(parameters: PlanParameters) -> Iterator[SqlStep]:
    yield SqlStep("seen", "SELECT DISTINCT msg, tag FROM value")
    if parameters.fact_ops & {EQUAL_TEXT, EQUAL_NUMBER}:
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
    texts = "min(v.text) AS low_text, max(v.text) AS high_text" if parameters.texts else _NO_TEXTS
    yield SqlStep(
        "extent",
        f"""
        SELECT v.msg, c.class, min(v.number) AS low, max(v.number) AS high, {texts},
               max(CASE WHEN v.number IS NULL THEN 1 ELSE 0 END) = 1 AS odd
        FROM value v JOIN class_tag c ON c.tag = v.tag GROUP BY v.msg, c.class
        UNION ALL
        SELECT msg, {NO_PATH}, NULL, NULL, {_NO_TEXTS}, false FROM message""",
    )
    yield SqlStep(TRUE_FACT, " UNION ALL ".join(_fact_queries(parameters)))


_NO_TEXTS = "CAST(NULL AS STRING) AS low_text, CAST(NULL AS STRING) AS high_text"


def _fact_queries(parameters: PlanParameters) -> Iterator[str]:
    """Yield a query for each kind of fact; no fact is found by two of them."""
    yield f"SELECT msg, CAST({NO_FACT} AS BIGINT) AS fact FROM message"
    ops = parameters.fact_ops
    if ops & {EQUAL_TEXT, EQUAL_NUMBER}:
        yield """
            SELECT /*+ BROADCAST(k) */ DISTINCT k.msg, f.id
            FROM fact f JOIN path_match m ON m.path = f.path
                        JOIN probe k ON k.key = f.key AND k.tag = m.tag AND k.op = f.op
            WHERE f.text = k.text OR f.number = k.number"""
    if EXISTS in ops:
        yield f"""
            SELECT /*+ BROADCAST(s) */ DISTINCT s.msg, f.id
            FROM path_match m JOIN seen s ON s.tag = m.tag
                              JOIN (SELECT id, path FROM fact WHERE op = {EXISTS}) f ON f.path = m.path"""
    if ops & {CONTAINS, STARTS}:
        yield f"""
            SELECT /*+ BROADCAST(v) */ DISTINCT v.msg, f.id
            FROM path_match m JOIN fact f ON f.path = m.path
                              JOIN value v ON v.tag = m.tag AND {predicate_condition("v", "f")}
            WHERE f.op IN ({CONTAINS}, {STARTS})"""
    if max(ops, default=0) >= FIRST_BOUND:
        yield f"""
            SELECT /*+ BROADCAST(e) */ e.msg, f.id
            FROM fact f JOIN path_class c ON c.path = f.path
                        JOIN extent e ON e.class = c.class AND {bound_condition("e", "f", texts=False)}
            WHERE f.op >= {FIRST_BOUND}"""


# -- chains --------------------------------------------------------------------------------------------


def _chain_steps(parameters: PlanParameters, first: str, rows: str | None = None) -> Iterator[SqlStep]:
    """Yield the recursive plan, in two stages: facts, one more in each round, then bounds.

    With `rows`, chains continue rows of the unrolled plan; a row without `next` is a whole rule.
    """
    reached = [f"SELECT msg, next AS id FROM {rows} WHERE next IS NOT NULL"] if rows else []
    finals = [f"SELECT msg, rule FROM {rows} WHERE next IS NULL"] if rows else []
    next_round = first
    for level in range(1, parameters.size.fact_levels + 1):
        yield SqlStep(f"fact_round{level}", next_round)
        reached.append(f"SELECT msg, id FROM fact_round{level} WHERE NOT final")
        finals.append(f"SELECT msg, id AS rule FROM fact_round{level} WHERE final")
        next_round = f"""
            SELECT /*+ BROADCAST(s, t) */ s.msg, c.id, c.final
            FROM fact_chain c JOIN fact_round{level} s ON s.id = c.pre
                              JOIN true_fact t ON t.msg = s.msg AND t.fact = c.fact
            WHERE c.level = {level + 1} AND NOT s.final"""
    source = f"({' UNION ALL '.join(reached) or _NO_NODES})"
    bound_holds = bound_condition("e", "c", parameters.texts)
    for level in range(1, parameters.size.bound_levels + 1):
        yield SqlStep(
            f"bound_round{level}",
            f"""
            SELECT /*+ BROADCAST(s, e) */ s.msg, c.id, c.final
            FROM bound_chain c JOIN {source} s ON s.id = c.pre
                               JOIN path_class p ON p.path = c.path
                               JOIN extent e ON e.msg = s.msg AND e.class = p.class AND {bound_holds}
            WHERE c.level = {level}""",
        )
        source = f"(SELECT msg, id FROM bound_round{level} WHERE NOT final)"
        finals.append(f"SELECT msg, id AS rule FROM bound_round{level} WHERE final")
    yield SqlStep("found", " UNION ALL ".join(finals) or _NO_RULES)


_NO_NODES = "SELECT msg, CAST(0 AS BIGINT) AS id FROM message WHERE false"
_NO_RULES = "SELECT msg, CAST(0 AS BIGINT) AS rule FROM message WHERE false"


# -- rows ----------------------------------------------------------------------------------------------


def _has_candidate_rows(parameters: PlanParameters, dialect: Dialect) -> bool:
    """Return whether rows of `unrolled` are all there is to candidates."""
    chained = parameters.size.fact_levels or parameters.size.bound_levels
    return parameters.plan is Plan.UNROLLED and dialect.rules_in_rows and not chained


def _unrolled_steps(parameters: PlanParameters, dialect: Dialect) -> Iterator[SqlStep]:
    """Yield the plan for rules in one row: the first two facts, bounds, other facts, and then chains."""
    facts = [_fact_column_join(slot) for slot in range(2, parameters.size.fact_slots + 1)]
    bounds = [
        _bound_column_join(slot, parameters.texts) for slot in range(1, parameters.size.bound_slots + 1)
    ]
    joins = " ".join([*facts[:1], *bounds, *facts[1:]])
    names = ["t", *(f"t{slot + 2}" for slot in range(len(facts)))]
    names += [f"e{slot + 1}" for slot in range(len(bounds))]
    select = f"SELECT /*+ BROADCAST({', '.join(names)}) */ t.msg, u.rule"
    source = f"FROM unrolled u JOIN true_fact t ON t.fact = u.fact1 {joins}"
    if _has_candidate_rows(parameters, dialect):
        yield SqlStep(_CANDIDATE.name, f"{select}, u.query, u.shape {source}")
        return
    row = f"{select}, u.next {source}"
    if not parameters.size.fact_levels and not parameters.size.bound_levels:
        yield SqlStep("found", f"SELECT msg, rule FROM ({row}) r")
        return
    yield SqlStep("in_row", row)
    first = """
        SELECT /*+ BROADCAST(s, t) */ s.msg, c.id, c.final
        FROM fact_chain c JOIN in_row s ON s.next = c.pre
                          JOIN true_fact t ON t.msg = s.msg AND t.fact = c.fact
        WHERE c.level = 1"""
    yield from _chain_steps(parameters, first, "in_row")


def _fact_column_join(slot: int) -> str:
    return f"JOIN true_fact t{slot} ON t{slot}.msg = t.msg AND t{slot}.fact = u.fact{slot}"


def _bound_column_join(slot: int, texts: bool) -> str:
    return f"""
        JOIN path_class p{slot} ON p{slot}.path = u.path{slot}
        JOIN extent e{slot} ON e{slot}.msg = t.msg AND e{slot}.class = p{slot}.class
                           AND {bound_condition(f"e{slot}", "u", texts, str(slot))}"""


# -- branching points ----------------------------------------------------------------------------------


_CANDIDATE = SqlStep(
    "candidate",
    """
    SELECT /*+ BROADCAST(f) */ f.msg, f.rule, r.query, r.shape
    FROM rule r JOIN found f ON f.rule = r.id""",
)


def _match_steps(parameters: PlanParameters, dialect: Dialect) -> Iterator[SqlStep]:
    """Yield the steps to `matched`; `certain` is false where branching points had too many positions."""
    plain = "SELECT DISTINCT msg, query, true AS certain FROM candidate WHERE shape IS NULL"
    if not parameters.depth:
        yield SqlStep("matched", plain)
        return
    yield from branching_steps(parameters.depth, dialect)
    yield SqlStep(
        "matched",
        f"""
        SELECT msg, query, max(CASE WHEN certain THEN 1 ELSE 0 END) = 1 AS certain
        FROM ({plain}
              UNION ALL SELECT /*+ BROADCAST(s) */ c.msg, c.query, true
              FROM candidate c JOIN satisfied s ON s.msg = c.msg AND s.rule = c.rule
              UNION ALL SELECT /*+ BROADCAST(b) */ c.msg, c.query, false
              FROM candidate c JOIN binding b ON b.msg = c.msg AND b.rule = c.rule AND b.unclear) a
        GROUP BY msg, query""",
    )


HIT = SqlStep(
    "hit",
    f"""
    SELECT /*+ BROADCAST(c, v) */ c.msg, c.rule, c.shape, p.n, p.branching, v.tag, v.nodes
    FROM predicate p JOIN candidate c ON c.rule = p.rule
                     JOIN path_match m ON m.path = p.path
                     JOIN value v ON v.msg = c.msg AND v.tag = m.tag AND {predicate_condition("v", "p")}
    WHERE c.shape IS NOT NULL AND p.branching IS NOT NULL""",
)
"""The values that each branch of a candidate selects. The next step needs the positions of branching points
on their tag paths: the executor creates `branching_position` from `tag_branching` and what it lacks.
"""


def branching_steps(depth: int, dialect: Dialect) -> Iterator[SqlStep]:
    """Yield the steps to `satisfied`: the candidates whose branches meet at the same elements.

    From the deepest branching points up, an element remains if all parts below its point are found there.
    """
    yield HIT
    nodes = ", ".join(
        f"{dialect.array_item('h.nodes', dialect.array_item('b.positions', str(d)))} AS v{d}"
        for d in range(1, depth + 1)
    )
    yield SqlStep(
        "binding",
        f"""
        SELECT DISTINCT h.msg, h.rule, h.shape, h.n AS part, b.positions IS NULL AS unclear, {nodes}
        FROM hit h JOIN branching_position b ON b.tag = h.tag AND b.branching = h.branching""",
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
        # inner elements are projected away, so that each outer one is there once for every part
        below = f"UNION ALL SELECT DISTINCT msg, rule, shape, part, {outer} FROM point{level}"
    yield SqlStep(
        "satisfied",
        """
        SELECT l.msg, l.rule FROM point1 l
             JOIN shape_part s ON s.shape = l.shape AND s.part = l.part AND s.depth = 0
        GROUP BY l.msg, l.rule HAVING count(DISTINCT l.part) = max(s.siblings)""",
    )
