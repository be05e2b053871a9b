"""Drivers and executors killed amid batches, with Delta tables at both ends: everything is delivered once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.spark.delta_streams import DeltaJoinedStreams, DeltaStream
from tests.support.spark.driver_kills import kill_amid_batch, kill_executor_amid_batch
from tests.support.spark.spark_joins import PUBLISHING, START, random_subscriptions


def _kill(settings: Path, delay: float) -> bool:
    log = settings.parent / "checkpoint/sapwood"
    return kill_amid_batch(settings, lambda name: (log / name).exists(), delay)


@pytest.mark.long
def test_a_driver_killed_amid_batches(tmp_path: Path, spark: SparkSession) -> None:
    rounds = 6
    stream = DeltaStream(tmp_path / "stream")
    stream.subscribe(150)
    stream.publish(2 * rounds + 2, messages_each=8)
    chance = Random(5)
    amid = 0
    for round in range(rounds):
        amid += _kill(stream.settings, chance.uniform(0.0, 2.0))
        stream.change_subscriptions(round)
    assert amid > 0
    Pipeline(spark, read_config(stream.settings)).run()
    stream.assert_exact(spark)


@pytest.mark.long
def test_an_executor_killed_amid_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    stream = DeltaStream(tmp_path / "stream")
    stream.subscribe(150)
    stream.publish(4, messages_each=8)
    assert kill_executor_amid_batch(stream.settings, 0.3), "the batch was committed before the kill"
    stream.assert_exact(spark)


@pytest.mark.long
@pytest.mark.parametrize("victim", ["driver", "executor"])
def test_joins_with_a_process_killed_amid_a_batch(tmp_path: Path, spark: SparkSession, victim: str) -> None:
    streams = DeltaJoinedStreams(tmp_path / "joined", lateness=8)
    streams.subscribe(random_subscriptions(Random(7), 8) | PUBLISHING)
    for number in range(3):
        streams.publish(START + 5 * number, 6)
    kill = _kill if victim == "driver" else kill_executor_amid_batch
    assert kill(streams.settings, 0.3), "the batch was committed before the kill"
    Pipeline(spark, read_config(streams.settings)).run()
    delivered = streams.assert_exact(spark)
    assert any(row.messages is not None and len(row.messages) == 2 for row in delivered)
    assert PUBLISHING.keys() <= {row.subscription for row in delivered}
