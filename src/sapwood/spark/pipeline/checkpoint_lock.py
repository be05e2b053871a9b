"""A lock on a checkpoint, so that two runs of a pipeline do not write into it at the same time.

It is a lock of the operating system on a file, which is gone with the process that holds it, however that
ends; the file stays, and says who holds it. A checkpoint that is not on this machine has no lock.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sapwood.spark.pipeline.config import ConfigError, local_path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)
_NAME = "lock"


@contextmanager
def lock_checkpoint(checkpoint: str) -> Iterator[None]:
    """Holds the lock; SettingsError at once if another run has it."""
    folder = local_path(checkpoint)
    if folder is None or fcntl is None:
        yield
        return
    path = folder / "sapwood" / _NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)  # which no child process inherits
    except OSError as error:
        raise ConfigError(f"run.checkpoint: {folder} cannot be written: {error.strerror}") from None
    try:
        _take(file, path, folder)
        yield
    finally:
        os.close(file)


def _take(file: int, path: Path, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = path.read_text("utf-8", "replace").strip() or "another process"
        raise ConfigError(
            f"run.checkpoint: {folder} is in use by {holder}; stop that run, or give this one a checkpoint "
            "of its own"
        ) from None
    except OSError as error:  # a filesystem without locks
        _log.warning("the checkpoint %s cannot be locked (%s): run one pipeline in it only", folder, error)
        return
    os.ftruncate(file, 0)
    since = datetime.now(UTC).isoformat(" ", timespec="seconds")
    os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)
