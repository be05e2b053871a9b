"""Linear paths, their branching points, and the shapes that these make: what new subscriptions bring.

Paths are few compared with subscriptions, so their texts are kept in memory once somebody subscribes; what is
new is written in one go, when the caller says so, within the caller's transaction.
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
from sapwood.relational.storage.duckdb_database import Connection, Tables


class Uses(IntFlag):
    """What predicates want of the values that a path reaches."""

    PRESENCE = 1
    TEXT = 2
    TEXT_KEY = 4
    NUMBER = 8
    NUMBER_KEY = 16
    NODES = 32
    EXTENT = 64


_WANTED = {
    EXISTS: Uses.PRESENCE,
    EQUAL_TEXT: Uses.TEXT | Uses.TEXT_KEY,
    EQUAL_NUMBER: Uses.NUMBER | Uses.NUMBER_KEY,
    CONTAINS: Uses.TEXT,
    STARTS: Uses.TEXT,
    OTHER_TEXT: Uses.TEXT | Uses.EXTENT,
}


def uses_of(op: int, branching: bool) -> int:
    """What a predicate with this operator wants."""
    wanted = _WANTED.get(op, Uses.NUMBER | Uses.EXTENT)
    return int(wanted | Uses.NODES if branching else wanted)


class Paths:
    """All linear paths, branchings and shapes by what they say, numbered."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._paths: dict[str, int] | None = None
        self._uses: dict[int, int] = {}
        self._branchings: dict[tuple[int, str], int] = {}
        self._shapes: dict[str, int] = {}
        self.forget_new()

    def forget_new(self) -> None:
        """After a transaction that failed: what was new is not there."""
        self._paths = None
        self.new_paths: dict[int, LinearPath] = {}
        self._changed: set[int] = set()
        self._new_branchings: list[tuple[int, int, str]] = []
        self._new_shapes: list[tuple[int, str]] = []
        self._new_parts: list[tuple[int, int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._known())

    def _known(self) -> dict[str, int]:
        if self._paths is None:
            rows = self._tables.writer.rows
            found = rows("SELECT text, id, uses FROM linear_path")
            self._uses = {id: uses for _, id, uses in found}
            self._branchings = {
                (path, points): id for id, path, points in rows("SELECT id, path, points FROM path_branching")
            }
            self._shapes = {text: id for id, text in rows("SELECT id, branchings FROM shape")}
            self._paths = {text: id for text, id, _ in found}
        return self._paths

    def path(self, path: LinearPath, uses: int) -> int:
        """The path's number; notes what is wanted of it."""
        known = self._known()
        text = path.text
        id = known.get(text)
        if id is None:
            id = known[text] = self._tables.take("path", 1)
            self.new_paths[id] = path
            self._uses[id] = 0
        if uses & ~self._uses[id]:
            self._uses[id] |= uses
            self._changed.add(id)
        return id

    def branching(self, branch: Branch, path: int) -> int | None:
        """The number of where a branch's branching points lie on its path; None if it has none."""
        if not branch.points:
            return None
        points = "&".join(f"bp{point}={step}" for point, step in branch.points)
        self._known()
        id = self._branchings.get((path, points))
        if id is None:
            id = self._branchings[path, points] = self._tables.take("branching", 1)
            self._new_branchings.append((id, path, points))
        return id

    def shape(self, rule: Rule, branchings: Sequence[int | None]) -> int | None:
        """The number of how a rule's branches hang together; None if they do not."""
        if not any(branchings):
            return None
        text = "&".join(str(branching or 0) for branching in branchings)
        self._known()
        id = self._shapes.get(text)
        if id is None:
            id = self._shapes[text] = self._tables.take("shape", 1)
            self._new_shapes.append((id, text))
            self._new_parts += [(id, *part) for part in parts(rule)]
        return id

    def write(self, connection: Connection) -> set[int]:
        """Writes what is new; the paths of which more is wanted than before, new ones among them."""
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
            with connection.given(changed=changed):
                connection.run(
                    "UPDATE linear_path SET uses = c.uses FROM changed c WHERE c.id = linear_path.id"
                )
        _insert(connection, "path_branching", ("id", "path", "points"), self._new_branchings)
        _insert(connection, "shape", ("id", "branchings"), self._new_shapes)
        columns = ("shape", "part", "parent", "depth", "siblings")
        _insert(connection, "shape_part", columns, self._new_parts)
        return set(self._changed)

    def written(self) -> None:
        """The transaction is done: nothing is new any more."""
        self.new_paths = {}
        self._changed = set()
        self._new_branchings, self._new_shapes, self._new_parts = [], [], []


def parts(rule: Rule) -> list[tuple[int, int, int, int]]:
    """A rule's branches, counted from 1, and branching points, negative: part, the point from which it hangs
    (0: none), how many points are above it, and how many hang from there."""
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


def _insert(
    connection: Connection, table: str, names: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> None:
    if rows:
        columns = zip(*rows, strict=True)
        connection.insert(table, pa.table(dict(zip(names, map(list, columns), strict=True))))
