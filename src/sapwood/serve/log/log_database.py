"""The database of the message log: its schema, the lock of its one writer, and its rows."""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sqlalchemy import Connection, Table, insert, text
from sqlalchemy.dialects import postgresql, sqlite

from sapwood.errors import StoreError
from sapwood.serve.log import log_schema
from sapwood.serve.log.log_batch import Row
from sapwood.store.database import Database, Schema

_ADVISORY_LOCK = 0x5A9_106
LOCK_TIMEOUT = 5.0
"""seconds that the engine waits for another writer of SQLite before it reports that"""
_AT_ONCE = 500
"""rows of an upsert, each of which has several parameters"""


def _schema() -> Schema:
    return Schema(
        "message log",
        log_schema.metadata,
        log_schema.state,
        log_schema.LAYOUT,
        {"identity": uuid.uuid4().hex, "batch": 0, "seq": 0, "oldest": 1, "inboxes": 0, "writer": ""},
        "'sapwood serve' makes one",
        "serve it with that version until all is delivered, and begin with a new file here",
    )


def open_log(location: str, create: bool = True, checkpoints: bool = True) -> Database:
    """Open the log in a database, which may have a store, too; see `Database` for `checkpoints`."""
    return Database(location, create, _schema(), LOCK_TIMEOUT, checkpoints)


@contextmanager
def lock_log(database: Database, wait: float) -> Iterator[None]:
    """Hold the lock of the log's only writer; StoreError if another server has it for longer than `wait`."""
    if database.file is not None:
        with _lock_file(database.file.with_name(database.file.name + "-lock"), database.name, wait):
            yield
    else:
        with _lock_server(database, wait):
            yield


@contextmanager
def _lock_file(path: Path, name: str, wait: float) -> Iterator[None]:
    with path.open("a+") as file:
        _retry(lambda: _try_lock(file), wait, lambda: f"{name!r}{_owner(file)}")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(file: IO[str]) -> str:
    file.seek(0)
    pid = file.read().strip()
    return f" (process {pid})" if pid else ""


@contextmanager
def _lock_server(database: Database, wait: float) -> Iterator[None]:
    """Hold an advisory lock of PostgreSQL, which ends with the connection."""
    with database.connecting() as connection:
        query = text("SELECT pg_try_advisory_lock(:lock)")

        def lock() -> bool:
            found = bool(connection.scalar(query, {"lock": _ADVISORY_LOCK}))
            connection.commit()
            return found

        _retry(lock, wait, lambda: repr(database.name))
        yield


def _retry(lock: Callable[[], bool], wait: float, describe: Callable[[], str]) -> None:
    deadline = time.monotonic() + wait
    while not lock():
        if time.monotonic() > deadline:
            raise StoreError(f"another server uses the log {describe()}: stop it, or give this one another")
        time.sleep(0.05)


def upsert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows, or update those whose keys are there."""
    keys = [column.name for column in table.primary_key]
    for start in range(0, len(rows), _AT_ONCE):
        some = list(rows[start : start + _AT_ONCE])
        if connection.dialect.name == "sqlite":
            lite = sqlite.insert(table)
            changed = {name: lite.excluded[name] for name in some[0] if name not in keys}
            connection.execute(lite.on_conflict_do_update(index_elements=keys, set_=changed), some)
        else:
            post = postgresql.insert(table)
            changed = {name: post.excluded[name] for name in some[0] if name not in keys}
            connection.execute(post.on_conflict_do_update(index_elements=keys, set_=changed), some)


def insert_missing(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows, but for those whose unique columns are there."""
    if not rows:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), list(rows))


def insert_all(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows, if there are any."""
    if rows:
        connection.execute(insert(table), list(rows))
