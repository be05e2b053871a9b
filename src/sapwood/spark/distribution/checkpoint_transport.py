"""How the subscriptions of a batch get into a plan that was made before them.

The plan of a stateful stream is made once, when the stream starts, and what it carries with it never changes.
So its tasks look up the snapshot of their batch in a folder of the checkpoint, where the driver has put it
before it lets the batch run:

    posted/N       the snapshot of batch N; those of earlier batches are of no use any more
    posted/base-…  the packed brokers that snapshots are based on
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from uuid import uuid4

from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.io.storage import make_empty, open_file, open_new, remove_file


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """Bytes in a file."""

    path: str

    @property
    def value(self) -> bytes:
        with open_file(self.path) as file:
            return file.read()

    def destroy(self) -> None:
        remove_file(self.path)


class CheckpointTransport:
    """A folder that the driver and all workers reach."""

    def __init__(self, folder: str) -> None:
        """Takes the folder over; what an earlier run has left in it is gone."""
        self.folder = folder
        make_empty(folder)
        self._last: str | None = None

    def broadcast(self, value: bytes) -> CheckpointFile:
        """Lets workers get at bytes."""
        base = CheckpointFile(f"{self.folder}/base-{uuid4().hex}")
        with open_new(base.path) as file:
            file.write(value)
        return base

    def put(self, batch: int, snapshot: IndexSnapshot) -> None:
        """Lets the tasks of a batch know their snapshot."""
        path = f"{self.folder}/{batch}"
        with open_new(path) as file:
            pickle.dump(snapshot, file, pickle.HIGHEST_PROTOCOL)
        if self._last is not None and self._last != path:
            remove_file(self._last)
        self._last = path


def load_snapshot(folder: str, batch: str) -> IndexSnapshot:
    """The snapshot of a batch, for its tasks."""
    with open_file(f"{folder}/{batch}") as file:
        snapshot = pickle.load(file)
    assert isinstance(snapshot, IndexSnapshot)
    return snapshot
