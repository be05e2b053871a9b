"""Vacuum: deletes rows that no subscription uses any more, which are harmless until then."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

import duckdb

from sapwood.relational.paths.path_catalog import required_uses
from sapwood.relational.rules.comparisons import ALWAYS
from sapwood.relational.storage.duckdb_database import Connection, DuckDBDatabase

_log = logging.getLogger(__name__)

_UNUSED_ROWS = {
    "fact": "id NOT IN (SELECT fact FROM predicate WHERE fact IS NOT NULL)",
    "path_branching": "id NOT IN (SELECT branching FROM predicate WHERE branching IS NOT NULL)",
    "shape": "id NOT IN (SELECT shape FROM rule WHERE shape IS NOT NULL)",
    "shape_part": "shape NOT IN (SELECT id FROM shape)",
    "linear_path": "id NOT IN (SELECT path FROM predicate)",
    "path_match": "path NOT IN (SELECT id FROM linear_path)",
    "tag_path": "id NOT IN (SELECT tag FROM path_match)",
    "tag_branching": """branching NOT IN (SELECT id FROM path_branching)
                        OR tag NOT IN (SELECT id FROM tag_path)""",
    "path_class": "path > 0 AND path NOT IN (SELECT id FROM linear_path)",
    "class_tag": "class NOT IN (SELECT class FROM path_class)",
    "class_member": "class NOT IN (SELECT class FROM path_class)",
}
"""Conditions for unused rows, in this order: a row deleted from one may be the last use of another."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """The result of a vacuum: rows deleted from each table, and the size of the file."""

    dropped: dict[str, int]
    bytes: int

    def __str__(self) -> str:
        parts = [f"{count:,} of {table}" for table, count in self.dropped.items() if count]
        return f"dropped {', '.join(parts) if parts else 'nothing'}; the file has {self.bytes:,} bytes"


def vacuum(database: DuckDBDatabase) -> Garbage:
    """Delete unused rows in one transaction, and checkpoint the file."""
    dropped = {}
    with database.write_transaction() as connection:
        for table, unused in _UNUSED_ROWS.items():
            dropped[table] = int(connection.value(f"SELECT count(*) FROM {table} WHERE {unused}"))
            if dropped[table]:
                connection.run(f"DELETE FROM {table} WHERE {unused}")
        _reset_path_uses(connection)
    with suppress(duckdb.TransactionException):  # batches are running; closing the file does it, too
        database.writer.run("CHECKPOINT")
    size = database.path.stat().st_size if database.path is not None else 0
    garbage = Garbage(dropped, size)
    _log.info("vacuum of %s: %s", database.path or "tables in memory", garbage)
    return garbage


def _reset_path_uses(connection: Connection) -> None:
    """Reset the uses of paths to those of the predicates that are left."""
    op_uses = " ".join(f"WHEN {op} THEN {required_uses(op, False)}" for op in range(ALWAYS))
    nodes = required_uses(0, True) & ~required_uses(0, False)
    connection.run(
        f"""
        UPDATE linear_path SET uses = w.uses
        FROM (SELECT path, bit_or(CASE op {op_uses} END | CASE WHEN branching IS NULL THEN 0 ELSE {nodes} END)
                     AS uses
              FROM predicate GROUP BY path) w
        WHERE w.path = linear_path.id AND w.uses <> linear_path.uses"""
    )
