"""Files that a source has and Spark does not read: found, so that none is skipped in silence.

Spark's file source drops from a micro-batch, without a word, files that are empty and files that are gone
since they were listed. Both are found in the plan of the batch, to become rejects. What never gets into a
batch is told when a run begins: names that Spark takes for hidden, other endings, and files that were changed
after they were served.
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
_MOST_LOOKED_AT = 100_000
"""Files of a folder that are looked at when a run begins: some tenths of a second."""
_SHOWN = 3
_SEPARATOR = "\0"
"""which no path contains"""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file that is part of a batch, and that Spark does not read."""

    path: str
    published_at: datetime | None
    problem: str


def is_hidden(name: str) -> bool:
    """Whether Spark passes over files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


# -- in a batch ------------------------------------------------------------------------------------------


def find_unread_in_stream(spark: SparkSession, name: str) -> list[list[UnreadFile]]:
    """The unread files of the batch that a stream is serving, for each of its sources."""
    query = next((query for query in spark.streams.active if query.name == name), None)
    return _by_source(query._jsq.streamingQuery().lastExecution().logical()) if query is not None else []


def find_unread_in_table(files: DataFrame) -> list[list[UnreadFile]]:
    """The unread files of what is no stream, for each of its sources."""
    return _by_source(files._jdf.queryExecution().analyzed())


def _by_source(plan: Any) -> list[list[UnreadFile]]:
    leaves = plan.collectLeaves()
    return [_unread(leaves.apply(place)) for place in range(leaves.size())]


def _unread(leaf: Any) -> list[UnreadFile]:
    if leaf.getClass().getSimpleName() != "LogicalRelation":
        return []  # another kind of source, or one that has nothing in this batch
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return []
    statuses = relation.location().allFiles()
    found = []
    # A call of the JVM for every file would take longer than reading it, so at first one for all of them.
    if "; length=0;" in str(statuses.mkString(_SEPARATOR)):
        for place in range(statuses.size()):
            status = statuses.apply(place)
            if status.getLen() == 0:
                changed = _EPOCH + timedelta(milliseconds=status.getModificationTime())
                found.append(UnreadFile(_path(status), changed, EMPTY))
    if leaf.isStreaming():  # then the index has the files themselves for its roots
        planned = set(str(relation.location().rootPaths().mkString(_SEPARATOR)).split(_SEPARATOR))
        if len(planned) > statuses.size():
            there = {_path(statuses.apply(place)) for place in range(statuses.size())}
            found += [UnreadFile(path, None, GONE) for path in sorted(planned - there)]
    return found


def _path(status: Any) -> str:
    return str(status.getPath().toString())


# -- before a run ----------------------------------------------------------------------------------------


def find_skipped_files(folder: Path, source_log: Path | None) -> list[str]:
    """What is in a folder and will not be read, in a line each; `source_log` is Spark's, of earlier runs."""
    hidden: list[str] = []
    others: list[str] = []
    changed: list[str] = []
    served = _served(source_log) if source_log is not None else {}
    for path, is_passed_over in islice(_walk(folder, False), _MOST_LOOKED_AT):
        name = os.path.relpath(path, folder)
        if not name.endswith(ENDINGS):
            if not is_passed_over:
                others.append(name)
        elif is_passed_over:
            hidden.append(name)
        elif path in served and Path(path).stat().st_mtime_ns // 1_000_000 > served[path]:
            changed.append(name)
    endings = ", ".join(ENDINGS)
    found = {
        "of a name, or in a folder, that begins with _ or ., which Spark does not read": hidden,
        f"of another ending than {endings}, and not read": others,
        "changed after it was served, and not read again: give it another name to have it served": changed,
    }
    return [f"{folder}: {_listed(names)} {what}" for what, names in found.items() if names]


def _listed(names: list[str]) -> str:
    some = ", ".join(sorted(names)[:_SHOWN])
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{some}{more} {'is' if len(names) == 1 else 'are'}"


def _walk(folder: str | Path, passed_over: bool) -> Iterator[tuple[str, bool]]:
    """The files below a folder, and whether Spark passes over them."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # Spark says what is wrong with it
    for entry in entries:
        hidden = passed_over or is_hidden(entry.name)
        if entry.is_dir():
            if not entry.is_symlink():
                yield from _walk(entry.path, hidden)
        else:
            yield entry.path, hidden


def _served(source_log: Path) -> dict[str, int]:
    """When the files that a stream has taken in were last changed then, in milliseconds."""
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
