"""The DuckDB file with the tables: connections, transactions, ids for new rows.

One process at a time has the file open. In it, one thread at a time changes the tables; any number of batches
read them meanwhile, each in the snapshot of its transaction.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from sapwood.errors import TablesError
from sapwood.lang.literals.memory_sizes import DEFAULT_MEMORY, check_memory, parse_memory
from sapwood.relational.storage.table_schema import FORMAT, INITIAL_ROWS, MESSAGE_CACHE, TABLES, VIEWS

_log = logging.getLogger(__name__)


@contextmanager
def _translate_interrupts() -> Iterator[None]:
    """Raise a KeyboardInterrupt where DuckDB reports Ctrl-C as another error."""
    try:
        yield
    except RuntimeError as error:
        if "interrupt" in str(error).lower():
            raise KeyboardInterrupt from None
        raise


class Connection:
    """A connection to the database, for one thread at a time."""

    def __init__(self, raw: duckdb.DuckDBPyConnection) -> None:
        self._raw = raw

    def run(self, sql: str, parameters: object = None) -> None:
        """Execute a statement."""
        self.rows(sql, parameters)  # an unfetched result would keep the connection busy

    def rows(self, sql: str, parameters: object = None) -> list[tuple[Any, ...]]:
        """Execute a statement, and return all rows."""
        with _translate_interrupts():
            return self._raw.execute(sql, parameters).fetchall()

    def value(self, sql: str, parameters: object = None) -> Any:
        """Execute a statement, and return the first column of its first row; None without rows."""
        rows = self.rows(sql, parameters)
        return rows[0][0] if rows else None

    def arrow(self, sql: str) -> pa.Table:
        """Execute a query, and return an Arrow table."""
        with _translate_interrupts():
            return self._raw.sql(sql).to_arrow_table()

    def stream(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        """Execute a query, and yield its result in batches of `rows` rows."""
        with _translate_interrupts():
            reader = self._raw.sql(sql).to_arrow_reader(rows)
        while True:
            with _translate_interrupts():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch

    def create_temp_table(self, name: str, sql: str) -> None:
        """Create or replace a temporary table, visible to this connection only."""
        self.run(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")

    @contextmanager
    def register(self, **tables: pa.Table) -> Iterator[None]:
        """Make Arrow tables readable by statements under these names."""
        for name, table in tables.items():
            self._raw.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self._raw.unregister(name)

    def insert(self, table: str, rows: pa.Table) -> None:
        """Insert rows into a table, by the names of the columns."""
        if len(rows):
            with self.register(inserted=rows):
                self.run(f"INSERT INTO {table} BY NAME SELECT * FROM inserted")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run statements in a transaction, which is rolled back on any error."""
        self.run("BEGIN TRANSACTION")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            with suppress(duckdb.Error, RuntimeError):
                self._raw.abort()  # a statement that Ctrl-C interrupted
            with suppress(duckdb.Error):
                self.run("ROLLBACK")
            raise

    def close(self) -> None:
        self._raw.close()


