"""Builds the access structure of a plan: chains, or one row for each rule.

The rules to index are given by the temporary table `indexed_rule`; their predicates are stored already.
"""

from __future__ import annotations

from sapwood.relational.rules.comparisons import ALWAYS, EQUAL_NUMBER, EXISTS
from sapwood.relational.rules.rule_chains import delete_chains, insert_chains
from sapwood.relational.sql.match_plan import Plan, StructureSize
from sapwood.relational.storage.duckdb_database import Connection, DuckDBDatabase
from sapwood.relational.storage.table_schema import BOUND_COLUMNS, FACT_COLUMNS, NO_FACT, NO_PATH


def measure_structure(connection: Connection) -> StructureSize:
    """Return the actual size of the structure, after the longest rules may have been deleted."""
    facts = " ".join(f"WHEN fact{i} <> {NO_FACT} THEN {i}" for i in range(FACT_COLUMNS, 0, -1))
    bounds = " ".join(f"WHEN op{i} <> {ALWAYS} THEN {i}" for i in range(BOUND_COLUMNS, 0, -1))
    # a rule without facts has NO_FACT in the first column
    slots = connection.rows(
        f"""
        SELECT coalesce(max(CASE {facts} ELSE 1 END), 0), coalesce(max(CASE {bounds} ELSE 0 END), 0)
        FROM unrolled"""
    )[0]
    max_level = "SELECT coalesce(max(level), 0) FROM {}"
    levels = (connection.value(max_level.format(table)) for table in ("fact_chain", "bound_chain"))
    return StructureSize(*slots, *levels)


def index_rules(database: DuckDBDatabase, connection: Connection, plan: Plan) -> StructureSize:
    """Add rules to the access structure; return the size that they need."""
    if plan is Plan.UNROLLED:
        return _index_unrolled(database, connection)
    connection.create_temp_table("start", "SELECT rule, CAST(0 AS BIGINT) AS pre FROM indexed_rule")
    _order_facts(connection)
    # the bound of a bucket has been tested approximately: the others are more selective
    _order_bounds(connection, "min(p.n)" if plan is Plan.SHARED else "min(b.bucketed) NULLS FIRST, min(p.n)")
    connection.create_temp_table(
        "ordered_fact", "SELECT rule, level, fact, level = size AS ended FROM facts_in_order"
    )
    connection.create_temp_table(
        "ordered_bound",
        "SELECT rule, level, path, op, number, text, level = size AS ended FROM bounds_in_order",
    )
    facts, bounds = insert_chains(database, connection, share=True)
    return StructureSize(fact_levels=facts, bound_levels=bounds)


def _order_facts(connection: Connection) -> None:
    """Order facts as in the rule; those that are implied by others come last."""
    order = "min(CASE WHEN p.n = 0 THEN 127 ELSE p.n END), p.fact"
    connection.create_temp_table(
        "facts_in_order",
        f"""
        SELECT rule, fact, row_number() OVER (PARTITION BY rule ORDER BY position) AS level,
               count(*) OVER (PARTITION BY rule) AS size
        FROM (SELECT p.rule, p.fact, row_number() OVER (PARTITION BY p.rule ORDER BY {order}) AS position
              FROM predicate p JOIN indexed_rule f ON f.rule = p.rule
              WHERE p.fact IS NOT NULL GROUP BY p.rule, p.fact) o""",
    )


def _order_bounds(connection: Connection, order: str) -> None:
    bucketed = (
        """JOIN (SELECT rule, path, op, 1 AS bucketed FROM predicate WHERE n = 0) b
           ON b.rule = p.rule AND b.path = p.path AND b.op = p.op"""
        if "bucketed" in order
        else ""
    )
    connection.create_temp_table(
        "bounds_in_order",
        f"""
        SELECT p.rule, p.path, p.op, p.number, p.text,
               row_number() OVER (PARTITION BY p.rule ORDER BY {order}) AS level,
               count(*) OVER (PARTITION BY p.rule) AS size
        FROM predicate p JOIN indexed_rule f ON f.rule = p.rule {"LEFT " + bucketed if bucketed else ""}
        WHERE p.fact IS NULL GROUP BY p.rule, p.path, p.op, p.number, p.text""",
    )


# -- rows ----------------------------------------------------------------------------------------------


