"""The snapshot of all engines in a file: compiled subscriptions and the state of joins."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)
_MAGIC = b"sapwood snapshot 1\n"


@dataclass(slots=True)
class Snapshot:
    """The engines of all tenants after a message of the log."""

    identity: str
    """that of the log"""
    settings: tuple[object, ...]
    """those that are part of packed engines"""
    seq: int
    """the last message that joins have seen"""
    version: int
    """of the store"""
    tenants: dict[str, dict[str, Any]]
    """by tenant, its packed engine"""


def write_snapshot(path: Path, snapshot: Snapshot) -> int:
    """Replace the snapshot in a file, all or nothing; returns its size."""
    content = pickle.dumps(snapshot, pickle.HIGHEST_PROTOCOL)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(_MAGIC)
        file.write(hashlib.blake2b(content, digest_size=32).digest())
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return len(content)


def read_snapshot(path: Path, identity: str) -> Snapshot | None:
    """Return the snapshot in a file, or None if there is none that belongs to this log."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("the snapshot %s cannot be read, so subscriptions are compiled anew: %s", path, error)
        return None
    start = len(_MAGIC) + 32
    content = memoryview(stored)[start:]
    if (
        not stored.startswith(_MAGIC)
        or hashlib.blake2b(content, digest_size=32).digest() != (stored[len(_MAGIC) : start])
    ):
        _log.warning("the snapshot %s is damaged, so subscriptions are compiled anew", path)
        return None
    try:
        snapshot: Snapshot = pickle.loads(content)
    except Exception as error:  # written by another version, whose classes are not here
        _log.warning("the snapshot %s is of another version: %s", path, error)
        return None
    if snapshot.identity != identity:
        _log.warning("the snapshot %s belongs to another log", path)
        return None
    return snapshot
