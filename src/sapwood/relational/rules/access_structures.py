"""Rules → the access structure of the plan. What is to be filed is named by a table `filed` of rules, whose
predicates are in place."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.relational.rules.comparisons import ALWAYS, EQUAL_NUMBER, EXISTS
from sapwood.relational.rules.rule_chains import file_chains, unfile_chains
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import Connection, Tables
from sapwood.relational.storage.table_schema import BOUNDS, FACTS, NO_FACT, NO_PATH


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the structure goes: columns in use, and levels of chains."""

    fact_slots: int = 0
    bound_slots: int = 0
    fact_levels: int = 0
    bound_levels: int = 0

    def __or__(self, other: Reach) -> Reach:
        return Reach(
            max(self.fact_slots, other.fact_slots),
            max(self.bound_slots, other.bound_slots),
            max(self.fact_levels, other.fact_levels),
            max(self.bound_levels, other.bound_levels),
        )


def reach_of(connection: Connection) -> Reach:
    """How far the structure really goes, when the longest rules have left."""
    facts = " ".join(f"WHEN fact{i} <> {NO_FACT} THEN {i}" for i in range(FACTS, 0, -1))
    bounds = " ".join(f"WHEN op{i} <> {ALWAYS} THEN {i}" for i in range(BOUNDS, 0, -1))
    # a rule without any fact still has the one that always holds
    slots = connection.rows(
        f"""
        SELECT coalesce(max(CASE {facts} ELSE 1 END), 0), coalesce(max(CASE {bounds} ELSE 0 END), 0)
        FROM unrolled"""
    )[0]
    longest = "SELECT coalesce(max(level), 0) FROM {}"
    levels = (connection.value(longest.format(table)) for table in ("fact_chain", "bound_chain"))
    return Reach(*slots, *levels)


def file_rules(tables: Tables, connection: Connection, plan: Plan) -> Reach:
    """Files the rules; how far they go."""
    if plan is Plan.UNROLLED:
        return _unroll(tables, connection)
    connection.keep("start", "SELECT rule, CAST(0 AS BIGINT) AS pre FROM filed")
    _order_facts(connection)
    # the bound that a bucket stands for was sorted out by it already: the others are more likely to fail
    _order_bounds(connection, "min(p.n)" if plan is Plan.SHARED else "min(b.bucketed) NULLS FIRST, min(p.n)")
    connection.keep("ordered_fact", "SELECT rule, level, fact, level = size AS ended FROM facts_in_order")
    connection.keep(
        "ordered_bound",
        "SELECT rule, level, path, op, number, text, level = size AS ended FROM bounds_in_order",
    )
    facts, bounds = file_chains(tables, connection, share=True)
    return Reach(fact_levels=facts, bound_levels=bounds)


def _order_facts(connection: Connection) -> None:
    """As the rule has them; what only follows from others comes last."""
    order = "min(CASE WHEN p.n = 0 THEN 127 ELSE p.n END), p.fact"
    connection.keep(
        "facts_in_order",
        f"""
        SELECT rule, fact, row_number() OVER (PARTITION BY rule ORDER BY place) AS level,
               count(*) OVER (PARTITION BY rule) AS size
        FROM (SELECT p.rule, p.fact, row_number() OVER (PARTITION BY p.rule ORDER BY {order}) AS place
              FROM predicate p JOIN filed f ON f.rule = p.rule
              WHERE p.fact IS NOT NULL GROUP BY p.rule, p.fact) o""",
    )


def _order_bounds(connection: Connection, order: str) -> None:
    bucketed = (
        """JOIN (SELECT rule, path, op, 1 AS bucketed FROM predicate WHERE n = 0) b
           ON b.rule = p.rule AND b.path = p.path AND b.op = p.op"""
        if "bucketed" in order
        else ""
    )
    connection.keep(
        "bounds_in_order",
        f"""
        SELECT p.rule, p.path, p.op, p.number, p.text,
               row_number() OVER (PARTITION BY p.rule ORDER BY {order}) AS level,
               count(*) OVER (PARTITION BY p.rule) AS size
        FROM predicate p JOIN filed f ON f.rule = p.rule {"LEFT " + bucketed if bucketed else ""}
        WHERE p.fact IS NULL GROUP BY p.rule, p.path, p.op, p.number, p.text""",
    )


# -- rows ----------------------------------------------------------------------------------------------


