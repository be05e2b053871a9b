"""Joins on executors that are processes of their own, one of which is killed: buckets go where they can."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.support.spark.driver_kills import CLUSTER, kill_executor_amid_batch, run_driver
from tests.support.spark.spark_joins import PUBLISHING, START, JoinedStreams, random_subscriptions

pytestmark = pytest.mark.slow


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True])
def test_two_executors_deliver_what_one_process_does(
    tmp_path: Path, spark: SparkSession, killed: bool
) -> None:
    streams = JoinedStreams(tmp_path / "joined", lateness=8)
    streams.subscribe(random_subscriptions(Random(9), 15) | PUBLISHING)
    for number in range(3):
        streams.publish(START + 5 * number, 8)
    if killed:
        assert kill_executor_amid_batch(streams.settings, 0.3), "the batch was committed before the kill"
    else:
        run_driver(streams.settings, CLUSTER)
    delivered = streams.assert_exact(spark)
    assert {"reads that", "five"} <= {row.subscription for row in delivered}
