"""The Spark backend: runs the statements of `relational.sql.match_plan` in Spark SQL.

Each step is a view for those that follow. Every statement that Spark runs by itself costs as much as a scan
of a hundred thousand rows: it is planned, and takes a job for each table that is broadcast. So there are two
ways to run the steps:

fused     Steps are views within one statement, and their rows are broadcast whatever their number. Only steps
          that several others read are materialized.
staged    Every step that is joined with a large table is materialized first. So its size is known, and
          decides whether it is broadcast or the large table is shuffled; and of the large table, the files
          are read that have the keys of the step.

A batch is staged if it has too many values to broadcast them, or so few that they spare files of large
tables. It is also if it was fused and turned out to have too many rows.
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
from sapwood.relational.shredder import VALUE_SCHEMA
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
from sapwood.spark.relational.isolated_session import detach, set_shuffle_partitions
from sapwood.spark.relational.materialized_frame import MaterializedFrame
from sapwood.spark.relational.parquet_snapshot import ParquetSnapshot
from sapwood.spark.relational.residual_stage import ResidualStage, evaluate_residuals
from sapwood.spark.relational.result_combiner import FAILED_PAIRS_SQL, MATCHED_PAIRS_SQL, BackendResult
from sapwood.spark.relational.row_schemas import RESIDUAL_CANDIDATE
from sapwood.spark.relational.shredded_batch import MESSAGE_ROWS, SparkShreddedBatch

_log = logging.getLogger(__name__)

_MAX_BROADCAST_ROWS = 500_000
"""rows of a step that are broadcast to the tables they are joined with"""
_MAX_FUSED_VALUES = 500_000
"""values of a batch that is fused"""
_VALUES_PER_PARTITION = 4
"""values for each partition of the tables, from which on all partitions are taken to be needed"""
_BROADCAST_TOO_LARGE = (
    "Cannot broadcast the table",
    "Not enough memory to build and broadcast",
    "maxResultSize",
)
"""messages of the errors with which Spark refuses to broadcast rows"""
_MATERIALIZED_STEPS = frozenset({"probe", "extent", TRUE_FACT, HIT.name})
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
        self._replaced: set[str] = set()
        """tables whose views are not, or no longer, of all their partitions"""
        self._small: dict[str, pa.Table] = {}

    @property
    def partition_count(self) -> int:
        """The number of partitions of large tables."""
        return self._snapshot.partition_count

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
            self._replaced = set(self._frames)
        for name in self._replaced:
            self._frames[name].createOrReplaceTempView(name)
        self._replaced = set()
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
                    self._replaced.add(table.name)


_NO_TABLE = pa.table({})


_HINT = re.compile(r"/\*\+.*?\*/")
_WORD = re.compile(r"\w+")
_SHREDDED_STEPS = (
    SqlStep("value", f"SELECT {', '.join(VALUE_SCHEMA.names)} FROM shredded WHERE tag IS NOT NULL"),
    SqlStep("message", f"SELECT msg FROM shredded WHERE {MESSAGE_ROWS} AND reason IS NULL"),
)


class _Statements:
    """Steps that are not executed by themselves, but as parts of the statements that read them."""

    def __init__(self) -> None:
        self._definitions: dict[str, str] = {}

    def define(self, step: SqlStep) -> None:
        self._definitions[step.name] = step.sql

    def forget(self, name: str) -> None:
        """Let a name stand for a view from now on."""
        self._definitions.pop(name, None)

    def complete(self, sql: str, hints: bool = True) -> str:
        """Return a statement together with the definitions that it needs."""
        needed: dict[str, str] = {}
        read = set(_WORD.findall(sql))
        for name, definition in reversed(self._definitions.items()):  # each reads only those before it
            if name in read:
                needed[name] = definition
                read.update(_WORD.findall(definition))
        listed = ", ".join(f"{name} AS ({needed[name]})" for name in reversed(needed))
        complete = f"WITH {listed} {sql}" if listed else sql
        return complete if hints else _HINT.sub("", complete)


class SparkBackend:
    """Matches with Spark SQL, over a Parquet snapshot of the tables that all workers reach."""

    def __init__(self, matcher: RelationalMatcher, snapshot: ParquetSnapshot) -> None:
        self._matcher = matcher
        self._tables = TableViews(snapshot)
        self._max_fused_values = _MAX_FUSED_VALUES
        self._fused = 0
        """the number of values of a batch that is fused, at least 1"""

    def adapt_to(self, error: Exception) -> bool:
        """After rows were too many to be broadcast, fuse only smaller batches; return whether that helps."""
        if self._fused and any(text in str(error) for text in _BROADCAST_TOO_LARGE):
            self._max_fused_values = self._fused // 2
            _log.info("too many rows to broadcast: batches of %d values are staged", self._fused)
            return True
        return False

    @contextmanager
    def match(self, batch: SparkShreddedBatch) -> Iterator[BackendResult]:
        """Match a batch."""
        session = batch.rows.sparkSession
        values = sum(batch.blocks.values())
        tasks = set_shuffle_partitions(session, values)
        views = BatchViews(session)
        try:
            self._tables.create(session, batch)
            views.put("shredded", batch.rows.coalesce(tasks))
            few = (
                self._tables.partition_count > 1
                and values < _VALUES_PER_PARTITION * self._tables.partition_count
            )
            self._fused = 0 if few or values > self._max_fused_values else max(1, values)
            statements = _Statements()
            if self._fused:
                self._run_fused(session, batch, views, statements)
            else:
                self._run_staged(session, batch, views)
            failures = self._check_residuals(batch, views, statements) if batch.residual else None
            pairs = session.sql(statements.complete(MATCHED_PAIRS_SQL, hints=bool(self._fused)))
            # detached: what is made of the pairs would be analyzed together with all of this, step by step
            yield BackendResult(detach(pairs, session), failures=failures)
        finally:
            views.close()

    def _run_fused(
        self, session: SparkSession, batch: SparkShreddedBatch, views: BatchViews, statements: _Statements
    ) -> None:
        """Define the steps for one statement, but for those that have to be materialized."""
        steps = [*_SHREDDED_STEPS, *plan_steps(batch.parameters, SparkDialect())]
        size = batch.parameters.size
        # Without chains one statement reads these, and broadcasts each once.
        inlined = () if size.fact_levels or size.bound_levels else ("extent", TRUE_FACT)
        for number, step in enumerate(steps, 1):
            readers = _count_readers(step, steps[number:])
            if step is not HIT and (readers < 2 or step in _SHREDDED_STEPS or step.name in inlined):
                statements.define(step)
                continue
            frame = views.materialize(session.sql(statements.complete(step.sql))).frame
            views.put(step.name, frame)
            if step is HIT:
                views.put("branching_position", self._locate_branching_nodes(batch.connection, frame))

    def _run_staged(self, session: SparkSession, batch: SparkShreddedBatch, views: BatchViews) -> None:
        """Create a view for each step, with the rows of those that have to be materialized."""
        steps = list(plan_steps(batch.parameters, SparkDialect()))
        # the first step that has rules
        found = next(step.name for step in steps if step.name in ("found", "candidate"))
        sized = _MATERIALIZED_STEPS | {found}
        for step in _SHREDDED_STEPS:
            views.put(step.name, session.sql(step.sql))
        broadcast = sum(batch.blocks.values()) <= _MAX_BROADCAST_ROWS
        for number, step in enumerate(steps, 1):
            frame = session.sql(_HINT.sub("", step.sql))
            if step.name in sized or _count_readers(step, steps[number:]) > 1:
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
        self, batch: SparkShreddedBatch, views: BatchViews, statements: _Statements
    ) -> DataFrame | None:
        """Keep in `matched` what is certain or passes its residual check; return FAILED_PAIR rows."""
        session = batch.rows.sparkSession
        materialized = views.materialize(session.sql(statements.complete(_CANDIDATES, bool(self._fused))))
        statements.forget("matched")
        broadcast = materialized.count() <= _MAX_BROADCAST_ROWS
        matched = materialized.frame.filter("certain").select("msg", "query")
        candidates = materialized.frame.filter("NOT certain").select(*RESIDUAL_CANDIDATE.names)
        failures = None
        if not candidates.isEmpty():
            stage = ResidualStage(batch.namespaces, self._matcher.limits)
            results = views.materialize(evaluate_residuals(candidates, batch.bodies, stage)).frame
            matched = matched.unionByName(results.filter("kind IS NULL").select("msg", "query"))
            failed = results.filter("kind IS NOT NULL")
            if not failed.isEmpty():
                views.put("failed", failed, broadcast=True)
                failures = session.sql(FAILED_PAIRS_SQL)
        views.put("matched", matched, broadcast)
        return failures


_CANDIDATES = """
    SELECT /*+ BROADCAST(m) */ m.msg, m.query, q.text, m.certain AND coalesce(q.exact, true) AS certain
    FROM query q RIGHT JOIN matched m ON q.id = m.query"""


def _count_readers(step: SqlStep, later: list[SqlStep]) -> int:
    """Return how many later statements read a step."""
    return sum(bool(re.search(rf"\b{step.name}\b", other.sql)) for other in later)