def _index_unrolled(database: DuckDBDatabase, connection: Connection) -> StructureSize:
    """Insert one row for each rule, its rarest equality first: rows are found by the first fact."""
    connection.create_temp_table(
        "fact_use",
        """
        SELECT p.fact, count(*) AS uses
        FROM predicate p
             JOIN (SELECT DISTINCT q.fact FROM predicate q JOIN indexed_rule f ON f.rule = q.rule) n
                  ON n.fact = p.fact
        GROUP BY p.fact""",
    )
    connection.create_temp_table(
        "facts_in_order",
        f"""
        SELECT rule, fact, row_number() OVER (PARTITION BY rule ORDER BY rank, uses, fact) AS level,
               count(*) OVER (PARTITION BY rule) AS size
        FROM (SELECT DISTINCT p.rule, p.fact, u.uses,
                     CASE WHEN p.op BETWEEN {EXISTS + 1} AND {EQUAL_NUMBER} THEN 0
                          WHEN p.op = {EXISTS} THEN 2 ELSE 1 END AS rank
              FROM predicate p JOIN indexed_rule f ON f.rule = p.rule
                               JOIN fact_use u ON u.fact = p.fact) o""",
    )
    _order_bounds(connection, "min(p.n)")
    connection.create_temp_table(
        "start",
        f"""
        SELECT rule, row_number() OVER () AS pre
        FROM (SELECT rule FROM facts_in_order WHERE level > {FACT_COLUMNS}
              UNION SELECT rule FROM bounds_in_order WHERE level > {BOUND_COLUMNS}) r""",
    )
    chained = connection.value("SELECT count(*) FROM start")
    before = database.allocate_ids("chain", chained) - 1
    connection.run(f"UPDATE start SET pre = pre + {before}")
    _insert_unrolled_rows(connection)
    connection.create_temp_table(
        "ordered_fact",
        f"""
        SELECT rule, level - {FACT_COLUMNS} AS level, fact, level = size AS ended
        FROM facts_in_order WHERE level > {FACT_COLUMNS}""",
    )
    connection.create_temp_table(
        "ordered_bound",
        f"""
        SELECT rule, level - {BOUND_COLUMNS} AS level, path, op, number, text, level = size AS ended
        FROM bounds_in_order WHERE level > {BOUND_COLUMNS}""",
    )
    facts, bounds = insert_chains(database, connection, share=False) if chained else (0, 0)
    max_level = "SELECT coalesce(max(level), 0) FROM {}_in_order"
    return StructureSize(
        min(FACT_COLUMNS, connection.value(max_level.format("facts"))),
        min(BOUND_COLUMNS, connection.value(max_level.format("bounds"))),
        facts,
        bounds,
    )


def _insert_unrolled_rows(connection: Connection) -> None:
    facts = ", ".join(
        f"coalesce(max(CASE WHEN level = {i} THEN fact END), {NO_FACT}) AS fact{i}"
        for i in range(1, FACT_COLUMNS + 1)
    )
    bounds = ", ".join(
        f"coalesce(max(CASE WHEN level = {i} THEN path END), {NO_PATH}) AS path{i}, "
        f"coalesce(max(CASE WHEN level = {i} THEN op END), {ALWAYS}) AS op{i}, "
        f"max(CASE WHEN level = {i} THEN number END) AS number{i}, "
        f"max(CASE WHEN level = {i} THEN text END) AS text{i}"
        for i in range(1, BOUND_COLUMNS + 1)
    )
    bound_columns = ", ".join(
        f"coalesce(b.path{i}, {NO_PATH}) AS path{i}, coalesce(b.op{i}, {ALWAYS}) AS op{i}, "
        f"b.number{i}, b.text{i}"
        for i in range(1, BOUND_COLUMNS + 1)
    )
    fact_columns = ", ".join(f"f.fact{i}" for i in range(1, FACT_COLUMNS + 1))
    connection.run(
        f"""
        INSERT INTO unrolled BY NAME
        SELECT f.rule, s.pre AS next, {fact_columns}, {bound_columns}
        FROM (SELECT rule, {facts} FROM facts_in_order WHERE level <= {FACT_COLUMNS}
              GROUP BY rule) f
             LEFT JOIN (SELECT rule, {bounds} FROM bounds_in_order WHERE level <= {BOUND_COLUMNS}
                        GROUP BY rule) b ON b.rule = f.rule
             LEFT JOIN start s ON s.rule = f.rule
        ORDER BY f.fact1"""
    )


def unindex_rules(connection: Connection, deleted: str) -> None:
    """Delete rules from the access structure; `deleted` is a table with a column `rule`."""
    connection.run(f"DELETE FROM unrolled WHERE rule IN (SELECT rule FROM {deleted})")
    delete_chains(connection, deleted)
