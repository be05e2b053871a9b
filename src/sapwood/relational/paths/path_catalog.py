"""The catalog of linear paths, their branching points, and the shapes of rules.

Paths are few compared with subscriptions, so the first subscription loads their texts into memory. New ones
are written together, within the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag

import pyarrow as pa

from sapwood.relational.paths.linear_path import LinearPath
from sapwood.relational.rules.comparisons import (
    CONTAINS,
    EQUAL_NUMBER,
    EQUAL_TEXT,
    EXISTS,
    OTHER_TEXT,
    STARTS,
)
from sapwood.relational.rules.rule_form import Branch, Rule
from sapwood.relational.storage.duckdb_database import Connection, DuckDBDatabase


class Uses(IntFlag):
    """The columns of value rows that predicates on a path read; stored in `linear_path.uses`."""

    PRESENCE = 1
    TEXT = 2
    TEXT_KEY = 4
    NUMBER = 8
    NUMBER_KEY = 16
    NODES = 32
    EXTENT = 64


_OPERATOR_USES = {
    EXISTS: Uses.PRESENCE,
    EQUAL_TEXT: Uses.TEXT | Uses.TEXT_KEY,
    EQUAL_NUMBER: Uses.NUMBER | Uses.NUMBER_KEY,
    CONTAINS: Uses.TEXT,
    STARTS: Uses.TEXT,
    OTHER_TEXT: Uses.TEXT | Uses.EXTENT,
}


def required_uses(op: int, branching: bool) -> int:
    """Return the `Uses` of a predicate with this operator."""
    uses = _OPERATOR_USES.get(op, Uses.NUMBER | Uses.EXTENT)
    return int(uses | Uses.NODES if branching else uses)


class PathCatalog:
    """The ids of linear paths, branchings and shapes by their texts."""

    def __init__(self, database: DuckDBDatabase) -> None:
        self._database = database
        self._paths: dict[str, int] | None = None
        self._uses: dict[int, int] = {}
        self._branchings: dict[tuple[int, str], int] = {}
        self._shapes: dict[str, int] = {}
        self.clear_new()

    def clear_new(self) -> None:
        """Start an empty list of new rows, after the transaction that wrote them."""
        self.new_paths: dict[int, LinearPath] = {}
        self._changed: set[int] = set()
        self._new_branchings: list[tuple[int, int, str]] = []
        self._new_shapes: list[tuple[int, str]] = []
        self._new_parts: list[tuple[int, int, int, int, int]] = []

    def discard_new(self) -> None:
        """Discard new rows after a transaction that failed, and load the catalog again."""
        self._paths = None
        self.clear_new()

    def __len__(self) -> int:
        return len(self._load())

    def _load(self) -> dict[str, int]:
        if self._paths is None:
            rows = self._database.writer.rows
            found = rows("SELECT text, id, uses FROM linear_path")
            self._uses = {id: uses for _, id, uses in found}
            self._branchings = {
                (path, points): id for id, path, points in rows("SELECT id, path, points FROM path_branching")
            }
            self._shapes = {text: id for id, text in rows("SELECT id, branchings FROM shape")}
            self._paths = {text: id for text, id, _ in found}
        return self._paths

    def path(self, path: LinearPath, uses: int) -> int:
        """Return the id of a path, and add to its uses."""
        ids = self._load()
        text = path.text
        id = ids.get(text)
        if id is None:
            id = ids[text] = self._database.allocate_ids("path", 1)
            self.new_paths[id] = path
            self._uses[id] = 0
        if uses & ~self._uses[id]:
            self._uses[id] |= uses
            self._changed.add(id)
        return id

    def branching(self, branch: Branch, path: int) -> int | None:
        """Return the id of a branch's path with its branching points; None if it has none."""
        if not branch.points:
            return None
        points = "&".join(f"bp{point}={step}" for point, step in branch.points)
        self._load()
        id = self._branchings.get((path, points))
        if id is None:
            id = self._branchings[path, points] = self._database.allocate_ids("branching", 1)
            self._new_branchings.append((id, path, points))
        return id

    def shape(self, rule: Rule, branchings: Sequence[int | None]) -> int | None:
        """Return the id of the tree of a rule's branching points; None if it has none."""
        if not any(branchings):
            return None
        text = "&".join(str(branching or 0) for branching in branchings)
        self._load()
        id = self._shapes.get(text)
        if id is None:
            id = self._shapes[text] = self._database.allocate_ids("shape", 1)
            self._new_shapes.append((id, text))
            self._new_parts += [(id, *part) for part in shape_parts(rule)]
        return id

    def write(self, connection: Connection) -> set[int]:
        """Write new rows; return the paths whose uses have grown, new ones included."""
        connection.insert(
            "linear_path",
            pa.table(
                {
                    "id": pa.array(list(self.new_paths), pa.int32()),
                    "text": pa.array([path.text for path in self.new_paths.values()], pa.string()),
                    "prefix": pa.array([path.prefix for path in self.new_paths.values()], pa.string()),
                    "suffix": pa.array([path.suffix for path in self.new_paths.values()], pa.string()),
                    "middle": pa.array([path.middle for path in self.new_paths.values()], pa.string()),
                    "uses": pa.array([self._uses[id] for id in self.new_paths], pa.int32()),
                }
            ),
        )
        old = sorted(self._changed - self.new_paths.keys())
        if old:
            changed = pa.table({"id": old, "uses": [self._uses[id] for id in old]})
            with connection.register(changed=changed):
                connection.run(
                    "UPDATE linear_path SET uses = c.uses FROM changed c WHERE c.id = linear_path.id"
                )
        _insert_rows(connection, "path_branching", ("id", "path", "points"), self._new_branchings)
        _insert_rows(connection, "shape", ("id", "branchings"), self._new_shapes)
        columns = ("shape", "part", "parent", "depth", "siblings")
        _insert_rows(connection, "shape_part", columns, self._new_parts)
        return set(self._changed)


def shape_parts(rule: Rule) -> list[tuple[int, int, int, int]]:
    """Return the rows of `shape_part`: part, parent, depth and number of siblings.

    Parts are a rule's branches, counted from 1, and its branching points, as negative numbers. The parent is
    the branching point above (0: none), the depth the number of branching points above.
    """
    found: dict[int, tuple[int, int]] = {}
    for number, branch in enumerate(rule.branches, 1):
        above = [0, *(-point for point, _ in branch.points)]
        for depth, point in enumerate(above[1:]):
            found[point] = above[depth], depth
        if branch.points:
            found[number] = above[-1], len(branch.points)
    siblings: dict[int, int] = {}
    for parent, _ in found.values():
        siblings[parent] = siblings.get(parent, 0) + 1
    return [(part, parent, depth, siblings[parent]) for part, (parent, depth) in sorted(found.items())]


def _insert_rows(
    connection: Connection, table: str, names: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> None:
    if rows:
        columns = zip(*rows, strict=True)
        connection.insert(table, pa.table(dict(zip(names, map(list, columns), strict=True))))
