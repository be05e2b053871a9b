"""Conflicts between the paths, tables and topics of a pipeline: what it writes must not be what it reads."""

from __future__ import annotations

import os
from itertools import combinations, permutations
from typing import TYPE_CHECKING

from sapwood.spark.io.file_system import local_path
from sapwood.spark.kafka.kafka_options import KAFKA, SERVERS, find_option, reads_topic

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
            folder = _normalize(source.path) if source.path is not None else None
            if folder == path:
                found.append(f"{key} is also {name}: {path}; each needs a folder of its own")
            elif folder is not None and source.format != "files" and path.startswith(folder + "/"):
                found.append(f"{key} is in {name}: {path} in {folder}; move it out of that folder")
    return found + _find_table_conflicts(given) + _find_topic_conflicts(given)


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


def _find_topic_conflicts(given: PipelineConfig) -> list[str]:
    """Return an error for each sink that would write to a topic which a source reads."""
    found = []
    for number, source in enumerate(given.sources, 1):
        name = "source" if len(given.sources) == 1 else f"source #{number}"
        for key, sink in (("deliveries", given.deliveries), ("rejects", given.rejects)):
            if source.format != KAFKA or sink.format != KAFKA or sink.topic is None or "{" in sink.topic:
                continue
            same_servers = find_option(source.options, SERVERS) == find_option(sink.options, SERVERS)
            if same_servers and reads_topic(source.options, sink.topic):
                found.append(
                    f"{key}.topic: {sink.topic!r} is a topic that {name} reads, so that each record would be "
                    "read again; name another"
                )
    return found


def _normalize(path: str) -> str:
    """Return the path without symbolic links, or the URI, so that equal folders compare equal."""
    local = local_path(path)
    return os.path.realpath(local) if local is not None else path.rstrip("/")
