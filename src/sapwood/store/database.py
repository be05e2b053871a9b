"""The database of a store: connections, transactions and errors, for SQLite and PostgreSQL."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, insert, inspect, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sapwood.errors import StoreError
from sapwood.store import store_migration, store_schema
from sapwood.store.store_location import locate, mask_password

_LOCK_TIMEOUT = 60
"""seconds that a writer waits for another one, which takes at most a chunk of an import"""
_CONNECT_TIMEOUT = 10
_CREATION_LOCK = 0x5A9_000D
"""the advisory lock under which tables are created in PostgreSQL"""
_WRITES = "sapwood_writes"
_log = logging.getLogger(__name__)


class Database:
    """Opens transactions, and converts database errors into StoreError of one line, without passwords."""

    def __init__(self, location: str, create: bool) -> None:
        url = locate(location)
        self.name = mask_password(url)
        self._is_sqlite = url.get_backend_name() == "sqlite"
        if self._is_sqlite and not create and not Path(str(url.database)).exists():
            raise StoreError(f"there is no store {self.name!r}; 'sapwood subscriptions add' makes one")
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
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            _log.debug("database error in %s", self.name, exc_info=True)
            raise StoreError(f"{self.name!r}: {_reason(error)}") from error

    # -- opening ---------------------------------------------------------------------------------------

    def _sqlite(self, url: URL) -> Engine:
        engine = create_engine(
            url, connect_args={"timeout": _LOCK_TIMEOUT}, max_overflow=-1, hide_parameters=True
        )

        # Python's driver would begin transactions implicitly. A writer begins with BEGIN IMMEDIATE: one that
        # reads before it writes is refused if another has written meanwhile.
        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: object) -> None:
            connection.isolation_level = None

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
                raise StoreError(f"there is no store in {self.name!r}")
            self._create()
        with self.reading() as connection:
            layout = connection.scalar(select(store_schema.state.c.layout))
        _log.debug("opened store %s, schema %s", self.name, layout)
        if layout == store_migration.OLD_LAYOUT:
            with self.writing() as connection:
                store_migration.migrate(connection)
        elif layout != store_schema.LAYOUT:
            raise StoreError(
                f"the store in {self.name!r} was made by another version of Sapwood; there, write it to a "
                "file with 'sapwood subscriptions list --json', and import that into a new store here"
            )

    def _has_tables(self) -> bool:
        with self.reading() as connection:
            return inspect(connection).has_table(store_schema.state.name)

    def _create(self) -> None:
        if self._is_sqlite:
            self._enable_write_ahead_log()
        with self.writing() as connection:
            if not self._is_sqlite:
                connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
            if inspect(connection).has_table(store_schema.state.name):
                return  # another process was faster
            _log.info("creating the tables of store %s", self.name)
            store_schema.metadata.create_all(connection)
            connection.execute(
                insert(store_schema.state).values(
                    one=1, layout=store_schema.LAYOUT, version=0, oldest=0, places=0
                )
            )

    def _enable_write_ahead_log(self) -> None:
        """Enable SQLite's write-ahead log, so that readers do not block the writer; the file keeps the mode.

        Where several processes open a new file at once, SQLite refuses all but one of them without waiting.
        """
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while not self._try_write_ahead_log():
            if time.monotonic() > deadline:
                raise StoreError(f"{self.name!r}: database is locked")
            time.sleep(0.01)

    def _try_write_ahead_log(self) -> bool:
        with self._convert_errors():
            driver = self._engine.raw_connection()
        try:
            driver.cursor().execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise StoreError(f"{self.name!r}: {error}") from error
            return False
        finally:
            driver.close()
        return True


def _reason(error: SQLAlchemyError) -> str:
    """The first line of a database error."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return lines[0]
