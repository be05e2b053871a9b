"""Rules as chains of facts and bounds: a trie in tables, in which equal prefixes are stored once.

A row is a node, reached from the node `pre`. The rules to insert are given by temporary tables:

    start           rule, pre: the node at which each begins
    ordered_fact    rule, level, fact, ended: its facts in order from level 1, `ended` marks the last
    ordered_bound   rule, level, path, op, number, text, ended: its bounds likewise
"""

from __future__ import annotations

from typing import NamedTuple

from sapwood.relational.storage.duckdb_database import Connection, DuckDBDatabase


class _ChainTable(NamedTuple):
    """A table of chain nodes, with its input and the columns that a node compares."""

    table: str
    ordered: str
    columns: tuple[str, ...]

    @property
    def column_list(self) -> str:
        return ", ".join(self.columns)

    def qualified_columns(self, alias: str) -> str:
        return ", ".join(f"{alias}.{column}" for column in self.columns)

    def same_node(self, left: str, right: str) -> str:
        """Return the condition that two rows are the same node; bounds have nulls."""
        return " AND ".join(
            f"{left}.{column} IS NOT DISTINCT FROM {right}.{column}"
            if column in ("number", "text")
            else f"{left}.{column} = {right}.{column}"
            for column in ("pre", *self.columns)
        )


_FACTS = _ChainTable("fact_chain", "ordered_fact", ("fact",))
_BOUNDS = _ChainTable("bound_chain", "ordered_bound", ("path", "op", "number", "text"))


def insert_chains(database: DuckDBDatabase, connection: Connection, share: bool) -> tuple[int, int]:
    """Insert rules; return the number of levels of their facts and of their bounds."""
    connection.create_temp_table("reached", "SELECT rule, pre FROM start")
    facts = _insert_levels(database, connection, _FACTS, share, last=False)
    # now `reached` has for each rule the last node of its facts
    bounds = _insert_levels(database, connection, _BOUNDS, share, last=True)
    return facts, bounds


def _insert_levels(
    database: DuckDBDatabase, connection: Connection, chain: _ChainTable, share: bool, last: bool
) -> int:
    levels = connection.value(f"SELECT max(level) FROM {chain.ordered}") or 0
    for level in range(1, levels + 1):
        # a rule ends with its last bound, or with its last fact if it has no bounds
        final = "o.ended" if last else "o.ended AND NOT EXISTS (FROM ordered_bound b WHERE b.rule = o.rule)"
        connection.create_temp_table(
            "level_row",
            f"""
            SELECT o.rule, s.pre, {chain.qualified_columns("o")}, {final} AS final
            FROM {chain.ordered} o JOIN reached s ON s.rule = o.rule WHERE o.level = {level}""",
        )
        connection.run(
            f"""
            INSERT INTO {chain.table} BY NAME
            SELECT {level} AS level, pre, {chain.column_list}, rule AS id, true AS final
            FROM level_row WHERE final"""
        )
        _insert_nodes(database, connection, chain, level, share)
        connection.create_temp_table(
            "reached",
            f"""
            SELECT r.rule, n.id AS pre FROM level_row r JOIN node n ON {chain.same_node("r", "n")}
            WHERE NOT r.final
            UNION ALL
            SELECT s.rule, s.pre FROM reached s ANTI JOIN level_row r ON r.rule = s.rule""",
        )
    return int(levels)


def _insert_nodes(
    database: DuckDBDatabase, connection: Connection, chain: _ChainTable, level: int, share: bool
) -> None:
    """Create the table `node`: the inner nodes of a level, each with its existing or a new id."""
    connection.create_temp_table(
        "inner_row", f"SELECT DISTINCT pre, {chain.column_list} FROM level_row WHERE NOT final"
    )
    if share:
        connection.create_temp_table(
            "node",
            f"""
            SELECT c.pre, {chain.qualified_columns("c")}, c.id
            FROM {chain.table} c JOIN inner_row r ON {chain.same_node("c", "r")}
            WHERE c.level = {level} AND NOT c.final""",
        )
        connection.create_temp_table(
            "new_node", f"SELECT * FROM inner_row r ANTI JOIN node n ON {chain.same_node('r', 'n')}"
        )
    else:
        connection.create_temp_table(
            "node", f"SELECT pre, {chain.column_list}, CAST(0 AS BIGINT) AS id FROM inner_row LIMIT 0"
        )
        connection.create_temp_table("new_node", "SELECT * FROM inner_row")
    count = connection.value("SELECT count(*) FROM new_node")
    if not count:
        return
    before = database.allocate_ids("chain", count) - 1
    connection.create_temp_table(
        "numbered_node", f"SELECT *, {before} + row_number() OVER () AS id FROM new_node"
    )
    connection.run(
        f"""
        INSERT INTO {chain.table} BY NAME
        SELECT {level} AS level, *, false AS final FROM numbered_node"""
    )
    connection.run("INSERT INTO node BY NAME SELECT * FROM numbered_node")


def delete_chains(connection: Connection, deleted: str) -> None:
    """Delete rules, from their last nodes backwards as far as no other rule shares them.

    `deleted` is a table with a column `rule`.
    """
    connection.create_temp_table(
        "parent",
        f"""
        SELECT DISTINCT c.pre FROM fact_chain c JOIN {deleted} g ON g.rule = c.id WHERE c.final
        UNION
        SELECT DISTINCT c.pre FROM bound_chain c JOIN {deleted} g ON g.rule = c.id WHERE c.final""",
    )
    for chain in (_FACTS, _BOUNDS):
        connection.run(f"DELETE FROM {chain.table} WHERE final AND id IN (SELECT rule FROM {deleted})")
    while True:
        connection.create_temp_table(
            "unused",
            """
            SELECT pre AS id FROM parent
            WHERE pre <> 0 AND pre NOT IN (SELECT pre FROM fact_chain)
                           AND pre NOT IN (SELECT pre FROM bound_chain)""",
        )
        if not connection.value("SELECT count(*) FROM unused"):
            return
        connection.create_temp_table(
            "parent",
            """
            SELECT DISTINCT c.pre FROM fact_chain c JOIN unused u ON u.id = c.id WHERE NOT c.final
            UNION
            SELECT DISTINCT c.pre FROM bound_chain c JOIN unused u ON u.id = c.id WHERE NOT c.final""",
        )
        for chain in (_FACTS, _BOUNDS):
            connection.run(f"DELETE FROM {chain.table} WHERE NOT final AND id IN (SELECT id FROM unused)")
