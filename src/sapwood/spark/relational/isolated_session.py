"""A Spark session beside the user's, with settings for many small statements.

Both belong to one application, so frames can be moved from one to the other.
"""

from __future__ import annotations

from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    # Statements have their joins in the order of execution, and hints say what is small. Finding both out
    # again would take a job for every shuffle.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.cbo.enabled": "false",
}
_PARTITIONS = "spark.sql.shuffle.partitions"
_ROWS_PER_TASK = 100_000
"""rows that are worth a task"""


def create_isolated_session(spark: SparkSession) -> SparkSession:
    """Create a session of the same application."""
    session = spark.newSession()
    for key, value in _SETTINGS.items():
        session.conf.set(key, value)
    return session


def move_to_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the frame in another session. It must not be persisted: the other session would not see that."""
    name = f"sapwood_{uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        return spark.table(f"global_temp.{name}")
    finally:
        spark.catalog.dropGlobalTempView(name)


def set_shuffle_partitions(spark: SparkSession, rows: int) -> int:
    """Set the shuffle partitions of an isolated session for a number of rows, and return their number."""
    most = int(spark.sparkContext.getConf().get(_PARTITIONS, "200"))
    tasks = max(1, min(most, rows // _ROWS_PER_TASK))
    spark.conf.set(_PARTITIONS, tasks)
    return tasks
