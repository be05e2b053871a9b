"""Copies of the relational engine's tables, as Parquet files that Spark reads.

    base-…/TABLE/N.parquet     all rows of a table, at some moment: a file for each part; of subscriptions,
                               one for each stretch
    base-…/marks               what it was made of, written last: without it, a base is none
    since-…/TABLE/0.parquet    what is new since the base was made

A base is good for many batches, and for many runs: its name is noted in the tables themselves. What is new is
written again whenever subscriptions have changed, until it is so much that a new base is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.storage.table_snapshot import (
    SUBSCRIPTION,
    SnapshotTable,
    TableVersions,
    changed_stretches,
    is_outdated,
    read_table_versions,
    snapshot_tables,
    subscription_delta,
    subscriptions_sql,
)
from sapwood.spark.io.storage import list_names, make_folder, open_file, open_output, remove_folder

_NOTE = "copied"
_ROWS = 1 << 17
"""fetched at a time, and in a part of a file that a task may have for itself"""


@dataclass(frozen=True, slots=True)
class _Base:
    name: str
    marks: TableVersions


@dataclass(frozen=True, slots=True)
class _Since:
    """What is new, and number and query of the subscriptions that are gone."""

    name: str
    marks: TableVersions
    gone: pa.Table


class Copies:
    """Copies of a matcher's tables in a folder that all workers reach."""

    def __init__(self, matcher: RelationalMatcher, folder: str) -> None:
        self._tables = matcher.tables
        self._folder = folder
        self._base = self._noted()
        self._since: _Since | None = None
        self._clean()

    def bring(self, connection: Connection, plan: Plan) -> str:
        """Brings the copies in step with what the connection sees; tells what stands for just that."""
        now = read_table_versions(connection, plan)
        base = self._base
        if base is None or self._note() != base.name or is_outdated(connection, base.marks, now):
            self._base, self._since = self._made(connection, plan, now), None
        elif now == base.marks:
            self._since = None
        elif self._since is None or now != self._since.marks:
            self._since = self._new(connection, plan, base, now)
        self._clean()
        return " ".join(each.name for each in (self._base, self._since) if each is not None)

    @property
    def parts(self) -> int:
        """Into how many parts tables are cut."""
        assert self._base is not None
        return self._base.marks.parts

    def frame(
        self, spark: SparkSession, table: SnapshotTable, parts: Iterable[int] | None = None
    ) -> DataFrame:
        """A table as it was when the copies were last brought in step, or some parts of it."""
        assert self._base is not None
        there, since = f"{self._folder}/{self._base.name}/{table.name}", self._since
        files = [there] if parts is None else [f"{there}/{part}.parquet" for part in parts]
        new = [f"{self._folder}/{since.name}/{table.name}/0.parquet"] if since is not None else []
        read = spark.read.schema(from_arrow_schema(table.schema))
        if table is SUBSCRIPTION and since is not None and len(since.gone):
            gone = spark.createDataFrame(since.gone)
            return (
                read.parquet(there)
                .join(gone, ["number", "query"], "left_anti")
                .unionByName(read.parquet(*new))
            )
        return read.parquet(*files, *new)

    def _noted(self) -> _Base | None:
        """The base of an earlier run, if it is complete and of these tables."""
        name = self._note()
        if name is None or "marks" not in list_names(f"{self._folder}/{name}"):
            return None
        with open_file(f"{self._folder}/{name}/marks") as file:
            return _Base(name, TableVersions.read(file.read().decode()))

    def _note(self) -> str | None:
        with self._tables.lock:
            return self._tables.meta(_NOTE)

    def _clean(self) -> None:
        used = {each.name for each in (self._base, self._since) if each is not None}
        for name in list_names(self._folder):
            if name not in used and name.startswith(("base-", "since-")):
                remove_folder(f"{self._folder}/{name}")

    # -- files -----------------------------------------------------------------------------------------

    def _made(self, connection: Connection, plan: Plan, now: TableVersions) -> _Base:
        name = f"base-{uuid4().hex}"
        for table in snapshot_tables(plan):
            for number, part in enumerate(table.parts(now.parts)):
                self._write(name, table.name, table.schema, connection.stream(table.sql(part), _ROWS), number)
        for stretch in now.stretches or [0]:
            rows = connection.stream(subscriptions_sql(stretch), _ROWS)
            self._write(name, SUBSCRIPTION.name, SUBSCRIPTION.schema, rows, stretch)
        with open_output(f"{self._folder}/{name}/marks") as file:
            file.write(str(now).encode())
        with self._tables.changing():
            self._tables.set_meta({_NOTE: name})
        return _Base(name, now)

    def _new(self, connection: Connection, plan: Plan, base: _Base, now: TableVersions) -> _Since:
        name = f"since-{uuid4().hex}"
        for table in snapshot_tables(plan):
            rows = connection.stream(table.new_sql(base.marks.counters), _ROWS)
            self._write(name, table.name, table.schema, rows)
        come, gone = subscription_delta(connection, self._there(base, now))
        self._write(name, SUBSCRIPTION.name, SUBSCRIPTION.schema, come.to_batches())
        return _Since(name, now, gone)

    def _there(self, base: _Base, now: TableVersions) -> Iterator[tuple[int, pa.Table]]:
        """Number and query of the base's subscriptions, in each stretch that has changed."""
        columns = ["number", "query"]
        for stretch in changed_stretches(base.marks, now):
            if stretch not in base.marks.stretches:
                yield stretch, SUBSCRIPTION.schema.empty_table().select(columns)
                continue
            with open_file(f"{self._folder}/{base.name}/{SUBSCRIPTION.name}/{stretch}.parquet") as file:
                yield stretch, pq.read_table(file, columns=columns)

    def _write(
        self, copy: str, table: str, schema: pa.Schema, rows: Iterable[pa.RecordBatch], number: int = 0
    ) -> None:
        """Writes a file, which may have no rows: Spark wants something to read."""
        folder = f"{self._folder}/{copy}/{table}"
        make_folder(folder)
        with open_output(f"{folder}/{number}.parquet") as file, pq.ParquetWriter(file, schema) as writer:
            for batch in rows:
                writer.write_batch(batch)
