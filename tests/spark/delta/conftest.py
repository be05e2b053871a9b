"""A session with Delta, in the process that `test_with_own_spark` starts with the PySpark it is made for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.io.delta_table import delta_settings
from sapwood.spark.spark_session import session
from tests.support.spark.delta_streams import jar_paths
from tests.support.spark.pyspark_versions import runs_delta

_LAUNCHER = "test_with_own_spark.py"
collect_ignore = (
    [_LAUNCHER]
    if runs_delta()
    else [path.name for path in Path(__file__).parent.glob("test_*.py") if path.name != _LAUNCHER]
)


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    config = {
        "spark.jars": jar_paths(),
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "1",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    settings = config | delta_settings(config, "local")
    running = session("local[2]", name="tests", config=settings, log=folder / "spark.log")
    yield running
    running.stop()
