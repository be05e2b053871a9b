"""Topics that are joined, from Kafka to Kafka; `make test-full` also kills drivers and executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.kafka import Kafka
from tests.support.spark.driver_kills import kill_amid_batch, kill_executor_amid_batch
from tests.support.spark.kafka_joins import JoinedTopics
from tests.support.spark.spark_joins import PUBLISHING, random_subscriptions

pytestmark = pytest.mark.server


def _in_log(joined: JoinedTopics) -> Callable[[str], bool]:
    return lambda name: (joined.folder / "checkpoint/sapwood" / name).exists()


def _kill_drivers(joined: JoinedTopics, count: int) -> None:
    chance = Random(5)
    kills = [
        kill_amid_batch(joined.settings, _in_log(joined), chance.uniform(0.0, 0.7)) for _ in range(count)
    ]
    assert sum(kills) > count / 2, "most kills fell between batches"


@pytest.mark.parametrize("victim", [None, "driver", "executor"])
@pytest.mark.long
def test_topics_are_joined_while_processes_are_killed(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, victim: str | None
) -> None:
    subscriptions = random_subscriptions(Random(7), 10) | PUBLISHING
    joined = JoinedTopics(tmp_path / "joined", kafka, subscriptions, per_batch=8)
    joined.publish(Random(3), 64)
    if victim == "driver":
        _kill_drivers(joined, 6)
    elif victim == "executor":
        assert kill_executor_amid_batch(joined.settings, 0.3), "the batch was committed before the kill"
        joined.publish(Random(4), 8, 64)
    outcomes: list[int] = []
    pipeline = Pipeline(spark, read_config(joined.settings), lambda outcome: outcomes.append(outcome.batch))
    pipeline.run()
    assert outcomes == list(range(outcomes[0], outcomes[-1] + 1))
    records = kafka.consume(joined.to)
    expected = joined.expected()
    delivered = joined.delivered(records)
    assert delivered - expected == Counter()
    assert expected - delivered == Counter()
    assert {"reads that", "five", "differ", "made"} <= {row.subscription for row in delivered}
    # what the source kept has come through the state of joins
    for record in records:
        published = "(" in str(record.header("message_id"))
        assert [name for name, _ in record.headers].count("number") == (0 if published else 1)
