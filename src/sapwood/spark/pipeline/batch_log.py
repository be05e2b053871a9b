"""What is decided about a batch before it is served, and what came of it, beside Spark's own checkpoint.

    planned/N   the version of the subscriptions that serves batch N, written before anything else
    done/N      what batch N delivered, written after everything else
    state/joins how joins keep messages, written once, where there are joins
    matched/N   subscriptions that matched for the first time in batch N, for the report

So a batch that is served again after a crash is served with the same subscriptions, and a batch that was done
before the crash is not served again. Both are small JSON files, and appear all at once or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from sapwood.errors import SapwoodError
from sapwood.spark.monitoring.delivery_counts import MatchedSubscriptions

_KEPT = 1_000
"""Batches on record; Spark itself never goes back further than the last one."""
_MOST_FILES = 64
"""In `matched`; more are put together."""
_REMEDIES = {
    "planned": "remove it, and the batch is served with the subscriptions of the moment",
    "done": "remove it; if it is that of the last batch, that is served again, into the same folder",
    "state": 'write {"format": 2, "buckets": N} into it, with the joins.buckets that the pipeline began with',
    "matched": "remove it; the report may then count subscriptions as never matched that have",
}


class CheckpointError(SapwoodError):
    """A file of a checkpoint that is damaged: says which, and what to do."""


def parsed(text: str, path: str) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint; CheckpointError if it is damaged."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        how = "is cut off, or not JSON" if text.strip() else "is empty"
        remedy = _REMEDIES[path.split("/")[-2]]
        raise CheckpointError(f"{path} {how}, after a crash perhaps: {remedy}")
    return found


class Folder:
    """A folder of small text files on any filesystem that Spark can reach."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())
        self._files.mkdirs(self._path)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def load(self, name: str) -> dict[str, Any] | None:
        """The JSON object in a file, or None if there is no such file; CheckpointError if it is damaged."""
        text = self.read(name)
        return None if text is None else parsed(text, str(self._at(name).toString()))

    def read(self, name: str) -> str | None:
        """The file's text, or None if there is no such file."""
        if not self._files.exists(self._at(name)):
            return None
        stream = self._files.open(self._at(name))
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return str(text)

    def write(self, name: str, text: str) -> None:
        """Makes or replaces the file, all at once."""
        unfinished = self._at(f"_{name}.unfinished")
        stream = self._files.create(unfinished, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.delete(self._at(name), False)
        if not self._files.rename(unfinished, self._at(name)):
            raise OSError(f"{self._at(name).toString()} cannot be written")

    def remove(self, name: str) -> None:
        self._files.delete(self._at(name), False)

    def names(self) -> list[str]:
        """All names but those of unfinished files."""
        names = [status.getPath().getName() for status in self._files.listStatus(self._path)]
        return [name for name in names if not name.startswith(("_", "."))]


class BatchLog:
    """The plans and outcomes of a pipeline's batches."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._planned = Folder(spark, f"{path}/planned")
        self._done = Folder(spark, f"{path}/done")
        self._state = Folder(spark, f"{path}/state")
        self._matched = Folder(spark, f"{path}/matched")

    def joins(self) -> dict[str, Any] | None:
        """How joins keep messages, if the pipeline has begun with joins."""
        return self._state.load("joins")

    def begin_joins(self, how: dict[str, Any]) -> None:
        """Puts on record how joins keep messages."""
        self._state.write("joins", json.dumps(how))

    def plan(self, batch: int, plan: dict[str, Any]) -> dict[str, Any]:
        """The plan of a batch: the given one, unless one was made before."""
        made = self._planned.load(str(batch))
        if made is None:
            self._planned.write(str(batch), json.dumps(plan))
            return plan
        return made

    def outcome(self, batch: int) -> dict[str, Any] | None:
        """What a batch delivered, if it is done."""
        return self._done.load(str(batch))

    def done(self, batch: int, outcome: dict[str, Any]) -> None:
        """Puts the outcome of a batch on record, and drops the records of long ago."""
        self._done.write(str(batch), json.dumps(outcome))
        for folder in (self._planned, self._done):
            folder.remove(str(batch - _KEPT))

    def matched(self) -> MatchedSubscriptions:
        """The subscriptions that have matched so far."""
        return together(self._matched.load(name) for name in self._matched.names())

    def add_matched(self, batch: int, matched: MatchedSubscriptions) -> None:
        """Puts on record which subscriptions have matched for the first time."""
        new = matched.take_new()
        if matched.since is None:
            matched.since = batch
        elif not new:
            return
        files = [name for name in self._matched.names() if name.isdigit()]
        if len(files) >= _MOST_FILES:
            new = sorted(matched.ids)
        self._matched.write(str(batch), json.dumps({"since": matched.since, "ids": new}))
        for name in files if len(files) >= _MOST_FILES else ():
            if name != str(batch):
                self._matched.remove(name)

    def outcomes(self) -> list[dict[str, Any]]:
        """The outcomes on record, oldest first."""
        batches = sorted(int(name) for name in self._done.names() if name.isdigit())
        found = (self.outcome(batch) for batch in batches)
        return [outcome for outcome in found if outcome is not None]

    def last_planned(self) -> dict[str, Any] | None:
        """The plan of the newest batch, if any was ever planned."""
        batches = [int(name) for name in self._planned.names() if name.isdigit()]
        return self._planned.load(str(max(batches))) if batches else None


def together(records: Iterable[dict[str, Any] | None]) -> MatchedSubscriptions:
    """What several files of `matched` say."""
    known = [record for record in records if record is not None]
    ids = {id for record in known for id in record["ids"]}
    return MatchedSubscriptions(ids, min((record["since"] for record in known), default=None))
