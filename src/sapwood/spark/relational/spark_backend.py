"""The Spark backend: runs the statements of `relational.sql.match_plan` in Spark SQL.

Each step is a view for those that follow. A step that several others read, or that is joined with a large
table, is materialized: so Spark knows its size, and broadcasts it instead of shuffling the large table.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sapwood.relational.executor import BRANCHING_NODES, MISSING_BRANCHING_NODES
from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.sql.dialect import SparkDialect, SqlStep
from sapwood.relational.sql.match_plan import HIT, TRUE_FACT, plan_steps
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.storage.table_snapshot import (
    LOOKUP_STEPS,
    SUBSCRIPTION,
    SnapshotTable,
    partition_expression,
    read_small_tables,
    snapshot_tables,
)
from sapwood.spark.relational.isolated_session import set_shuffle_partitions
from sapwood.spark.relational.materialized_frame import MaterializedFrame
from sapwood.spark.relational.parquet_snapshot import ParquetSnapshot
from sapwood.spark.relational.residual_stage import ResidualStage, evaluate_residuals
from sapwood.spark.relational.result_combiner import FAILED_PAIRS_SQL, MATCHED_PAIRS_SQL, BackendResult
from sapwood.spark.relational.row_schemas import RESIDUAL_CANDIDATE
from sapwood.spark.relational.shredded_batch import SparkShreddedBatch

_log = logging.getLogger(__name__)

_MAX_BROADCAST_ROWS = 500_000
"""rows of a step that are broadcast to the tables they are joined with"""
_MATERIALIZED_STEPS = frozenset({"probe", "extent", TRUE_FACT, "found", HIT.name})
"""Steps whose sizes matter. (And Spark would reorder joins with the union in `probe`.)"""


class BatchViews:
    """The frames of a batch under the names that statements use, in an isolated session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._names: set[str] = set()
        self._materialized: list[MaterializedFrame] = []

    def put(self, name: str, frame: DataFrame, broadcast: bool = False) -> None:
        """Create or replace a view, whose rows may be broadcast in joins."""
        (F.broadcast(frame) if broadcast else frame).createOrReplaceTempView(name)
        self._names.add(name)

    def materialize(self, frame: DataFrame) -> MaterializedFrame:
        """Materialize a frame until the views are closed."""
        self._materialized.append(MaterializedFrame(frame))
        return self._materialized[-1]

    def close(self) -> None:
        """Drop all views, and free materialized rows."""
        for name in self._names:
            self._session.catalog.dropTempView(name)
        for frame in self._materialized:
            frame.release()


class TableViews:
    """The tables of a snapshot as views of a session, replaced only where they have changed."""

    def __init__(self, snapshot: ParquetSnapshot) -> None:
        self._snapshot = snapshot
        self._snapshot_id = ""
        self._large: dict[str, SnapshotTable] = {}
        self._frames: dict[str, DataFrame] = {}
        self._small: dict[str, pa.Table] = {}

    def create(self, session: SparkSession, batch: SparkShreddedBatch) -> None:
        """Create the views for the tables as the batch's connection sees them; always in one session."""
        plan = batch.parameters.plan
        snapshot_id = self._snapshot.update(batch.connection, plan)
        if snapshot_id != self._snapshot_id:
            self._large = {table.name: table for table in (*snapshot_tables(plan), SUBSCRIPTION)}
            self._frames = {
                name: self._snapshot.read_table(session, table) for name, table in self._large.items()
            }
            self._snapshot_id = snapshot_id
        for name, frame in self._frames.items():
            frame.createOrReplaceTempView(name)
        for name, table in read_small_tables(batch.connection).items():
            if not table.equals(self._small.get(name, _NO_TABLE)):
                session.createDataFrame(table).createOrReplaceTempView(name)
                self._small[name] = table

    def prune(self, step: SqlStep, rows: DataFrame) -> None:
        """Restrict the tables in which a step's rows are looked up to the partitions with their values."""
        count = self._snapshot.partition_count
        if count > 1 and step.name in LOOKUP_STEPS:
            column, names = LOOKUP_STEPS[step.name]
            partitions = rows.select(F.expr(partition_expression(column, count))).distinct().collect()
            values = {partition for (partition,) in partitions}
            for table in [self._large[name] for name in names if name in self._large]:
                if len(values) < count:
                    needed = table.partitions_for(count, values)
                    pruned = self._snapshot.read_table(rows.sparkSession, table, needed)
                    pruned.createOrReplaceTempView(table.name)


