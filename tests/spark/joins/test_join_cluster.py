"""Joins on executors that are processes of their own: buckets go where the state of their messages is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_masters import spark_home
from tests.support.spark.spark_joins import PUBLISHING, START, JoinedStreams, random_subscriptions

pytestmark = pytest.mark.slow
_ROOT = Path(__file__).parents[3]


def test_two_executors_deliver_what_one_process_does(tmp_path: Path, spark: SparkSession) -> None:
    streams = JoinedStreams(tmp_path / "joined", lateness=8)
    streams.subscribe(random_subscriptions(Random(9), 15) | PUBLISHING)
    for number in range(3):
        streams.publish(START + 5 * number, 8)
    command = [sys.executable, "-m", "tests.support.spark.spark_driver", str(streams.settings)]
    environment = {**os.environ, "SPARK_HOME": str(spark_home(tmp_path))}
    ran = subprocess.run(
        [*command, "local-cluster[2,1,1024]"], cwd=_ROOT, env=environment, capture_output=True, timeout=400
    )
    assert ran.returncode == 0, ran.stderr[-3_000:]
    delivered = streams.assert_exact(spark)
    assert {"reads that", "five"} <= {row.subscription for row in delivered}
