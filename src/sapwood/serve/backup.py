"""Copies of the database while the server runs."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from sapwood.errors import SapwoodError
from sapwood.store.database import Database

_PAGES = 2_000
"""copied at once, between which the server writes"""


class BackupError(SapwoodError):
    """Raised for a backup that cannot be made."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy of a database."""

    file: str
    bytes: int
    seconds: float


def back_up(database: Database, name: str) -> Backup:
    """Copy an SQLite database to a new file beside it, consistently, while it is read and written."""
    if database.file is None:
        raise BackupError("the log is in PostgreSQL: back it up with pg_dump, which needs no pause either")
    target = database.file.with_name(name)
    if target.exists():
        raise BackupError(f"there is a file {name!r} already: give the backup another name")
    return _copy(database.file, target)


def _copy(source: Path, target: Path) -> Backup:
    started = time.perf_counter()
    partial = target.with_name(target.name + ".partial")
    try:
        with (
            sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True) as reading,
            sqlite3.connect(partial) as writing,
        ):
            # One transaction, or writers would make the copy begin anew for ever.
            reading.execute("BEGIN")
            reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
            reading.backup(writing, pages=_PAGES)
        partial.replace(target)
    except (OSError, sqlite3.Error) as error:
        partial.unlink(missing_ok=True)
        raise BackupError(f"the backup cannot be written: {error}") from None
    finally:
        reading.close()
        writing.close()
    return Backup(target.name, target.stat().st_size, time.perf_counter() - started)
