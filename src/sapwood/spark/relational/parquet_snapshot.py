"""Snapshots of the relational engine's tables as Parquet files that Spark reads.

    base-…/TABLE/N.parquet     all rows of a table: a file for each partition; of subscriptions, one for each
                               range of numbers
    base-…/marks               the state of the tables (`TableVersions`), written last: a base without it is
                               incomplete
    since-…/TABLE/0.parquet    the delta: rows that are new since the base

A base serves many batches, and many runs: the tables have its name in `meta`, as `copied`. The delta is
written again whenever subscriptions have changed, until it is so large that a new base is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.storage.table_snapshot import (
    SUBSCRIPTION,
    SnapshotTable,
    TableVersions,
    changed_ranges,
    is_outdated,
    read_table_versions,
    snapshot_tables,
    subscription_delta,
    subscription_range_sql,
)
from sapwood.spark.io.file_system import list_names, make_folder, open_file, open_output, remove_folder
from sapwood.spark.relational.row_schemas import to_spark

_log = logging.getLogger(__name__)

_BASE_KEY = "copied"
_VERSIONS_FILE = "marks"
_BASE_PREFIX, _DELTA_PREFIX = "base-", "since-"
_ROWS_PER_GROUP = 1 << 17
"""rows fetched at a time, and in a row group, which a task may read by itself"""


@dataclass(frozen=True, slots=True)
class _SnapshotFolder:
    """A base or a delta; `deleted` has number and query of subscriptions that a delta removes."""

    name: str
    versions: TableVersions
    deleted: pa.Table


_NO_SUBSCRIPTIONS = SUBSCRIPTION.schema.empty_table().select(["number", "query"])


class ParquetSnapshot:
    """The snapshot of a matcher's tables in a folder that all workers reach."""

    def __init__(self, matcher: RelationalMatcher, folder: str) -> None:
        self._database = matcher.database
        self._folder = folder
        self._base = self._find_base()
        self._delta: _SnapshotFolder | None = None
        self._remove_unused()

    def update(self, connection: Connection, plan: Plan) -> str:
        """Bring the snapshot to the tables that the connection sees; return an id of this state."""
        now = read_table_versions(connection, plan)
        base = self._base
        if base is None or self._base_name() != base.name or is_outdated(connection, base.versions, now):
            self._base, self._delta = self._write_base(connection, plan, now), None
        elif now == base.versions:
            self._delta = None
        elif self._delta is None or now != self._delta.versions:
            self._delta = self._write_delta(connection, plan, base, now)
        self._remove_unused()
        return " ".join(self._names())

    @property
    def partition_count(self) -> int:
        """The number of partitions of the base."""
        assert self._base is not None
        return self._base.versions.partitions

    def read_table(
        self, spark: SparkSession, table: SnapshotTable, partitions: Iterable[int] | None = None
    ) -> DataFrame:
        """Return a table of the snapshot, or some partitions of it."""
        assert self._base is not None
        base, delta = f"{self._folder}/{self._base.name}/{table.name}", self._delta
        files = [base] if partitions is None else [f"{base}/{number}.parquet" for number in partitions]
        new = [f"{self._folder}/{delta.name}/{table.name}/0.parquet"] if delta is not None else []
        reader = spark.read.schema(to_spark(table.schema))
        if table is SUBSCRIPTION and delta is not None and len(delta.deleted):
            deleted = spark.createDataFrame(delta.deleted)
            return (
                reader.parquet(base)
                .join(deleted, ["number", "query"], "left_anti")
                .unionByName(reader.parquet(*new))
            )
        return reader.parquet(*files, *new)

    def _find_base(self) -> _SnapshotFolder | None:
        """Return the base of an earlier run, if it is complete and of these tables."""
        name = self._base_name()
        if name is None or _VERSIONS_FILE not in list_names(f"{self._folder}/{name}"):
            return None
        with open_file(f"{self._folder}/{name}/{_VERSIONS_FILE}") as file:
            versions = TableVersions.from_json(file.read().decode())
        if versions is None:
            return None
        _log.info("snapshot %s of an earlier run is used again", name)
        return _SnapshotFolder(name, versions, _NO_SUBSCRIPTIONS)

    def _base_name(self) -> str | None:
        with self._database.lock:
            return self._database.meta(_BASE_KEY)

    def _names(self) -> list[str]:
        return [each.name for each in (self._base, self._delta) if each is not None]

    def _remove_unused(self) -> None:
        used = self._names()
        for name in list_names(self._folder):
            if name not in used and name.startswith((_BASE_PREFIX, _DELTA_PREFIX)):
                remove_folder(f"{self._folder}/{name}")

    # -- files -----------------------------------------------------------------------------------------

    def _write_base(self, connection: Connection, plan: Plan, now: TableVersions) -> _SnapshotFolder:
        name = f"{_BASE_PREFIX}{uuid4().hex}"
        for table in snapshot_tables(plan):
            for number, partition in enumerate(table.partition_conditions(now.partitions)):
                rows = connection.stream(table.sql(partition), _ROWS_PER_GROUP)
                self._write(name, table, rows, number)
        for number in now.ranges or [0]:
            rows = connection.stream(subscription_range_sql(number), _ROWS_PER_GROUP)
            self._write(name, SUBSCRIPTION, rows, number)
        with open_output(f"{self._folder}/{name}/{_VERSIONS_FILE}") as file:
            file.write(now.to_json().encode())
        with self._database.write_transaction():
            self._database.set_meta({_BASE_KEY: name})
        _log.info("snapshot %s written: %d rules in %d partitions", name, now.rules, now.partitions)
        return _SnapshotFolder(name, now, _NO_SUBSCRIPTIONS)

    def _write_delta(
        self, connection: Connection, plan: Plan, base: _SnapshotFolder, now: TableVersions
    ) -> _SnapshotFolder:
        name = f"{_DELTA_PREFIX}{uuid4().hex}"
        for table in snapshot_tables(plan):
            rows = connection.stream(table.new_sql(base.versions.counters), _ROWS_PER_GROUP)
            self._write(name, table, rows)
        added, deleted = subscription_delta(connection, self._read_changed_ranges(base, now))
        self._write(name, SUBSCRIPTION, added.to_batches())
        _log.debug(
            "delta %s of %s written: %d subscriptions added, %d deleted",
            *(name, base.name, len(added), len(deleted)),
        )
        return _SnapshotFolder(name, now, deleted)

    def _read_changed_ranges(
        self, base: _SnapshotFolder, now: TableVersions
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield number and query of the base's subscriptions, for each range that has changed."""
        for number in changed_ranges(base.versions, now):
            if number not in base.versions.ranges:
                yield number, _NO_SUBSCRIPTIONS
                continue
            with open_file(f"{self._folder}/{base.name}/{SUBSCRIPTION.name}/{number}.parquet") as file:
                yield number, pq.read_table(file, columns=_NO_SUBSCRIPTIONS.column_names)

    def _write(
        self, name: str, table: SnapshotTable, rows: Iterable[pa.RecordBatch], number: int = 0
    ) -> None:
        """Write a file, also without rows: Spark needs one to read."""
        folder = f"{self._folder}/{name}/{table.name}"
        make_folder(folder)
        with (
            open_output(f"{folder}/{number}.parquet") as file,
            pq.ParquetWriter(file, table.schema) as writer,
        ):
            for batch in rows:
                writer.write_batch(batch)
