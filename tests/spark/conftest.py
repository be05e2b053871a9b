"""One Spark session for all the tests in this folder: starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.spark_session import JavaError, check_java, session
from tests.support.requirements import missing
from tests.support.spark.connector_jars import connector_settings

_QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "1",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
}


@pytest.fixture(scope="session")
def java() -> None:
    """For tests that start Spark in a process of their own."""
    try:
        check_java()
    except JavaError as error:
        missing(str(error).splitlines()[0])


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    config = _QUICK | {"spark.sql.warehouse.dir": str(folder)} | connector_settings()
    running = session("local[2]", name="tests", config=config, log=folder / "spark.log")
    yield running
    running.stop()
