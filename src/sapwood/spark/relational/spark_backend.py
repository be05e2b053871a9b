"""The statements of `relational.plans` on Spark SQL.

Each is a view for those that follow. What several of them read, or what is joined with a large table, is
computed and kept: so Spark knows how large it is, and sends it to where the large table is instead of
shuffling that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sapwood.relational.executor import BRANCHING_NODES, MISSING_BRANCHING_NODES
from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.sql.dialect import SparkDialect, SqlStep
from sapwood.relational.sql.match_plan import HIT, HOLDING, plan_steps
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.storage.table_snapshot import (
    LOOKED_UP,
    SUBSCRIPTION,
    SnapshotTable,
    partition_expression,
    read_small_tables,
    snapshot_tables,
)
from sapwood.spark.relational.isolated_session import suit
from sapwood.spark.relational.materialized_frame import Computed
from sapwood.spark.relational.parquet_snapshot import Copies
from sapwood.spark.relational.residual_stage import Decide, decided
from sapwood.spark.relational.result_combiner import CombinedMatches
from sapwood.spark.relational.shredded_batch import Heard

_FEW = 500_000
"""rows that are sent to where others are joined with them"""
_MEASURED = frozenset({"probe", "extent", HOLDING, "found", HIT.name})
"""Steps of whose size much depends. (And Spark changes the order of joins with a union: with `probe`.)"""


class Views:
    """Frames of a batch under the names that statements use, in a session that has no others."""

    def __init__(self, own: SparkSession) -> None:
        self._own = own
        self._names: set[str] = set()
        self._kept: list[Computed] = []

    def put(self, name: str, frame: DataFrame, few: bool = False) -> None:
        """Puts a frame under a name; if it has few rows, they are sent to where others are."""
        (F.broadcast(frame) if few else frame).createOrReplaceTempView(name)
        self._names.add(name)

    def keep(self, frame: DataFrame) -> Computed:
        """The frame, to be computed once, and forgotten with the views."""
        self._kept.append(Computed(frame))
        return self._kept[-1]

    def close(self) -> None:
        for name in self._names:
            self._own.catalog.dropTempView(name)
        for each in self._kept:
            each.forget()


class Shown:
    """The tables under their names in a session, read anew only if they have changed."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._name = ""
        self._large: dict[str, SnapshotTable] = {}
        self._frames: dict[str, DataFrame] = {}
        self._small: dict[str, pa.Table] = {}

    def show(self, own: SparkSession, heard: Heard) -> None:
        """Shows the tables as they were when a batch was heard; always in the same session."""
        plan = heard.extents.plan
        name = self._copies.bring(heard.connection, plan)
        if name != self._name:
            self._large = {table.name: table for table in (*snapshot_tables(plan), SUBSCRIPTION)}
            self._frames = {name: self._copies.frame(own, table) for name, table in self._large.items()}
            self._name = name
        for name, frame in self._frames.items():
            frame.createOrReplaceTempView(name)
        for name, table in read_small_tables(heard.connection).items():
            if not table.equals(self._small.get(name, _NOTHING)):
                own.createDataFrame(table).createOrReplaceTempView(name)
                self._small[name] = table

    def narrow(self, step: SqlStep, rows: DataFrame) -> None:
        """Shows of the tables that rows of a step are looked up in only the parts where they may be."""
        count = self._copies.parts
        if count > 1 and step.name in LOOKED_UP:
            column, names = LOOKED_UP[step.name]
            values = {
                part
                for (part,) in rows.select(F.expr(partition_expression(column, count))).distinct().collect()
            }
            for table in [self._large[name] for name in names if name in self._large]:
                if len(values) < count:
                    some = self._copies.frame(rows.sparkSession, table, table.needed(count, values))
                    some.createOrReplaceTempView(table.name)


_NOTHING = pa.table({})


