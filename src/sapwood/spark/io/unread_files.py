"""Finds files of a source that Spark silently skips, so that each becomes a reject or a warning.

Spark's file source drops empty files, and files that are gone since they were listed, from a micro-batch.
Both are found in the plan of the batch, and become rejects. Files that are never part of a batch are a
warning when a run starts: names that Spark takes for hidden, other endings, and files that were changed after
a batch had read them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession

from sapwood.spark.io.file_ranges import ListedFile, list_leaf_files
from sapwood.spark.io.file_reader import ENDINGS

_MOST_CHECKED = 100_000
"""Files of a folder that are checked when a run starts, which takes some tenths of a second."""
_NAMES_IN_WARNING = 3


def is_hidden(name: str) -> bool:
    """Return whether Spark skips files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


# -- in a batch ------------------------------------------------------------------------------------------


def list_stream_files(spark: SparkSession, name: str) -> list[list[ListedFile] | None]:
    """Return the files of a stream's current micro-batch, for each of its sources; None for one without."""
    query = next((query for query in spark.streams.active if query.name == name), None)
    return _list_by_source(query._jsq.streamingQuery().lastExecution().logical()) if query is not None else []


def list_table_files(files: DataFrame) -> list[list[ListedFile] | None]:
    """Return the files of a batch DataFrame, for each of its sources; None for one without."""
    return _list_by_source(files._jdf.queryExecution().analyzed())


def _list_by_source(plan: Any) -> list[list[ListedFile] | None]:
    """Return the files of each leaf of a logical plan."""
    leaves = plan.collectLeaves()
    return [list_leaf_files(leaves.apply(i)) for i in range(leaves.size())]


def find_unread(listed: Sequence[Sequence[ListedFile] | None]) -> list[list[ListedFile]]:
    """Return those of the listed files that Spark does not read, for each source."""
    return [[file for file in files or () if file.problem is not None] for files in listed]


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