class DuckDBDatabase:
    """The database file, created if it is absent; a path of None keeps the tables in memory."""

    def __init__(
        self, path: str | Path | None, memory: str = DEFAULT_MEMORY, threads: int | None = None
    ) -> None:
        self.path = Path(path) if path is not None else None
        check_memory(parse_memory(memory), repr(memory))
        self.memory = memory
        self.lock = RLock()
        """held while the tables change, or must not change"""
        config: dict[str, Any] = {
            "autoinstall_known_extensions": False,  # a file of another format must not make it download
            "memory_limit": memory,
            "threads": threads or os.cpu_count() or 1,
            "preserve_insertion_order": False,  # which would cost memory for nothing
        }
        open_file = _OpenFile(self.path)
        open_file.acquire()
        # runs once, at the latest when the object is collected
        self._release_file = weakref.finalize(self, open_file.release)
        try:
            self._root = duckdb.connect(str(self.path) if self.path else ":memory:", config=config)
        except (duckdb.Error, OSError) as error:
            self._release_file()
            raise _open_error(self.path, error) from None
        try:
            # statements have their joins in the order of execution
            self._root.execute("SET disabled_optimizers = 'join_order'").fetchall()
            self.writer = self.connect()
            self._create()
        except duckdb.Error as error:
            self._close_root()
            raise _open_error(self.path, error) from None
        except BaseException:
            self._close_root()
            raise
        self._next_ids = self._read_counters()
        self._allocated: dict[str, int] = {}
        self._in_transaction = False
        _log.debug("database %s open, %s of memory", self.path or "in memory", memory)

    def connect(self) -> Connection:
        """Open a further connection."""
        return Connection(self._root.cursor())

    def _create(self) -> None:
        present = {name for (name,) in self.writer.rows("SELECT table_name FROM duckdb_tables()")}
        if TABLES.keys() <= present:
            found = self.meta("format")
            if found != str(FORMAT):
                raise TablesError(
                    f"{self.path} has tables of another version of Sapwood (format {found}, not {FORMAT}); "
                    "delete the file, and it is created again from the store"
                )
            return
        if present:
            raise TablesError(f"{self.path} has other tables than Sapwood's; give another file")
        with self.writer.transaction():
            for name, columns in TABLES.items():
                self.writer.run(f"CREATE TABLE {name} ({columns})")
            for name, sql in VIEWS.items():
                self.writer.run(f"CREATE VIEW {name} AS {sql}")
            for statement in INITIAL_ROWS:
                self.writer.run(statement)

    # -- metadata --------------------------------------------------------------------------------------

    def meta(self, name: str) -> str | None:
        """Return an entry of the table `meta`."""
        with self.lock:
            found: str | None = self.writer.value("SELECT value FROM meta WHERE name = ?", [name])
        return found

    def set_meta(self, values: Mapping[str, str | None]) -> None:
        """Write entries of the table `meta`; None deletes one."""
        for name, value in values.items():
            self.writer.run("DELETE FROM meta WHERE name = ?", [name])
            if value is not None:
                self.writer.run("INSERT INTO meta VALUES (?, ?)", [name, value])

    # -- changes ---------------------------------------------------------------------------------------

    @contextmanager
    def write_transaction(self) -> Iterator[Connection]:
        """Run a transaction that changes tables; other writers wait until it ends."""
        with self.lock:
            self.check_idle()
            self._in_transaction = True
            try:
                with self.writer.transaction():
                    yield self.writer
                    for name, number in self._allocated.items():
                        self.writer.run("UPDATE counter SET next = ? WHERE name = ?", [number, name])
                self._next_ids.update(self._allocated)
            except BaseException:
                with suppress(duckdb.Error):
                    self._next_ids = self._read_counters()  # Ctrl-C may come after the commit
                raise
            finally:
                self._in_transaction = False
                self._allocated.clear()

    def check_idle(self) -> None:
        """Raise a TablesError within a transaction, which can only be the same thread's."""
        if self._in_transaction:
            raise TablesError(
                "the tables are in a transaction: an on_error callback must not change subscriptions, nor "
                "match messages; do so after the call that reports the error"
            )

    def _read_counters(self) -> dict[str, int]:
        return dict(self.writer.rows("SELECT name, next FROM counter"))

    def allocate_ids(self, counter: str, count: int) -> int:
        """Allocate `count` new ids of a counter, and return the first."""
        first = self.next_id(counter)
        self._allocated[counter] = first + count
        return first

    def next_id(self, counter: str) -> int:
        """Return the id that is allocated next."""
        return self._allocated[counter] if counter in self._allocated else self._next_ids[counter]

    def clear_message_cache(self) -> None:
        """Clear the message cache."""
        for name in MESSAGE_CACHE:
            self.writer.run(f"DELETE FROM {name}")
        self.writer.run("DELETE FROM path_class WHERE path > 0")

    def close(self) -> None:
        """Close all connections and the file."""
        self.writer.close()
        self._close_root()

    def _close_root(self) -> None:
        self._root.close()
        self._release_file()


class _OpenFile:
    """Guards a file against being opened twice in this process, which would allocate the same ids twice."""

    _paths: ClassVar[set[Path]] = set()
    _lock: ClassVar[Lock] = Lock()

    def __init__(self, path: Path | None) -> None:
        self._path = path.resolve() if path is not None else None

    def acquire(self) -> None:
        if self._path is not None:
            with self._lock:
                if self._path in self._paths:
                    raise TablesError(f"{self._path} is open in this process already; close it there first")
                self._paths.add(self._path)

    def release(self) -> None:
        if self._path is not None:
            with self._lock:
                self._paths.discard(self._path)


def _open_error(path: Path | None, error: Exception) -> TablesError:
    text = str(error)
    if "Could not set lock" in text:
        return TablesError(f"{path} is open in another process; close it there first")
    first = text.splitlines()[0] if text else type(error).__name__
    return TablesError(f"{path} cannot be opened: {first}")
