"""Delta tables as sources and sinks, and the check that a session can use them.

Delta records with a transaction who has written it: an application id, and a number that only grows. A write
with a number that the table has is skipped. Here the application is a checkpoint and one of its two sinks,
and the number is that of the batch, so a batch that Spark repeats after a crash is in the table once:

    sapwood/IDENTITY/deliveries  ─►  batch 0, batch 1, …, batch N

The identity is a random one in the checkpoint. A pipeline that starts anew, with another checkpoint, is
another application, whose batches from 0 on are not skipped because of those before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sapwood.errors import SapwoodError
from sapwood.spark.deliveries.delivery_id import DELIVERY_ID, add_delivery_id

_log = logging.getLogger(__name__)
DELTA = "delta"
CHANGE_TYPES = ("insert", "update_postimage")
"""The changes of a change feed that are messages by default: rows as they are after the change."""
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_EXTENSIONS_KEY, _CATALOG_KEY = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
_JAR = re.compile(r"delta-spark_(\d+\.\d+)_[\d.]+-(.+?)\.jar")
_TRANSACTION = {"spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"}
_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
_SOURCE_VIEW = "_sapwood_deliveries"
_RANK = "_sapwood_rank"


class DeltaError(SapwoodError):
    """Raised when a session cannot use Delta, or a table does not fit; says what to do."""


# -- the session ---------------------------------------------------------------------------------------------


def delta_settings(configured: Mapping[str, Any], master: str) -> dict[str, str]:
    """Return the settings that Delta needs in a session: its extension, beside others that are configured,
    and its catalog, unless another one is. On one machine, it reads the log of a table in a few tasks."""
    extensions = str(configured.get(_EXTENSIONS_KEY, ""))
    known = [name.strip() for name in extensions.split(",") if name.strip()]
    if _EXTENSION not in known:
        known.append(_EXTENSION)
    settings = {_CATALOG_KEY: _CATALOG}
    if master.startswith("local"):
        settings["spark.databricks.delta.snapshotPartitions"] = "2"  # 50 by default, of which each takes time
    settings |= {key: str(configured[key]) for key in settings if key in configured}
    return settings | {_EXTENSIONS_KEY: ",".join(known)}


def check_delta(spark: SparkSession) -> None:
    """Raise DeltaError unless a session has Delta's jars, made for this Spark, and its settings."""
    running = ".".join(spark.version.split(".")[:2])
    jar = _find_jar(spark)
    if jar is None:
        other = f'; it is made for Spark 4.2: pip install "pyspark==4.2.*" in place of {spark.version}'
        raise DeltaError(
            'format = "delta" needs Delta Lake, and its classes are not in this session: add '
            f'"spark.jars.packages" = "{_PACKAGE}" to [spark], or the paths of its jars as "spark.jars"'
            + (other if running != "4.2" else "")
        )
    made_for = _JAR.search(jar)
    if made_for is not None and made_for[1] != running:
        raise DeltaError(
            f"Delta Lake {made_for[2]} is made for Spark {made_for[1]}, and this is Spark {spark.version}: "
            f'install PySpark {made_for[1]} (pip install "pyspark=={made_for[1]}.*"), or use a delta-spark_'
            f"{running} if there is one"
        )
    if _EXTENSION not in (spark.conf.get(_EXTENSIONS_KEY, "") or ""):
        raise DeltaError(
            f'this session was not started for Delta: "{_EXTENSIONS_KEY}" has to contain "{_EXTENSION}", and '
            f'"{_CATALOG_KEY}" has to be "{_CATALOG}"; `sapwood run` sets both'
        )


