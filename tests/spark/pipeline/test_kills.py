"""Whatever is killed, and whenever: in the end, everything is delivered once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.requirements import FULL
from tests.support.spark.driver_kills import kill_driver, kill_executor_amid_batch, start_driver
from tests.support.spark.spark_stream import Stream


def test_a_driver_killed_at_random_moments(tmp_path: Path, spark: SparkSession) -> None:
    stream = Stream(tmp_path / "stream")
    stream.subscribe(200)
    stream.publish(10)
    chance = random.Random(3)
    for round in range(4 if FULL else 1):
        process = start_driver(stream.settings)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        for _ in range(chance.choice((0, 1, 2))):
            process.stdout.readline()
        time.sleep(chance.uniform(0.0, 1.5))
        kill_driver(process)
        stream.change_subscriptions(round)
    Pipeline(spark, read_config(stream.settings)).run()
    stream.assert_exact(spark)


@pytest.mark.long
def test_an_executor_killed_in_the_middle_of_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    stream = Stream(tmp_path / "stream")
    stream.subscribe(200)
    stream.publish(3)
    assert kill_executor_amid_batch(stream.settings, 0.1), "the batch was committed before the kill"
    stream.assert_exact(spark)
