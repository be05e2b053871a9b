"""A Spark session beside the user's, with settings for many small statements.

Both belong to one application, so frames can be moved from one to the other.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    # Statements have their joins in the order of execution, and hints say what is small. Finding both out
    # again would take a job for every shuffle.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.cbo.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    # Rules that take a fifth of the time of planning, and find nothing in these statements.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.variant.pushVariantIntoScan": "false",
    # Columns of messages may differ in case only.
    "spark.sql.caseSensitive": "true",
    # Rows that are broadcast are on the driver, and in every executor, in pages of up to 64 MB.
    "spark.sql.maxBroadcastTableSize": "256m",
    # The lists of a message's subscriptions: beyond so many messages in a task, rows are sorted first.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "50000",
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


def detach(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the rows of a frame in another session; they are computed with the settings of its own."""
    plan: Any = frame._jdf.queryExecution()
    session: Any = spark._jsparkSession
    return DataFrame(session.internalCreateDataFrame(plan.toRdd(), frame._jdf.schema(), False), spark)


def set_shuffle_partitions(spark: SparkSession, rows: int) -> int:
    """Set the shuffle partitions of an isolated session for a number of rows, and return their number."""
    most = int(spark.sparkContext.getConf().get(_PARTITIONS, "200"))
    tasks = max(1, min(most, rows // _ROWS_PER_TASK))
    spark.conf.set(_PARTITIONS, tasks)
    return tasks