class OnSpark:
    """Matches with Spark SQL, over copies of the tables that all workers reach."""

    def __init__(self, matcher: RelationalMatcher, copies: Copies) -> None:
        self._matcher = matcher
        self._tables = Shown(copies)

    def smaller(self) -> bool:
        """Spark takes as much at a time as it has room for."""
        return False

    @contextmanager
    def found(self, heard: Heard, messages: DataFrame) -> Iterator[CombinedMatches]:
        """What a batch matches; `messages` has the bodies, by `msg`."""
        spark = messages.sparkSession
        tasks = suit(spark, sum(heard.blocks.values()))
        views = Views(spark)
        try:
            self._tables.show(spark, heard)
            views.put("value", heard.values.coalesce(tasks))
            views.put("message", heard.messages.coalesce(tasks))
            self._run(spark, heard, views)
            undecided = None
            if heard.extents.depth or heard.connection.value(_INEXACT):
                undecided = self._decide(heard, views, messages)
            yield CombinedMatches(spark.sql(_ANSWER), undecided=undecided)
        finally:
            views.close()

    def _run(self, spark: SparkSession, heard: Heard, views: Views) -> None:
        statements = list(plan_steps(heard.extents, SparkDialect()))
        few = sum(heard.blocks.values()) <= _FEW
        for place, step in enumerate(statements):
            frame = spark.sql(step.sql)
            if step.name in _MEASURED or _readers(step, statements[place + 1 :]) > 1:
                kept = views.keep(frame)
                frame, few = kept.frame, kept.count() <= _FEW
                self._tables.narrow(step, frame)
            # the others have no more rows than those before them that count
            views.put(step.name, frame, few)
            if step is HIT:
                views.put("point_place", self._places(heard.connection, frame))

    def _places(self, connection: Connection, hit: DataFrame) -> DataFrame:
        """Where branching points lie on the tag paths of a batch."""
        asked = hit.select("tag", "branching").distinct().toArrow()
        with connection.given(hit=asked):
            new = self._matcher.place_points(connection.rows(MISSING_BRANCHING_NODES))
            with connection.given(new_places=new):
                places = connection.arrow(BRANCHING_NODES)
        return hit.sparkSession.createDataFrame(places)

    def _decide(self, heard: Heard, views: Views, messages: DataFrame) -> DataFrame | None:
        """Leaves in `matched` what is certain, or turns out to be true; who has no answer."""
        spark = messages.sparkSession
        kept = views.keep(spark.sql(_KNOWN))
        few = kept.count() <= _FEW
        matched = kept.frame.filter("sure").select("msg", "query")
        open = kept.frame.filter("NOT sure").select("msg", "query", "text")
        undecided = None
        if not open.isEmpty():
            decide = Decide(heard.namespaces, self._matcher.limits)
            answer = views.keep(decided(open, messages, decide)).frame
            matched = matched.unionByName(answer.filter("kind IS NULL").select("msg", "query"))
            unknown = answer.filter("kind IS NOT NULL")
            if not unknown.isEmpty():
                views.put("unknown", unknown, few=True)
                undecided = spark.sql(_UNKNOWN)
        views.put("matched", matched, few)
        return undecided


_ANSWER = "SELECT m.msg, s.id AS subscription FROM subscription s JOIN matched m ON m.query = s.query"
_UNKNOWN = """
    SELECT u.msg, s.id AS subscription, u.kind, u.reason
    FROM subscription s JOIN unknown u ON u.query = s.query"""
_KNOWN = """
    SELECT m.msg, m.query, q.text, m.certain AND coalesce(q.exact, true) AS sure
    FROM query q RIGHT JOIN matched m ON q.id = m.query"""
_INEXACT = "SELECT count(*) FROM query WHERE NOT exact"


def _readers(step: SqlStep, later: list[SqlStep]) -> int:
    """How many of later statements read a step."""
    return sum(bool(re.search(rf"\b{step.name}\b", other.sql)) for other in later)