_NO_TABLE = pa.table({})


class SparkBackend:
    """Matches with Spark SQL, over a Parquet snapshot of the tables that all workers reach."""

    def __init__(self, matcher: RelationalMatcher, snapshot: ParquetSnapshot) -> None:
        self._matcher = matcher
        self._tables = TableViews(snapshot)

    def reduce_batch_size(self) -> bool:
        """Spark itself bounds what is in memory."""
        return False

    @contextmanager
    def match(self, batch: SparkShreddedBatch, messages: DataFrame) -> Iterator[BackendResult]:
        """Match a batch; `messages` has `msg` and `body`."""
        session = messages.sparkSession
        tasks = set_shuffle_partitions(session, sum(batch.blocks.values()))
        views = BatchViews(session)
        try:
            self._tables.create(session, batch)
            views.put("value", batch.values.coalesce(tasks))
            views.put("message", batch.messages.coalesce(tasks))
            self._run_steps(session, batch, views)
            failures = None
            if batch.parameters.depth or batch.connection.value(_INEXACT_QUERIES):
                failures = self._check_residuals(batch, views, messages)
            yield BackendResult(session.sql(MATCHED_PAIRS_SQL), failures=failures)
        finally:
            views.close()

    def _run_steps(self, session: SparkSession, batch: SparkShreddedBatch, views: BatchViews) -> None:
        steps = list(plan_steps(batch.parameters, SparkDialect()))
        broadcast = sum(batch.blocks.values()) <= _MAX_BROADCAST_ROWS
        for number, step in enumerate(steps, 1):
            frame = session.sql(step.sql)
            if step.name in _MATERIALIZED_STEPS or _count_readers(step, steps[number:]) > 1:
                materialized = views.materialize(frame)
                rows = materialized.count()
                _log.debug("step %s has %d rows", step.name, rows)
                frame, broadcast = materialized.frame, rows <= _MAX_BROADCAST_ROWS
                self._tables.prune(step, frame)
            # a step that is not materialized has no more rows than the last one that is
            views.put(step.name, frame, broadcast)
            if step is HIT:
                views.put("branching_position", self._locate_branching_nodes(batch.connection, frame))

    def _locate_branching_nodes(self, connection: Connection, hit: DataFrame) -> DataFrame:
        """Return the positions of branching points on the tag paths of a batch."""
        pairs = hit.select("tag", "branching").distinct().toArrow()
        with connection.register(hit=pairs):
            new = self._matcher.locate_branching_nodes(connection.rows(MISSING_BRANCHING_NODES))
            with connection.register(new_positions=new):
                positions = connection.arrow(BRANCHING_NODES)
        return hit.sparkSession.createDataFrame(positions)

    def _check_residuals(
        self, batch: SparkShreddedBatch, views: BatchViews, messages: DataFrame
    ) -> DataFrame | None:
        """Keep in `matched` what is certain or passes its residual check; return FAILED_PAIR rows."""
        session = messages.sparkSession
        materialized = views.materialize(session.sql(_CANDIDATES))
        broadcast = materialized.count() <= _MAX_BROADCAST_ROWS
        matched = materialized.frame.filter("certain").select("msg", "query")
        candidates = materialized.frame.filter("NOT certain").select(*RESIDUAL_CANDIDATE.names)
        failures = None
        if not candidates.isEmpty():
            stage = ResidualStage(batch.namespaces, self._matcher.limits)
            results = views.materialize(evaluate_residuals(candidates, messages, stage)).frame
            matched = matched.unionByName(results.filter("kind IS NULL").select("msg", "query"))
            failed = results.filter("kind IS NOT NULL")
            if not failed.isEmpty():
                views.put("failed", failed, broadcast=True)
                failures = session.sql(FAILED_PAIRS_SQL)
        views.put("matched", matched, broadcast)
        return failures


_CANDIDATES = """
    SELECT m.msg, m.query, q.text, m.certain AND coalesce(q.exact, true) AS certain
    FROM query q RIGHT JOIN matched m ON q.id = m.query"""
_INEXACT_QUERIES = "SELECT count(*) FROM query WHERE NOT exact"


def _count_readers(step: SqlStep, later: list[SqlStep]) -> int:
    """Return how many later statements read a step."""
    return sum(bool(re.search(rf"\b{step.name}\b", other.sql)) for other in later)
