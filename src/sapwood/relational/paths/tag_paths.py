"""The catalog of the tag paths of messages, and of the linear paths that match them.

Linear paths are looked up by their literal prefixes and suffixes, and those found are matched. Only tag paths
that some linear path matches are stored in tables; those without a match are cached in memory only.

All of it is a cache, bounded by MAX_TAG_PATHS: data with ever new names clears it now and then.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sapwood.relational.paths.linear_path import (
    LinearPath,
    TagPath,
    find_positions,
    format_reversed_tag_path,
    format_tag_path,
    lookup_keys,
    parse_linear_path,
    parse_tag_path,
)
from sapwood.relational.paths.path_classes import assign_path_classes
from sapwood.relational.paths.path_index import PathIndex
from sapwood.relational.paths.tag_tree import MAX_TAG_PATHS, TagTree
from sapwood.relational.storage.duckdb_database import Connection, DuckDBDatabase

_log = logging.getLogger(__name__)

_LONGEST_STEPS = "coalesce(max(length({0}) - length(replace({0}, '/', ''))) + 1, 0)"
"""an upper bound of the steps of the longest text: namespaces may have slashes, too"""
_CANDIDATES = """
    SELECT p.id, p.text, p.uses
    FROM linear_path p SEMI JOIN lookup l ON l.prefix = p.prefix AND l.suffix = p.suffix"""
_PATHS_PER_FETCH = 20_000
"""linear paths in memory at a time"""


class TagPathCatalog(TagTree):
    """The tag tree of the tables: resolves new tag paths against the linear paths, and stores matches."""

    def __init__(self, database: DuckDBDatabase) -> None:
        super().__init__()
        self._database = database
        self.reload()

    def reload(self) -> None:
        """Load the stored tag paths, and discard those that are in memory only."""
        rows = self._database.writer.rows("SELECT text, id FROM tag_path")
        self.numbers = {parse_tag_path(text): id for text, id in rows}
        self._reload_uses()

    def _reload_uses(self) -> None:
        """Load the uses of tag paths, after a change of linear paths or of their uses."""
        self.uses = dict(
            self._database.writer.rows(
                """
                SELECT m.tag, bit_or(p.uses) FROM path_match m JOIN linear_path p ON p.id = m.path
                GROUP BY m.tag"""
            )
        )
        self._longest: tuple[int, int] = self._database.writer.rows(
            f"SELECT {_LONGEST_STEPS.format('prefix')}, {_LONGEST_STEPS.format('suffix')} FROM linear_path"
        )[0]
        self.reset()

    # -- new tag paths of messages -----------------------------------------------------------------------

    def evict_if_full(self) -> None:
        """Clear the cache if it is too large. Only between batches: value rows refer to its ids."""
        if len(self.numbers) > MAX_TAG_PATHS:
            _log.info("cache of %d tag paths cleared: messages have ever new names", len(self.numbers))
            try:
                with self._database.write_transaction():
                    self._database.clear_message_cache()
            finally:
                self.reload()

    def resolve(self, new: list[TagPath]) -> None:
        """Match new tag paths with all linear paths; the caller holds the database's lock."""
        found = self._find_matches(new)
        self.numbers.update(dict.fromkeys(new, 0))
        if found:
            try:
                with self._database.write_transaction() as connection:
                    self._insert_matches(connection, found)
            except BaseException:
                self.reload()  # or the next batch would take them for resolved
                raise

    def _find_matches(self, tags: list[TagPath]) -> dict[TagPath, dict[int, int]]:
        """Return the tag paths that match, each with the ids of linear paths and their uses."""
        ends = list({ends for tag in tags for ends in lookup_keys(tag, self._longest)})
        lookup = pa.table(
            {
                "prefix": pa.array([prefix for prefix, _ in ends], pa.string()),
                "suffix": pa.array([suffix for _, suffix in ends], pa.string()),
            }
        )
        found: dict[TagPath, dict[int, int]] = {}
        with self._database.writer.register(lookup=lookup):
            for rows in self._database.writer.stream(_CANDIDATES, _PATHS_PER_FETCH):
                ids, texts, uses = (column.to_pylist() for column in rows.columns)
                uses_by_id = dict(zip(ids, uses, strict=True))
                candidates = PathIndex(dict(zip(ids, map(parse_linear_path, texts), strict=True)))
                for tag, paths in candidates.match(tags):
                    found.setdefault(tag, {}).update((id, uses_by_id[id]) for id in paths)
        return found

    def _insert_matches(self, connection: Connection, found: Mapping[TagPath, Mapping[int, int]]) -> None:
        """Store matches, allocating ids for tag paths that have none."""
        new = [tag for tag in found if not self.numbers.get(tag)]
        first = self._database.allocate_ids("tag", len(new))
        self.numbers.update(zip(new, range(first, first + len(new)), strict=True))
        connection.insert(
            "tag_path",
            pa.table(
                {
                    "id": pa.array(range(first, first + len(new)), pa.int32()),
                    "text": pa.array(map(format_tag_path, new), pa.string()),
                    "reversed": pa.array(map(format_reversed_tag_path, new), pa.string()),
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
        assign_path_classes(self._database, connection, matched)

    # -- new linear paths of subscriptions -----------------------------------------------------------------

    def add_paths(self, connection: Connection, paths: Mapping[int, LinearPath], changed: set[int]) -> None:
        """Match new linear paths with all tag paths; `changed` are paths whose uses have grown."""
        found = {
            tag: dict.fromkeys(ids, 0) for tag, ids in PathIndex(paths).match(self.numbers if paths else ())
        }
        if found:
            self._insert_matches(connection, found)
        old = pa.table({"path": pa.array(sorted(changed - paths.keys()), pa.int32())})
        assign_path_classes(self._database, connection, old)
        self._reload_uses()

    # -- positions of branching points ---------------------------------------------------------------------

    def locate_branching_nodes(self, missing: list[tuple[Any, ...]]) -> pa.Table:
        """Return the rows of `tag_branching` for those that are missing.

        Each is given by the ids of tag path and branching, and the texts of tag path, linear path and points.
        """
        tags: list[int] = []
        branchings: list[int] = []
        positions: list[tuple[int, ...] | None] = []
        for tag, branching, tag_text, path_text, points in missing:
            at = tuple(int(point.partition("=")[2]) for point in points.split("&"))
            vectors = find_positions(parse_linear_path(path_text), parse_tag_path(tag_text), at)
            for vector in [None] if vectors is None else vectors:
                tags.append(tag)
                branchings.append(branching)
                positions.append(vector)
        return pa.table(
            {
                "tag": pa.array(tags, pa.int32()),
                "branching": pa.array(branchings, pa.int32()),
                "positions": pa.array(positions, pa.list_(pa.int32())),
            }
        )
