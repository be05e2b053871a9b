"""What no subscription uses any more: found and deleted now and then, since nothing is wrong as long as it
stays."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import duckdb

from sapwood.relational.paths.path_catalog import uses_of
from sapwood.relational.rules.comparisons import ALWAYS
from sapwood.relational.storage.duckdb_database import Connection, Tables

_UNUSED = {
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
"""In this order: what is gone from one may have been the last use of another."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """How many rows of each table were dropped, and how many bytes the file has now."""

    dropped: dict[str, int]
    bytes: int

    def __str__(self) -> str:
        parts = [f"{count:,} of {table}" for table, count in self.dropped.items() if count]
        return f"dropped {', '.join(parts) if parts else 'nothing'}; the file has {self.bytes:,} bytes"


def collect(tables: Tables) -> Garbage:
    """Deletes what is not used, in one transaction, and writes the file's log into the file."""
    dropped = {}
    with tables.changing() as connection:
        for table, unused in _UNUSED.items():
            dropped[table] = int(connection.value(f"SELECT count(*) FROM {table} WHERE {unused}"))
            if dropped[table]:
                connection.run(f"DELETE FROM {table} WHERE {unused}")
        _narrow_uses(connection)
    with suppress(duckdb.TransactionException):  # batches are under way; it is done when the file is closed
        tables.writer.run("CHECKPOINT")
    size = tables.path.stat().st_size if tables.path is not None else 0
    return Garbage(dropped, size)


def _narrow_uses(connection: Connection) -> None:
    """Of paths, wants only what those who are left want."""
    wanted = " ".join(f"WHEN {op} THEN {uses_of(op, False)}" for op in range(ALWAYS))
    nodes = uses_of(0, True) & ~uses_of(0, False)
    connection.run(
        f"""
        UPDATE linear_path SET uses = w.uses
        FROM (SELECT path, bit_or(CASE op {wanted} END | CASE WHEN branching IS NULL THEN 0 ELSE {nodes} END)
                     AS uses
              FROM predicate GROUP BY path) w
        WHERE w.path = linear_path.id AND w.uses <> linear_path.uses"""
    )
