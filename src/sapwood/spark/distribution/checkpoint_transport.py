"""Snapshots in a folder of the checkpoint, for a plan that was made before them.

The plan of a stateful stream is made once, when the stream starts, and cannot refer to a broadcast of a later
batch. So its tasks load the snapshot of their batch from the checkpoint, where the driver has written it
before the batch runs:

    snapshots/N         the snapshot of batch N; that of the batch before is removed
    snapshots/packed-…  the packed brokers that snapshots refer to
"""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from uuid import uuid4

from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.io.file_system import clear_folder, open_file, open_output, remove_file

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """Bytes in a file of the checkpoint."""

    path: str

    @property
    def value(self) -> bytes:
        with open_file(self.path) as file:
            return file.read()

    def destroy(self) -> None:
        remove_file(self.path)


class CheckpointTransport:
    """A folder of the checkpoint that the driver and all workers reach."""

    def __init__(self, folder: str) -> None:
        """Empties the folder: snapshots of an earlier run are of no use to this one."""
        self.folder = folder
        clear_folder(folder)
        self._last: str | None = None

    def broadcast(self, value: bytes) -> CheckpointFile:
        """Write bytes to a file that workers can read."""
        packed = CheckpointFile(f"{self.folder}/packed-{uuid4().hex}")
        with open_output(packed.path) as file:
            file.write(value)
        return packed

    def put(self, batch: int, snapshot: IndexSnapshot) -> None:
        """Write the snapshot of a batch for its tasks, and remove that of the batch before."""
        path = f"{self.folder}/{batch}"
        with open_output(path) as file:
            pickle.dump(snapshot, file, pickle.HIGHEST_PROTOCOL)
        if self._last is not None and self._last != path:
            remove_file(self._last)
        self._last = path
        _log.debug("snapshot of version %d written for batch %d", snapshot.version, batch)


def load_snapshot(folder: str, batch: str) -> IndexSnapshot:
    """Load the snapshot of a batch, in a task."""
    with open_file(f"{folder}/{batch}") as file:
        snapshot = pickle.load(file)
    assert isinstance(snapshot, IndexSnapshot)
    return snapshot
