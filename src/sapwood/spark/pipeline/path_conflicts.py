"""Conflicts between the paths and tables of a pipeline, of which none may be, or contain, another."""

from __future__ import annotations

import os
from itertools import combinations, permutations
from typing import TYPE_CHECKING

from sapwood.spark.io.file_system import local_path

if TYPE_CHECKING:
    from sapwood.spark.pipeline.config import PipelineConfig


def find_path_conflicts(given: PipelineConfig) -> list[str]:
    """Return an error for each two paths of which one is, or contains, the other."""
    paths = {
        "run.checkpoint": given.run.checkpoint,
        "deliveries.path": given.deliveries.path,
        "rejects.path": given.rejects.path,
    }
    known = {key: _normalize(path) for key, path in paths.items() if path is not None}
    found = []
    for (one, path), (other, outer) in permutations(known.items(), 2):
        if path == outer and one < other:
            found.append(f"{one} is also {other}: {path}; each needs a folder of its own")
        elif path != outer and path.startswith(outer.rstrip("/") + "/"):
            found.append(f"{one} is in {other}: {path} in {outer}; move it out of that folder")
    for number, source in enumerate(given.sources, 1):
        name = "source.path" if len(given.sources) == 1 else f"source #{number}.path"
        for key, path in known.items():
            if source.path is not None and _normalize(source.path) == path:
                found.append(f"{key} is also {name}: {path}; each needs a folder of its own")
    return found + _find_table_conflicts(given)


def _find_table_conflicts(given: PipelineConfig) -> list[str]:
    """Return an error for each sink whose table is that of another sink or a source."""
    tables = {"deliveries.table": given.deliveries.table, "rejects.table": given.rejects.table}
    for number, source in enumerate(given.sources, 1):
        tables["source.table" if len(given.sources) == 1 else f"source #{number}.table"] = source.table
    names = [(key, name.lower()) for key, name in tables.items() if name is not None]
    return [
        f"{key} is also {other}: {name}; each needs a table of its own"
        for (other, known), (key, name) in combinations(names, 2)
        if name == known and not other.startswith("source")
    ]


def _normalize(path: str) -> str:
    """Return the path without symbolic links, or the URI, so that equal folders compare equal."""
    local = local_path(path)
    return os.path.realpath(local) if local is not None else path.rstrip("/")
