"""The tag paths of messages, and which linear paths match them.

Linear paths are looked up by their literal beginnings and ends, and those found are checked. Only tag
paths that some linear path matches are put on record; that others match none is remembered in memory, and
found out again by the next process.

All of it is a cache, bounded by MOST_TAGS: data with ever new names empties it now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sapwood.relational.paths.linear_path import (
    LinearPath,
    TagPath,
    lookups,
    parse_linear,
    parse_tag,
    positions,
    reversed_text,
    tag_text,
)
from sapwood.relational.paths.path_classes import classify
from sapwood.relational.paths.path_index import PathMatches
from sapwood.relational.paths.tag_tree import MOST_TAGS, TagTree
from sapwood.relational.storage.duckdb_database import Connection, Tables

_STEPS = "coalesce(max(length({0}) - length(replace({0}, '/', ''))) + 1, 0)"
"""the steps of the longest text, or more: namespaces may have slashes, too"""
_CANDIDATES = """
    SELECT p.id, p.text, p.uses
    FROM linear_path p SEMI JOIN asked a ON a.prefix = p.prefix AND a.suffix = p.suffix"""
_AT_ONCE = 20_000
"""linear paths in memory at a time"""


class Tags(TagTree):
    """The tag paths that are known, kept in step with the linear paths."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables
        self.reload()

    def reload(self) -> None:
        """Takes over what is on record, and forgets the rest."""
        rows = self._tables.writer.rows("SELECT text, id FROM tag_path")
        self.numbers = {parse_tag(text): id for text, id in rows}
        self._renew()

    def _renew(self) -> None:
        """The linear paths have changed, or what is wanted of them."""
        self.uses = dict(
            self._tables.writer.rows(
                """
                SELECT m.tag, bit_or(p.uses) FROM path_match m JOIN linear_path p ON p.id = m.path
                GROUP BY m.tag"""
            )
        )
        self._longest: tuple[int, int] = self._tables.writer.rows(
            f"SELECT {_STEPS.format('prefix')}, {_STEPS.format('suffix')} FROM linear_path"
        )[0]
        self.plant()

    # -- messages bring tag paths ------------------------------------------------------------------------

    def settle(self) -> None:
        """Empties the cache if it has become too large. Not within a batch, whose rows have its numbers."""
        if len(self.numbers) > MOST_TAGS:
            try:
                with self._tables.changing():
                    self._tables.forget_messages()
            finally:
                self.reload()

    def find_out(self, new: list[TagPath]) -> None:
        """Matches new tag paths with all linear paths. In the caller's keeping of the tables' lock."""
        found = self._matching(new)
        self.numbers.update(dict.fromkeys(new, 0))
        if found:
            try:
                with self._tables.changing() as connection:
                    self._record(connection, found)
            except BaseException:
                self.reload()  # or the next batch would believe that it knows them
                raise

    def _matching(self, tags: list[TagPath]) -> dict[TagPath, dict[int, int]]:
        """The tag paths that linear paths match: their numbers, and what they want."""
        ends = list({ends for tag in tags for ends in lookups(tag, self._longest)})
        asked = pa.table(
            {
                "prefix": pa.array([prefix for prefix, _ in ends], pa.string()),
                "suffix": pa.array([suffix for _, suffix in ends], pa.string()),
            }
        )
        found: dict[TagPath, dict[int, int]] = {}
        with self._tables.writer.given(asked=asked):
            for rows in self._tables.writer.stream(_CANDIDATES, _AT_ONCE):
                ids, texts, uses = (column.to_pylist() for column in rows.columns)
                wanted = dict(zip(ids, uses, strict=True))
                candidates = PathMatches(dict(zip(ids, map(parse_linear, texts), strict=True)))
                for tag, paths in candidates.of(tags):
                    found.setdefault(tag, {}).update((id, wanted[id]) for id in paths)
        return found

    def _record(self, connection: Connection, found: Mapping[TagPath, Mapping[int, int]]) -> None:
        """Puts matches on record, numbering the tag paths that have no number yet."""
        new = [tag for tag in found if not self.numbers.get(tag)]
        first = self._tables.take("tag", len(new))
        self.numbers.update(zip(new, range(first, first + len(new)), strict=True))
        connection.insert(
            "tag_path",
            pa.table(
                {
                    "id": pa.array(range(first, first + len(new)), pa.int32()),
                    "text": pa.array(map(tag_text, new), pa.string()),
                    "reversed": pa.array(map(reversed_text, new), pa.string()),
                }
            ),
        )
        pairs = [(self.numbers[tag], path) for tag, paths in found.items() for path in paths]
        matched = pa.table(
            {
                "tag": pa.array([tag for tag, _ in pairs], pa.int32()),
                "path": pa.array([path for _, path in pairs], pa.int32()),
            }
        )
        connection.insert("path_match", matched)
        for tag, paths in found.items():
            number = self.numbers[tag]
            for uses in paths.values():
                self.uses[number] = self.uses.get(number, 0) | uses
        classify(self._tables, connection, matched)

    # -- subscriptions bring linear paths ------------------------------------------------------------------

    def add_paths(self, connection: Connection, paths: Mapping[int, LinearPath], changed: set[int]) -> None:
        """Matches new linear paths with all tag paths known; `changed` are those of which more is wanted."""
        found = {
            tag: dict.fromkeys(ids, 0) for tag, ids in PathMatches(paths).of(self.numbers if paths else ())
        }
        if found:
            self._record(connection, found)
        old = pa.table({"path": pa.array(sorted(changed - paths.keys()), pa.int32())})
        classify(self._tables, connection, old)
        self._renew()

    # -- where branching points lie ------------------------------------------------------------------------

    def place_points(self, missing: list[tuple[Any, ...]]) -> pa.Table:
        """Where the branching points lie on tag paths: for rows of tag path, branching, and the texts of tag
        path, linear path and points, the rows of `tag_branching`."""
        tags: list[int] = []
        branchings: list[int] = []
        places: list[tuple[int, ...] | None] = []
        for tag, branching, tag_spelt, path_spelt, points in missing:
            at = tuple(int(point.partition("=")[2]) for point in points.split("&"))
            vectors = positions(parse_linear(path_spelt), parse_tag(tag_spelt), at)
            for vector in [None] if vectors is None else vectors:
                tags.append(tag)
                branchings.append(branching)
                places.append(vector)
        return pa.table(
            {
                "tag": pa.array(tags, pa.int32()),
                "branching": pa.array(branchings, pa.int32()),
                "positions": pa.array(places, pa.list_(pa.int32())),
            }
        )
