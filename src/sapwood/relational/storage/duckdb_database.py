"""The tables in a DuckDB file: connections to it, transactions, numbers for new rows.

One process at a time has the file open. In it, one thread at a time changes the tables; any number of batches
read them meanwhile, each as they were when it began.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from sapwood.errors import TablesError
from sapwood.relational.storage.table_schema import CACHED, FIRST_ROWS, FORMAT, TABLES, VIEWS

_MEMORY = re.compile(r"\s*(?=[\d.]*[1-9])\d+(\.\d+)?\s*[KMGT]i?B\s*", re.IGNORECASE)

MEMORY = "512MB"
"""what DuckDB may use by default; what needs more goes through the disk"""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt here, too, whatever DuckDB calls it."""
    try:
        yield
    except RuntimeError as error:
        if "interrupt" in str(error).lower():
            raise KeyboardInterrupt from None
        raise


class Connection:
    """One connection: statements, and what they bring."""

    def __init__(self, raw: duckdb.DuckDBPyConnection) -> None:
        self._raw = raw

    def run(self, sql: str, parameters: object = None) -> None:
        self.rows(sql, parameters)  # a result that nobody fetches keeps the connection busy

    def rows(self, sql: str, parameters: object = None) -> list[tuple[Any, ...]]:
        with _interruptible():
            return self._raw.execute(sql, parameters).fetchall()

    def value(self, sql: str, parameters: object = None) -> Any:
        rows = self.rows(sql, parameters)
        return rows[0][0] if rows else None

    def arrow(self, sql: str) -> pa.Table:
        with _interruptible():
            return self._raw.sql(sql).to_arrow_table()

    def stream(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        """What a statement brings, so many rows in memory at a time."""
        with _interruptible():
            reader = self._raw.sql(sql).to_arrow_reader(rows)
        while True:
            with _interruptible():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch

    def keep(self, name: str, sql: str) -> None:
        """Makes a table of this connection alone."""
        self.run(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")

    @contextmanager
    def given(self, **tables: pa.Table) -> Iterator[None]:
        """Arrow tables under names that statements can use."""
        for name, table in tables.items():
            self._raw.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self._raw.unregister(name)

    def insert(self, table: str, rows: pa.Table) -> None:
        if len(rows):
            with self.given(inserted=rows):
                self.run(f"INSERT INTO {table} BY NAME SELECT * FROM inserted")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self.run("BEGIN TRANSACTION")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            with suppress(duckdb.Error, RuntimeError):
                self._raw.abort()  # what Ctrl-C left unfinished
            with suppress(duckdb.Error):
                self.run("ROLLBACK")
            raise

    def close(self) -> None:
        self._raw.close()


class Tables:
    """The file, made if it is absent; a path of None keeps everything in memory."""

    def __init__(self, path: str | Path | None, memory: str = MEMORY, threads: int | None = None) -> None:
        self.path = Path(path) if path is not None else None
        if not _MEMORY.fullmatch(memory):
            raise TablesError(f"the memory limit {memory!r} is not understood; write it like 512MB or 2GB")
        self.memory = memory
        self.lock = RLock()
        """whoever changes the tables, or must not see them change, has it"""
        config: dict[str, Any] = {
            "memory_limit": memory,
            "threads": threads or os.cpu_count() or 1,
            "preserve_insertion_order": False,  # which would cost memory, and nothing asks for it
        }
        opened = _Opened(self.path)
        opened.take()
        self._let_file_go = weakref.finalize(
            self, opened.let_go
        )  # once, if only when nobody has this any more
        try:
            self._root = duckdb.connect(str(self.path) if self.path else ":memory:", config=config)
        except (duckdb.Error, OSError) as error:
            self._let_file_go()
            raise _unopened(self.path, error) from None
        try:
            # the plans are written in the order in which they are to be run
            self._root.execute("SET disabled_optimizers = 'join_order'").fetchall()
            self.writer = self.connect()
            self._create()
        except duckdb.Error as error:
            self._let_go()
            raise _unopened(self.path, error) from None
        except BaseException:
            self._let_go()
            raise
        self._next = self._counters()
        self._taken: dict[str, int] = {}
        self._changing = False

    def connect(self) -> Connection:
        """A further connection, for one thread."""
        return Connection(self._root.cursor())

    def _create(self) -> None:
        present = {name for (name,) in self.writer.rows("SELECT table_name FROM duckdb_tables()")}
        if TABLES.keys() <= present:
            found = self.meta("format")
            if found != str(FORMAT):
                raise TablesError(
                    f"{self.path} has tables of another version of Sapwood (format {found}, not {FORMAT}); "
                    "delete the file, and it is made anew from the store"
                )
            return
        if present:
            raise TablesError(f"{self.path} is a DuckDB file, but holds other tables than Sapwood's")
        with self.writer.transaction():
            for name, columns in TABLES.items():
                self.writer.run(f"CREATE TABLE {name} ({columns})")
            for name, sql in VIEWS.items():
                self.writer.run(f"CREATE VIEW {name} AS {sql}")
            for statement in FIRST_ROWS:
                self.writer.run(statement)

    # -- what is written down --------------------------------------------------------------------------

    def meta(self, name: str) -> str | None:
        with self.lock:
            found: str | None = self.writer.value("SELECT value FROM meta WHERE name = ?", [name])
        return found

    def set_meta(self, values: Mapping[str, str | None]) -> None:
        """Notes values; None takes one away."""
        for name, value in values.items():
            self.writer.run("DELETE FROM meta WHERE name = ?", [name])
            if value is not None:
                self.writer.run("INSERT INTO meta VALUES (?, ?)", [name, value])

    # -- changes ---------------------------------------------------------------------------------------

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """A transaction; others who change the tables wait until it ends."""
        with self.lock:
            self.check_idle()
            self._changing = True
            try:
                with self.writer.transaction():
                    yield self.writer
                    for name, number in self._taken.items():
                        self.writer.run("UPDATE counter SET next = ? WHERE name = ?", [number, name])
                self._next.update(self._taken)
            except BaseException:
                with suppress(duckdb.Error):
                    self._next = self._counters()  # Ctrl-C may come too late to undo anything
                raise
            finally:
                self._changing = False
                self._taken.clear()

    def check_idle(self) -> None:
        """TablesError if a change is under way, which can only be one of the same thread's."""
        if self._changing:
            raise TablesError(
                "the tables are being changed: whoever is told of an error meanwhile must not change "
                "subscriptions, nor match messages"
            )

    def _counters(self) -> dict[str, int]:
        return dict(self.writer.rows("SELECT name, next FROM counter"))

    def take(self, counter: str, count: int) -> int:
        """The first of so many new numbers."""
        first = self.upcoming(counter)
        self._taken[counter] = first + count
        return first

    def upcoming(self, counter: str) -> int:
        """The number that is given next."""
        return self._taken[counter] if counter in self._taken else self._next[counter]

    def forget_messages(self) -> None:
        """Empties what is only known of messages seen."""
        for name in CACHED:
            self.writer.run(f"DELETE FROM {name}")
        self.writer.run("DELETE FROM path_class WHERE path > 0")

    def close(self) -> None:
        self.writer.close()
        self._let_go()

    def _let_go(self) -> None:
        self._root.close()
        self._let_file_go()


class _Opened:
    """That a file is open in this process: whoever opened it, too, would give the same numbers to others."""

    _paths: ClassVar[set[Path]] = set()
    _lock: ClassVar[Lock] = Lock()

    def __init__(self, path: Path | None) -> None:
        self._path = path.resolve() if path is not None else None

    def take(self) -> None:
        if self._path is not None:
            with self._lock:
                if self._path in self._paths:
                    raise TablesError(
                        f"{self._path} is open already in this process; one at a time can use it"
                    )
                self._paths.add(self._path)

    def let_go(self) -> None:
        if self._path is not None:
            with self._lock:
                self._paths.discard(self._path)


def _unopened(path: Path | None, error: Exception) -> TablesError:
    text = str(error)
    if "Could not set lock" in text:
        return TablesError(f"{path} is open in another process; one at a time can use it")
    first = text.splitlines()[0] if text else type(error).__name__
    return TablesError(f"{path} cannot be opened: {first}")
