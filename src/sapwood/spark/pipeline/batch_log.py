"""The batch log: the plan and the outcome of each micro-batch, beside Spark's own checkpoint.

    planned/N   the version of the subscriptions for batch N, written before anything else
    done/N      the outcome of batch N, written after everything else: the commit
    state/joins the format of the join state, written once, where there are joins
    state/identity  a random id of the checkpoint, by which Delta tables know its batches; written once
    kafka/topics  the ids of Kafka's topics, see `kafka.topic_identity`
    matched/N   subscriptions that matched for the first time in batch N, for the report

A batch that Spark repeats after a crash uses the planned version again, and one that was committed before the
crash is skipped. The files are small JSON objects, each of which appears as a whole or not at all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from sapwood.errors import SapwoodError
from sapwood.spark.io.file_system import TextFolder, open_text_folder
from sapwood.spark.monitoring.delivery_counts import MatchedSubscriptions

_log = logging.getLogger(__name__)
_RETAINED_BATCHES = 1_000
"""Batches in the log; Spark itself never repeats any but the last one."""
_MATCHED_FILES = 64
"""Files in `matched`; when there are more, they are compacted into one."""
_REMEDIES = {
    "planned": "remove it, and the batch uses the current subscriptions",
    "done": "remove it; if it belongs to the last batch, that one is repeated and overwrites its own files",
    "state": 'write {"format": 3} into it, if this version of Sapwood made the checkpoint',
    "state/identity": "remove it; if the last batch is repeated, Delta tables then have its rows twice",
    "kafka": "remove it, if no topic was deleted and created again meanwhile",
    "matched": "remove it; the report may then list subscriptions as never matched that have",
}


class CheckpointError(SapwoodError):
    """Raised when a file of a checkpoint is damaged; names the file, and what to do."""


def parse_record(text: str, path: str) -> dict[str, Any]:
    """Parse the JSON object in a file of the log; raise CheckpointError if it is damaged."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        damage = "is truncated, or not JSON" if text.strip() else "is empty"
        folder, name = path.split("/")[-2:]
        remedy = _REMEDIES.get(f"{folder}/{name}") or _REMEDIES[folder]
        raise CheckpointError(f"{path} {damage}, perhaps after a crash: {remedy}")
    return found


class BatchLog:
    """The plans and outcomes of a pipeline's micro-batches."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._planned = open_text_folder(spark, f"{path}/planned")
        self._done = open_text_folder(spark, f"{path}/done")
        self._state = open_text_folder(spark, f"{path}/state")
        self._matched = open_text_folder(spark, f"{path}/matched")

    def join_layout(self) -> dict[str, Any] | None:
        """Return the layout of the join state, or None if the pipeline started without joins."""
        return _load(self._state, "joins")

    def commit_join_layout(self, layout: dict[str, Any]) -> None:
        """Write the layout of the join state."""
        self._state.write("joins", json.dumps(layout))

    def identity(self) -> str:
        """Return the random id of the checkpoint, which its first run writes."""
        known = _load(self._state, "identity")
        if known is None:
            known = {"id": uuid4().hex}
            self._state.write("identity", json.dumps(known))
        return str(known["id"])

    def plan(self, batch: int, plan: dict[str, Any]) -> dict[str, Any]:
        """Return the plan of a batch: the one in the log, or else the given one, which is written to it."""
        planned = _load(self._planned, str(batch))
        if planned is None:
            self._planned.write(str(batch), json.dumps(plan))
            return plan
        _log.info("batch %s was planned before: %s", batch, planned)
        return planned

    def outcome(self, batch: int) -> dict[str, Any] | None:
        """Return the outcome of a batch, or None if it is not committed."""
        return _load(self._done, str(batch))

    def commit(self, batch: int, outcome: dict[str, Any]) -> None:
        """Write the outcome of a batch, and remove the entries of batches long ago."""
        self._done.write(str(batch), json.dumps(outcome))
        for folder in (self._planned, self._done):
            folder.remove(str(batch - _RETAINED_BATCHES))

    def matched(self) -> MatchedSubscriptions:
        """Return the subscriptions that have matched so far."""
        return merge_matched(_load(self._matched, name) for name in self._matched.names())

    def commit_matched(self, batch: int, matched: MatchedSubscriptions) -> None:
        """Write the subscriptions that have matched for the first time."""
        new = matched.take_new()
        if matched.since is None:
            matched.since = batch
        elif not new:
            return
        files = [name for name in self._matched.names() if name.isdigit()]
        compact = len(files) >= _MATCHED_FILES
        ids = sorted(matched.ids) if compact else new
        self._matched.write(str(batch), json.dumps({"since": matched.since, "ids": ids}))
        for name in files if compact else ():
            if name != str(batch):
                self._matched.remove(name)

    def outcomes(self) -> list[dict[str, Any]]:
        """Return the outcomes in the log, oldest first."""
        batches = sorted(int(name) for name in self._done.names() if name.isdigit())
        found = (self.outcome(batch) for batch in batches)
        return [outcome for outcome in found if outcome is not None]

    def has_started(self) -> bool:
        """Return whether there has been any batch; one in real time has no plan."""
        names = (*self._planned.names(), *self._done.names())
        return any(name.isdigit() for name in names)


def _load(folder: TextFolder, name: str) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None without a file; raise CheckpointError if it is damaged."""
    text = folder.read(name)
    return None if text is None else parse_record(text, folder.path_of(name))


def merge_matched(records: Iterable[dict[str, Any] | None]) -> MatchedSubscriptions:
    """Merge the contents of the files in `matched`."""
    known = [record for record in records if record is not None]
    ids = {id for record in known for id in record["ids"]}
    return MatchedSubscriptions(ids, min((record["since"] for record in known), default=None))
