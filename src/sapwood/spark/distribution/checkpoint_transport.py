"""Snapshots in a folder of the checkpoint, for a plan that was made before them.

The plan of a stream with joins is made once, when the stream starts, and cannot refer to a broadcast of a
later batch. So its tasks load what belongs to their batch from the checkpoint, where the driver has written
it before the batch runs:

    snapshots/N         the snapshot of batch N, and its watermark; those of the batch before are removed
    snapshots/packed-…  the packed brokers that snapshots refer to
"""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from uuid import uuid4

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

    def put(self, batch: int, value: object) -> None:
        """Write what the tasks of a batch load, and remove that of the batch before."""
        path = f"{self.folder}/{batch}"
        with open_output(path) as file:
            pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)
        if self._last is not None and self._last != path:
            remove_file(self._last)
        self._last = path
        _log.debug("snapshot written for batch %d", batch)


def load_from_checkpoint(folder: str, batch: str) -> object:
    """Load what the driver has put there for a batch, in a task."""
    with open_file(f"{folder}/{batch}") as file:
        value: object = pickle.load(file)
    return value