def _find_jar(spark: SparkSession) -> str | None:
    """Return the location of Delta's jar, or None if its classes are missing."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm: Any = spark._jvm
    try:
        found = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_EXTENSION)
    except Py4JJavaError:
        return None
    source = found.getProtectionDomain().getCodeSource()
    return str(source.getLocation().toString()) if source is not None else ""


# -- sources -------------------------------------------------------------------------------------------------


def open_delta(
    spark: SparkSession,
    path: str | None,
    table: str | None,
    options: Mapping[str, str],
    changes: tuple[str, ...] | None = None,
    streaming: bool = False,
) -> DataFrame:
    """Open a table by its path or name, or its change feed, of which only rows with the given types of change
    are messages: a row before an update is none, nor is a deleted one, unless they are asked for."""
    reader: Any = (spark.readStream if streaming else spark.read).format(DELTA).options(**options)
    rows: DataFrame = reader.table(table) if table is not None else reader.load(path)
    if not reads_changes(options):
        return rows
    return rows.filter(F.col("_change_type").isin(*(changes or CHANGE_TYPES)))


def reads_changes(options: Mapping[str, Any]) -> bool:
    """Return whether the options of a source ask for the change feed of a table."""
    given = {key.lower(): str(value).lower() for key, value in options.items()}
    return "true" in (given.get("readchangefeed"), given.get("readchangedata"))


# -- sinks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A table that batches are written to, each once: Delta knows their numbers, and the application's id."""

    path: str | None
    table: str | None
    """its name in a catalog, instead of a path"""
    options: Mapping[str, Any]
    application: str

    def append(self, rows: DataFrame, batch: int) -> None:
        """Append the rows of a batch, with its number as a column, unless the table has the batch."""
        transaction = {"txnAppId": self.application, "txnVersion": str(batch)}
        self._save(_number(rows, batch), transaction)

    def merge(self, rows: DataFrame, batch: int) -> None:
        """Merge the deliveries of a batch into the table, one row for each delivery id: those that it has
        are replaced. Of several in a batch with the same id, the one published last is used."""
        spark = rows.sparkSession
        rows = _select_newest(_number(add_delivery_id(rows), batch))
        if not self._exists(spark):
            self._save(spark.createDataFrame([], rows.schema))
        elif DELIVERY_ID not in spark.table(self._sql_name).columns:
            raise DeltaError(
                f"{self.path or self.table} has no column {DELIVERY_ID!r}, so that deliveries cannot be "
                'merged into it: configure another table, or deliveries.mode = "append"'
            )
        evolving = "WITH SCHEMA EVOLUTION " if _merges_schema(self.options) else ""
        rows.createOrReplaceTempView(_SOURCE_VIEW)
        try:
            with _transaction(spark, self.application, batch):
                spark.sql(
                    f"MERGE {evolving}INTO {self._sql_name} AS known USING {_SOURCE_VIEW} AS new "
                    f"ON known.{DELIVERY_ID} = new.{DELIVERY_ID} "
                    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
        finally:
            spark.catalog.dropTempView(_SOURCE_VIEW)

    @property
    def _sql_name(self) -> str:
        return f"delta.`{self.path.replace('`', '``')}`" if self.path is not None else str(self.table)

    def _save(self, rows: DataFrame, transaction: Mapping[str, str] = MappingProxyType({})) -> None:
        writer = rows.write.format(DELTA).options(**self.options).options(**transaction).mode("append")
        if self.table is not None:
            writer.saveAsTable(self.table)
        else:
            writer.save(self.path)

    def _exists(self, spark: SparkSession) -> bool:
        if self.table is not None:
            return spark.catalog.tableExists(self.table)
        jvm: Any = spark._jvm
        return bool(jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, self.path))


def _number(rows: DataFrame, batch: int) -> DataFrame:
    """Add the number of the batch, which files have in the name of their folder."""
    return rows.withColumn("batch", F.lit(batch).cast("int"))


def _select_newest(rows: DataFrame) -> DataFrame:
    """Select one row for each delivery id; which one does not depend on the order of rows."""
    order: list[Column] = [F.xxhash64(*(f"`{name}`" for name in rows.columns))]
    if "published_at" in rows.columns:
        order.insert(0, F.desc_nulls_last("published_at"))
    ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(DELIVERY_ID).orderBy(*order)))
    return ranked.filter(F.col(_RANK) == 1).drop(_RANK)


def _merges_schema(options: Mapping[str, Any]) -> bool:
    return "true" in (str(value).lower() for key, value in options.items() if key.lower() == "mergeschema")


@contextmanager
def _transaction(spark: SparkSession, application: str, batch: int) -> Iterator[None]:
    """Give the write inside an application id and a number; SQL takes them from the session only."""
    for key, value in zip(sorted(_TRANSACTION), (application, str(batch)), strict=True):
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in _TRANSACTION:
            spark.conf.unset(key)
