"""A database of ours: connections, transactions and errors, for SQLite and PostgreSQL."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    MetaData,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sapwood.errors import DatabaseError, StoreError
from sapwood.store import store_migration, store_schema
from sapwood.store.store_location import locate, mask_password

_LOCK_TIMEOUT = 60
"""seconds that a writer waits for another one, which takes at most a chunk of an import"""
_CONNECT_TIMEOUT = 10
_CREATION_LOCK = 0x5A9_000D
"""the advisory lock under which tables are created in PostgreSQL"""
_WRITES = "sapwood_writes"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a purpose, of which several may share a database."""

    what: str
    """what they hold, such as `store`"""
    metadata: MetaData
    state: Table
    """a table of one row, with a column `layout`"""
    layout: int
    """the number of this schema; others are migrated, or refused"""
    first_state: Mapping[str, object]
    how_to_create: str
    how_to_move: str
    """what to do with tables of a schema that is refused"""
    old_layout: int | None = None
    migrate: Callable[[Connection], None] | None = None


STORE = Schema(
    "store",
    store_schema.metadata,
    store_schema.state,
    store_schema.LAYOUT,
    {"version": 0, "oldest": 0, "places": 0},
    "'sapwood subscriptions add' makes one",
    "there, write it to a file with 'sapwood subscriptions list --json', and import that into a new one here",
    store_migration.OLD_LAYOUT,
    store_migration.migrate,
)


class Database:
    """Opens transactions, and converts database errors into StoreError of one line, without passwords."""

    def __init__(
        self,
        location: str,
        create: bool,
        schema: Schema = STORE,
        lock_timeout: float = _LOCK_TIMEOUT,
        checkpoints: bool = True,
    ) -> None:
        """Open the tables of a schema, or create them.

        `lock_timeout` is how many seconds a writer of SQLite waits for another one. Without `checkpoints`,
        writers leave it to somebody else to move SQLite's write-ahead log into the file.
        """
        url = locate(location)
        self._checkpoints = checkpoints
        self._lock_timeout = lock_timeout
        self._schema = schema
        self.name = mask_password(url)
        self.file = Path(str(url.database)) if url.get_backend_name() == "sqlite" else None
        self._is_sqlite = self.file is not None
        if self.file is not None and not create and not self.file.exists():
            raise StoreError(f"there is no {schema.what} {self.name!r}; {schema.how_to_create}")
        with self._convert_errors():
            self._engine = self._sqlite(url) if self._is_sqlite else self._postgresql(url)
        try:
            self._open(create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close idle connections; those still in use close when their transaction ends."""
        self._engine.dispose()

    # -- transactions ----------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction, which sees one snapshot of the database."""
        with self._convert_errors(), self._engine.connect() as connection:
            if not self._is_sqlite:  # where this is so by itself
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction, committed at the end of the block and rolled back if the block raises."""
        with self._convert_errors(), self._engine.connect() as connection:
            if self._is_sqlite:
                connection = connection.execution_options(**{_WRITES: True})
            else:  # a writer that has waited for the state's row sees what was committed meanwhile
                connection = connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                yield connection

    @contextmanager
    def connecting(self) -> Iterator[Connection]:
        """Open a connection, whose transactions the caller begins and commits."""
        with self._convert_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            _log.debug("database error in %s", self.name, exc_info=True)
            raise DatabaseError(f"{self.name!r}: {_reason(error)}") from error

    # -- opening ---------------------------------------------------------------------------------------

    def _sqlite(self, url: URL) -> Engine:
        engine = create_engine(
            url, connect_args={"timeout": self._lock_timeout}, max_overflow=-1, hide_parameters=True
        )

        # Python's driver would begin transactions implicitly. A writer begins with BEGIN IMMEDIATE: one that
        # reads before it writes is refused if another has written meanwhile.
        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: object) -> None:
            connection.isolation_level = None
            if not self._checkpoints:
                connection.execute("PRAGMA wal_autocheckpoint = 0")

        @event.listens_for(engine, "begin")
        def begun(connection: Connection) -> None:
            writes = connection.get_execution_options().get(_WRITES)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _postgresql(self, url: URL) -> Engine:
        arguments = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_TIMEOUT}
        try:
            return create_engine(
                url, connect_args=arguments, max_overflow=-1, pool_pre_ping=True, hide_parameters=True
            )
        except ImportError:
            raise StoreError(
                "PostgreSQL needs psycopg: in a clone of Sapwood, pip install '.[postgres]'"
            ) from None

    def _open(self, create: bool) -> None:
        if not self._has_tables():
            if not create:
                raise StoreError(f"there is no {self._schema.what} in {self.name!r}")
            self._create()
        schema = self._schema
        with self.reading() as connection:
            layout = connection.scalar(select(schema.state.c.layout))
        _log.debug("opened %s %s, schema %s", schema.what, self.name, layout)
        if schema.migrate is not None and layout == schema.old_layout:
            with self.writing() as connection:
                schema.migrate(connection)
        elif layout != schema.layout:
            raise StoreError(
                f"the {schema.what} in {self.name!r} was made by another version of Sapwood; "
                f"{schema.how_to_move}"
            )

    def _has_tables(self) -> bool:
        with self.reading() as connection:
            return inspect(connection).has_table(self._schema.state.name)

    def _create(self) -> None:
        if self._is_sqlite:
            self._enable_write_ahead_log()
        with self.writing() as connection:
            if not self._is_sqlite:
                connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
            schema = self._schema
            if inspect(connection).has_table(schema.state.name):
                return  # another process was faster
            _log.info("creating the tables of %s %s", schema.what, self.name)
            schema.metadata.create_all(connection)
            row = {"one": 1, "layout": schema.layout, **schema.first_state}
            connection.execute(insert(schema.state).values(row))

    def _enable_write_ahead_log(self) -> None:
        """Enable SQLite's write-ahead log, so that readers do not block the writer; the file keeps the mode.

        Where several processes open a new file at once, SQLite refuses all but one of them without waiting.
        """
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while not self._try_write_ahead_log():
            if time.monotonic() > deadline:
                raise DatabaseError(f"{self.name!r}: database is locked")
            time.sleep(0.01)

    def _try_write_ahead_log(self) -> bool:
        with self._convert_errors():
            driver = self._engine.raw_connection()
        try:
            driver.cursor().execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise DatabaseError(f"{self.name!r}: {error}") from error
            return False
        finally:
            driver.close()
        return True


def _reason(error: SQLAlchemyError) -> str:
    """The first line of a database error."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return lines[0]
