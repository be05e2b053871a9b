"""An exclusive lock on a checkpoint, so that two runs of a pipeline do not write to it at the same time.

It is an advisory lock of the operating system on a file, released when the process ends, even by a crash. The
file remains, and names the process that holds the lock. A checkpoint on another file system is not locked.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sapwood.config_file import ConfigError
from sapwood.spark.io.file_system import local_path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)
_NAME = "lock"


@contextmanager
def lock_checkpoint(checkpoint: str) -> Iterator[None]:
    """Hold the lock of a checkpoint; raise ConfigError at once if another run holds it."""
    folder = local_path(checkpoint)
    if folder is None or fcntl is None:
        _log.debug("the checkpoint %s is not locked: it is not a local folder", checkpoint)
        yield
        return
    path = folder / "sapwood" / _NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)  # which no child process inherits
    except OSError as error:
        raise ConfigError(f"run.checkpoint: {folder} cannot be written: {error.strerror}") from None
    try:
        _acquire(file, path, folder)
        yield
    finally:
        os.close(file)


def _acquire(file: int, path: Path, folder: Path) -> None:
    """Lock the open file, and write into it who holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = path.read_text("utf-8", "replace").strip() or "another process"
        raise ConfigError(
            f"run.checkpoint: {folder} is in use by {holder}; stop that run, or configure "
            "another checkpoint for this one"
        ) from None
    except OSError as error:  # a file system without locks
        _log.warning("the checkpoint %s cannot be locked (%s): run only one pipeline with it", folder, error)
        return
    os.ftruncate(file, 0)
    since = datetime.now(UTC).isoformat(" ", timespec="seconds")
    os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)
    _log.debug("checkpoint %s locked", folder)
