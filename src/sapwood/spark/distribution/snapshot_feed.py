"""The feed of snapshots to workers whose tasks run for minutes, for which changes do not wait.

The driver writes each version to a folder of the checkpoint, and workers poll that folder:

    feed/current        the number of the newest entry, and the run that it is from
    feed/N              an entry: a snapshot, which refers to a packed index and has the changes since then
    feed/packed-…       packed indexes

A worker applies changes between two messages. It unpacks a broker only when it starts, or when it has missed
the changes that lead to the newest version.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock, Thread
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from sapwood.spark.distribution.checkpoint_transport import CheckpointTransport
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.distribution.match_worker import LiveBroker
from sapwood.spark.io.file_system import open_file, open_output, remove_file

_log = logging.getLogger(__name__)
_CURRENT = "current"
POLL_SECONDS = 0.25
"""The time from one look of a worker at the feed to the next."""
_START_SECONDS = 30.0
"""How long a worker that starts tries to load an entry that may be replaced meanwhile."""


@dataclass(slots=True)
class SnapshotFeed:
    """The side of the driver, which writes entries."""

    transport: CheckpointTransport
    _number: int = 0

    def publish(self, snapshot: IndexSnapshot) -> None:
        """Write a version."""
        folder, self._number = self.transport.folder, self._number + 1
        for name, data in (
            (str(self._number), pickle.dumps(snapshot, pickle.HIGHEST_PROTOCOL)),
            (_CURRENT, f"{self._number} {snapshot.source}".encode()),  # after the entry itself
        ):
            with open_output(f"{folder}/{name}") as file:
                file.write(data)
        remove_file(f"{folder}/{self._number - 2}")  # the one before may just be read
        _log.info("version %d of the subscriptions is on its way to the workers", snapshot.version)


class FeedFollower:
    """The side of a worker: its broker, kept at the newest version while a task runs.

    with follower:                      # polls
        with follower.lock:             # no change amid a message
            follower.live.match(…)
    """

    def __init__(self, folder: str, clock: Callable[[], float] = monotonic) -> None:
        self._folder = folder
        self._seen = self._source = ""
        self.lock = Lock()
        self._stop = Event()
        self._thread: Thread | None = None
        self.live = self._start(clock() + _START_SECONDS, clock)

    def _start(self, limit: float, clock: Callable[[], float]) -> LiveBroker:
        """Load the newest entry, again if it is replaced while it is read."""
        while True:
            try:
                current, snapshot = self._load()
                live = LiveBroker(snapshot)
                live.advance(snapshot)
            except (OSError, ValueError, EOFError):
                if clock() >= limit:
                    raise
                sleep(POLL_SECONDS)
                continue
            self._seen, self._source = current, snapshot.source
            return live

    def _load(self) -> tuple[str, IndexSnapshot]:
        current = self._read_current()
        with open_file(f"{self._folder}/{int(current.partition(' ')[0])}") as file:
            snapshot = pickle.load(file)
        assert isinstance(snapshot, IndexSnapshot)
        return current, snapshot

    def _read_current(self) -> str:
        with open_file(f"{self._folder}/{_CURRENT}") as file:
            return file.read().decode()

    def refresh(self) -> bool:
        """Go on to the newest version, if there is a newer one; return whether there was."""
        if self._read_current() == self._seen:
            return False
        current, snapshot = self._load()
        live = self.live
        unpacked: LiveBroker | None = None
        if snapshot.source != self._source or not live.can_advance_to(snapshot):
            # messages are matched with the former one meanwhile
            unpacked = LiveBroker(snapshot)
            unpacked.advance(snapshot)
        with self.lock:
            if unpacked is not None:
                self.live = unpacked
            else:
                live.advance(snapshot)
        if unpacked is not None:
            live.broker.close()
        self._seen, self._source = current, snapshot.source
        return True

    def __enter__(self) -> Self:
        self._try_refresh()  # another task may have ended long ago
        self._stop.clear()
        self._thread = Thread(target=self._poll, name="sapwood-feed", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _poll(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            self._try_refresh()

    def _try_refresh(self) -> None:
        try:
            self.refresh()
        except (
            OSError,
            ValueError,
            EOFError,
        ) as error:  # replaced while it was read, or out of reach for now
            _log.debug("the feed of subscriptions cannot be read now: %s", error)

    def close(self) -> None:
        """Stop polling, and close the broker."""
        self._stop.set()
        self.live.broker.close()