def _unroll(tables: Tables, connection: Connection) -> Reach:
    """One row for each rule, its rarest equality first: the fewer rules a fact leads to, the better."""
    connection.keep(
        "used",
        """
        SELECT p.fact, count(*) AS uses
        FROM predicate p JOIN (SELECT DISTINCT q.fact FROM predicate q JOIN filed f ON f.rule = q.rule) n
                         ON n.fact = p.fact
        GROUP BY p.fact""",
    )
    connection.keep(
        "facts_in_order",
        f"""
        SELECT rule, fact, row_number() OVER (PARTITION BY rule ORDER BY rank, uses, fact) AS level,
               count(*) OVER (PARTITION BY rule) AS size
        FROM (SELECT DISTINCT p.rule, p.fact, u.uses,
                     CASE WHEN p.op BETWEEN {EXISTS + 1} AND {EQUAL_NUMBER} THEN 0
                          WHEN p.op = {EXISTS} THEN 2 ELSE 1 END AS rank
              FROM predicate p JOIN filed f ON f.rule = p.rule JOIN used u ON u.fact = p.fact) o""",
    )
    _order_bounds(connection, "min(p.n)")
    connection.keep(
        "start",
        f"""
        SELECT rule, row_number() OVER () AS pre
        FROM (SELECT rule FROM facts_in_order WHERE level > {FACTS}
              UNION SELECT rule FROM bounds_in_order WHERE level > {BOUNDS}) r""",
    )
    longer = connection.value("SELECT count(*) FROM start")
    before = tables.take("chain", longer) - 1
    connection.run(f"UPDATE start SET pre = pre + {before}")
    _insert_rows(connection)
    connection.keep(
        "ordered_fact",
        f"""
        SELECT rule, level - {FACTS} AS level, fact, level = size AS ended
        FROM facts_in_order WHERE level > {FACTS}""",
    )
    connection.keep(
        "ordered_bound",
        f"""
        SELECT rule, level - {BOUNDS} AS level, path, op, number, text, level = size AS ended
        FROM bounds_in_order WHERE level > {BOUNDS}""",
    )
    facts, bounds = file_chains(tables, connection, share=False) if longer else (0, 0)
    longest = "SELECT coalesce(max(level), 0) FROM {}_in_order"
    return Reach(
        min(FACTS, connection.value(longest.format("facts"))),
        min(BOUNDS, connection.value(longest.format("bounds"))),
        facts,
        bounds,
    )


def _insert_rows(connection: Connection) -> None:
    facts = ", ".join(
        f"coalesce(max(CASE WHEN level = {i} THEN fact END), {NO_FACT}) AS fact{i}"
        for i in range(1, FACTS + 1)
    )
    bounds = ", ".join(
        f"coalesce(max(CASE WHEN level = {i} THEN path END), {NO_PATH}) AS path{i}, "
        f"coalesce(max(CASE WHEN level = {i} THEN op END), {ALWAYS}) AS op{i}, "
        f"max(CASE WHEN level = {i} THEN number END) AS number{i}, "
        f"max(CASE WHEN level = {i} THEN text END) AS text{i}"
        for i in range(1, BOUNDS + 1)
    )
    fillers = ", ".join(
        f"coalesce(b.path{i}, {NO_PATH}) AS path{i}, coalesce(b.op{i}, {ALWAYS}) AS op{i}, "
        f"b.number{i}, b.text{i}"
        for i in range(1, BOUNDS + 1)
    )
    slots = ", ".join(f"f.fact{i}" for i in range(1, FACTS + 1))
    connection.run(
        f"""
        INSERT INTO unrolled BY NAME
        SELECT f.rule, s.pre AS next, {slots}, {fillers}
        FROM (SELECT rule, {facts} FROM facts_in_order WHERE level <= {FACTS} GROUP BY rule) f
             LEFT JOIN (SELECT rule, {bounds} FROM bounds_in_order WHERE level <= {BOUNDS} GROUP BY rule) b
                       ON b.rule = f.rule
             LEFT JOIN start s ON s.rule = f.rule
        ORDER BY f.fact1"""
    )


def unfile_rules(connection: Connection, gone: str) -> None:
    """Takes rules out of the structure; `gone` is a table with a column `rule`."""
    connection.run(f"DELETE FROM unrolled WHERE rule IN (SELECT rule FROM {gone})")
    unfile_chains(connection, gone)
