"""Finds files of a source that Spark silently skips, so that each becomes a reject or a warning.

Spark's file source drops empty files, and files that are gone since they were listed, from a micro-batch.
Both are found in the plan of the batch, and become rejects. Files that are never part of a batch are a
warning when a run starts: names that Spark takes for hidden, other endings, and files that were changed after
a batch had read them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession

from sapwood.spark.io.file_reader import ENDINGS

EMPTY = "the file is empty"
GONE = "the file is gone: it was there when its batch was planned"
_MOST_CHECKED = 100_000
"""Files of a folder that are checked when a run starts, which takes some tenths of a second."""
_NAMES_IN_WARNING = 3
_SEPARATOR = "\0"
"""a character that no path contains"""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file that is part of a batch, but that Spark does not read."""

    path: str
    published_at: datetime | None
    problem: str


def is_hidden(name: str) -> bool:
    """Return whether Spark skips files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


# -- in a batch ------------------------------------------------------------------------------------------


def find_unread_in_stream(spark: SparkSession, name: str) -> list[list[UnreadFile]]:
    """Return the unread files of a stream's current micro-batch, for each of its sources."""
    query = next((query for query in spark.streams.active if query.name == name), None)
    return _find_by_source(query._jsq.streamingQuery().lastExecution().logical()) if query is not None else []


def find_unread_in_table(files: DataFrame) -> list[list[UnreadFile]]:
    """Return the unread files of a batch DataFrame, for each of its sources."""
    return _find_by_source(files._jdf.queryExecution().analyzed())


def _find_by_source(plan: Any) -> list[list[UnreadFile]]:
    """Return the unread files of each leaf of a logical plan."""
    leaves = plan.collectLeaves()
    return [_find_unread(leaves.apply(i)) for i in range(leaves.size())]


def _find_unread(leaf: Any) -> list[UnreadFile]:
    """Return the files of a relation that are empty, or gone since the batch was planned."""
    if leaf.getClass().getSimpleName() != "LogicalRelation":
        return []  # another kind of source, or one without rows in this batch
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return []
    statuses = relation.location().allFiles()
    found = []
    # A call of the JVM for every file would take longer than reading it, so first one for all of them.
    if "; length=0;" in str(statuses.mkString(_SEPARATOR)):
        for i in range(statuses.size()):
            status = statuses.apply(i)
            if status.getLen() == 0:
                changed = _EPOCH + timedelta(milliseconds=status.getModificationTime())
                found.append(UnreadFile(_path(status), changed, EMPTY))
    if leaf.isStreaming():  # then the root paths of the index are the files of the batch
        planned = set(str(relation.location().rootPaths().mkString(_SEPARATOR)).split(_SEPARATOR))
        if len(planned) > statuses.size():
            existing = {_path(statuses.apply(i)) for i in range(statuses.size())}
            found += [UnreadFile(path, None, GONE) for path in sorted(planned - existing)]
    return found


def _path(status: Any) -> str:
    return str(status.getPath().toString())


# -- before a run ----------------------------------------------------------------------------------------


def find_skipped_files(folder: Path, source_log: Path | None) -> list[str]:
    """Return a warning for each kind of unread file in a folder; `source_log` is Spark's, of earlier runs."""
    hidden: list[str] = []
    others: list[str] = []
    changed: list[str] = []
    processed = _read_source_log(source_log) if source_log is not None else {}
    for path, is_skipped in islice(_walk(folder, False), _MOST_CHECKED):
        name = os.path.relpath(path, folder)
        if not name.endswith(ENDINGS):
            if not is_skipped:
                others.append(name)
        elif is_skipped:
            hidden.append(name)
        elif path in processed and Path(path).stat().st_mtime_ns // 1_000_000 > processed[path]:
            changed.append(name)
    endings = ", ".join(ENDINGS)
    found = {
        "not read by Spark: the name, or that of a folder, begins with _ or .": hidden,
        f"not read: the name does not end in {endings}": others,
        "not read again: changed after a batch had read it; rename it to have it processed": changed,
    }
    return [f"{folder}: {_abbreviate(names)} {reason}" for reason, names in found.items() if names]


def _abbreviate(names: list[str]) -> str:
    """Return the subject and verb of a sentence on some files."""
    some = ", ".join(sorted(names)[:_NAMES_IN_WARNING])
    more = f" and {len(names) - _NAMES_IN_WARNING:,} more" if len(names) > _NAMES_IN_WARNING else ""
    return f"{some}{more} {'is' if len(names) == 1 else 'are'}"


def _walk(folder: str | Path, skipped: bool) -> Iterator[tuple[str, bool]]:
    """Yield the files below a folder, and whether Spark skips them."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # Spark reports what is wrong with it
    for entry in entries:
        hidden = skipped or is_hidden(entry.name)
        if entry.is_dir():
            if not entry.is_symlink():
                yield from _walk(entry.path, hidden)
        else:
            yield entry.path, hidden


def _read_source_log(source_log: Path) -> dict[str, int]:
    """Return the files that a stream has read, with their last change at that time in milliseconds."""
    logs: dict[tuple[int, bool], Path] = {}
    for path in source_log.iterdir() if source_log.is_dir() else ():
        number, _, compact = path.name.partition(".")
        if number.isdigit() and compact in ("", "compact"):
            logs[int(number), compact == "compact"] = path
    compacted = max((count for count, is_compact in logs if is_compact), default=-1)
    found = {}
    for (count, is_compact), path in logs.items():
        if count > compacted or (count == compacted and is_compact):
            for line in path.read_text("utf-8").splitlines()[1:]:
                entry = json.loads(line)
                found[unquote(urlparse(entry["path"]).path)] = int(entry["timestamp"])
    return found
