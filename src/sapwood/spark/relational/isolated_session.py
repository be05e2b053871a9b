"""A session of Sapwood's own beside that of the user, with settings that suit many small statements.

Both belong to one application, so frames can go from one to the other.
"""

from __future__ import annotations

from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    # Statements are written in the order in which they are to be run, and sizes are told by hints. Finding
    # both out again would take a job for every shuffle.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.cbo.enabled": "false",
}
_PARTITIONS = "spark.sql.shuffle.partitions"
_ROWS = 100_000
"""worth a task"""


def own_session(spark: SparkSession) -> SparkSession:
    """A new session of the same application."""
    own = spark.newSession()
    for key, value in _SETTINGS.items():
        own.conf.set(key, value)
    return own


def moved(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """The frame, in another session. It must not be persisted itself, or it would not be so any more."""
    name = f"sapwood_{uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        return spark.table(f"global_temp.{name}")
    finally:
        spark.catalog.dropGlobalTempView(name)


def suit(spark: SparkSession, rows: int) -> int:
    """Has a session of our own use as many tasks as so many rows are worth, and tells how many."""
    most = int(spark.sparkContext.getConf().get(_PARTITIONS, "200"))
    tasks = max(1, min(most, rows // _ROWS))
    spark.conf.set(_PARTITIONS, tasks)
    return tasks
