"""Rules in chains: equal beginnings are stored once, and deleted with the last rule that has them.

Whoever files rules hands over temporary tables:

    start           rule, pre: where each begins
    ordered_fact    rule, level, fact, ended: its facts in order from level 1, `ended` the last of them
    ordered_bound   rule, level, path, op, number, text, ended: its bounds likewise
"""

from __future__ import annotations

from typing import NamedTuple

from sapwood.relational.storage.duckdb_database import Connection, Tables


class _Stage(NamedTuple):
    table: str
    ordered: str
    columns: tuple[str, ...]

    @property
    def listed(self) -> str:
        return ", ".join(self.columns)

    def listed_of(self, alias: str) -> str:
        return ", ".join(f"{alias}.{column}" for column in self.columns)

    def same(self, left: str, right: str) -> str:
        """That two rows ask the same; bounds have nulls."""
        return " AND ".join(
            f"{left}.{column} IS NOT DISTINCT FROM {right}.{column}"
            if column in ("number", "text")
            else f"{left}.{column} = {right}.{column}"
            for column in ("pre", *self.columns)
        )


_FACTS = _Stage("fact_chain", "ordered_fact", ("fact",))
_BOUNDS = _Stage("bound_chain", "ordered_bound", ("path", "op", "number", "text"))


def file_chains(tables: Tables, connection: Connection, share: bool) -> tuple[int, int]:
    """Files the rules handed over; how many levels of facts and of bounds they have."""
    connection.keep("begun", "SELECT rule, pre FROM start")
    facts = _file(tables, connection, _FACTS, share, last=False)
    # begun now has each rule with the end of its facts
    bounds = _file(tables, connection, _BOUNDS, share, last=True)
    return facts, bounds


def _file(tables: Tables, connection: Connection, stage: _Stage, share: bool, last: bool) -> int:
    levels = connection.value(f"SELECT max(level) FROM {stage.ordered}") or 0
    for level in range(1, levels + 1):
        # a rule is through with its last bound, or with its last fact if it has no bounds
        through = "o.ended" if last else "o.ended AND NOT EXISTS (FROM ordered_bound b WHERE b.rule = o.rule)"
        connection.keep(
            "arriving",
            f"""
            SELECT o.rule, s.pre, {stage.listed_of("o")}, {through} AS final
            FROM {stage.ordered} o JOIN begun s ON s.rule = o.rule WHERE o.level = {level}""",
        )
        connection.run(
            f"""
            INSERT INTO {stage.table} BY NAME
            SELECT {level} AS level, pre, {stage.listed}, rule AS id, true AS final
            FROM arriving WHERE final"""
        )
        _place(tables, connection, stage, level, share)
        connection.keep(
            "begun",
            f"""
            SELECT a.rule, p.id AS pre FROM arriving a JOIN placed p ON {stage.same("a", "p")}
            WHERE NOT a.final
            UNION ALL
            SELECT s.rule, s.pre FROM begun s ANTI JOIN arriving a ON a.rule = s.rule""",
        )
    return int(levels)


def _place(tables: Tables, connection: Connection, stage: _Stage, level: int, share: bool) -> None:
    """Makes `placed`: each distinct row that goes on, with the number of the old one or a new one."""
    connection.keep("going", f"SELECT DISTINCT pre, {stage.listed} FROM arriving WHERE NOT final")
    if share:
        connection.keep(
            "placed",
            f"""
            SELECT c.pre, {stage.listed_of("c")}, c.id
            FROM {stage.table} c JOIN going g ON {stage.same("c", "g")}
            WHERE c.level = {level} AND NOT c.final""",
        )
        connection.keep("fresh", f"SELECT * FROM going g ANTI JOIN placed p ON {stage.same('g', 'p')}")
    else:
        connection.keep("placed", f"SELECT pre, {stage.listed}, CAST(0 AS BIGINT) AS id FROM going LIMIT 0")
        connection.keep("fresh", "SELECT * FROM going")
    count = connection.value("SELECT count(*) FROM fresh")
    if not count:
        return
    before = tables.take("chain", count) - 1
    connection.keep("numbered", f"SELECT *, {before} + row_number() OVER () AS id FROM fresh")
    connection.run(
        f"""
        INSERT INTO {stage.table} BY NAME
        SELECT {level} AS level, *, false AS final FROM numbered"""
    )
    connection.run("INSERT INTO placed BY NAME SELECT * FROM numbered")


def unfile_chains(connection: Connection, gone: str) -> None:
    """Takes rules out, backwards from their last rows as far as nobody else uses them.

    `gone` is a table with a column `rule`.
    """
    connection.keep(
        "bared",
        f"""
        SELECT DISTINCT c.pre FROM fact_chain c JOIN {gone} g ON g.rule = c.id WHERE c.final
        UNION
        SELECT DISTINCT c.pre FROM bound_chain c JOIN {gone} g ON g.rule = c.id WHERE c.final""",
    )
    for stage in (_FACTS, _BOUNDS):
        connection.run(f"DELETE FROM {stage.table} WHERE final AND id IN (SELECT rule FROM {gone})")
    while True:
        connection.keep(
            "unused",
            """
            SELECT pre AS id FROM bared
            WHERE pre <> 0 AND pre NOT IN (SELECT pre FROM fact_chain)
                           AND pre NOT IN (SELECT pre FROM bound_chain)""",
        )
        if not connection.value("SELECT count(*) FROM unused"):
            return
        connection.keep(
            "bared",
            """
            SELECT DISTINCT c.pre FROM fact_chain c JOIN unused u ON u.id = c.id WHERE NOT c.final
            UNION
            SELECT DISTINCT c.pre FROM bound_chain c JOIN unused u ON u.id = c.id WHERE NOT c.final""",
        )
        for stage in (_FACTS, _BOUNDS):
            connection.run(f"DELETE FROM {stage.table} WHERE NOT final AND id IN (SELECT id FROM unused)")
