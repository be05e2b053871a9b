"""One database, its transactions and its errors; all that differs between SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, insert, inspect, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sapwood.errors import StoreError
from sapwood.store import store_schema
from sapwood.store.store_location import locate, mask_password

_PATIENCE = 60
"""seconds that a writer waits for another one to finish, which takes an import's chunk at most"""
_CONNECT_TIMEOUT = 10
_CREATING = 0x5A9_000D
"""the advisory lock under which tables are made in PostgreSQL"""
_WRITES = "sapwood_writes"


class Database:
    """Gives out transactions, and turns what goes wrong into StoreError with one line, without passwords."""

    def __init__(self, location: str, create: bool) -> None:
        url = locate(location)
        self.name = mask_password(url)
        self._is_sqlite = url.get_backend_name() == "sqlite"
        if self._is_sqlite and not create and not Path(str(url.database)).exists():
            raise StoreError(f"there is no store {self.name!r}; 'sapwood subscriptions add' makes one")
        with self._told():
            self._engine = self._sqlite(url) if self._is_sqlite else self._postgresql(url)
        try:
            self._open(create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all connections but those that are still read from, which end with their reading."""
        self._engine.dispose()

    # -- transactions ----------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment of the database, however long it lasts."""
        with self._told(), self._engine.connect() as connection:
            if not self._is_sqlite:  # where this is so by itself
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed at the end of the block, and undone if the block raises."""
        with self._told(), self._engine.connect() as connection:
            if self._is_sqlite:
                connection = connection.execution_options(**{_WRITES: True})
            else:  # so that whoever has waited for the state's row sees what was committed meanwhile
                connection = connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                yield connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise StoreError(f"{self.name!r}: {_reason(error)}") from error

    # -- opening ---------------------------------------------------------------------------------------

    def _sqlite(self, url: URL) -> Engine:
        engine = create_engine(
            url, connect_args={"timeout": _PATIENCE}, max_overflow=-1, hide_parameters=True
        )

        # Python's driver begins transactions when it sees fit; we say when, and a writer at once: one that
        # has read before it asks to write is refused if another has written meanwhile.
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
        if layout != store_schema.LAYOUT:
            raise StoreError(f"the store in {self.name!r} was made by another version of Sapwood")

    def _has_tables(self) -> bool:
        with self.reading() as connection:
            return inspect(connection).has_table(store_schema.state.name)

    def _create(self) -> None:
        if self._is_sqlite:
            self._let_readers_and_a_writer_coexist()
        with self.writing() as connection:
            if not self._is_sqlite:
                connection.execute(select(func.pg_advisory_xact_lock(_CREATING)))
            if inspect(connection).has_table(store_schema.state.name):
                return  # another process was faster
            store_schema.metadata.create_all(connection)
            connection.execute(
                insert(store_schema.state).values(
                    one=1, layout=store_schema.LAYOUT, version=0, oldest=0, places=0
                )
            )

    def _let_readers_and_a_writer_coexist(self) -> None:
        """Switches on SQLite's write-ahead log, which the file then keeps to.

        Where several processes open a new file at once, SQLite refuses all but one of them without waiting.
        """
        deadline = time.monotonic() + _PATIENCE
        while not self._switched():
            if time.monotonic() > deadline:
                raise StoreError(f"{self.name!r}: database is locked")
            time.sleep(0.01)

    def _switched(self) -> bool:
        with self._told():
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
    """The first line of what the database says."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return lines[0]
