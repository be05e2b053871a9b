"""Moving SQLite's write-ahead log into the database file, beside the thread that commits.

By default the commit that makes the write-ahead log long moves all of it, and whoever waits for this commit
waits for that, too. A thread of its own does most of the work while commits go on; only the little that is
left then keeps them waiting, when the log has to begin anew.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from threading import Event, Thread

_log = logging.getLogger(__name__)
_INTERVAL = 0.25
_LONG = 64 * 2**20
"""bytes of the write-ahead log, at which it begins anew"""
_LOCK_TIMEOUT = 5.0


class CheckpointThread:
    """Moves the write-ahead log of an SQLite file from time to time; does nothing for other databases."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="checkpoint", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        if self._file is not None:
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(2 * _LOCK_TIMEOUT)

    def _run(self) -> None:
        assert self._file is not None
        wal = self._file.with_name(self._file.name + "-wal")
        connection = sqlite3.connect(self._file, timeout=_LOCK_TIMEOUT, isolation_level=None)
        seen = -1
        while not self._stopped.wait(_INTERVAL):
            try:
                size = wal.stat().st_size if wal.exists() else 0
                written = wal.stat().st_mtime_ns if size else 0
                if written == seen:
                    continue
                seen = written
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if size > _LONG:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except (sqlite3.Error, OSError) as error:
                _log.debug("the write-ahead log cannot be moved at present: %s", error)
        connection.close()
