"""Topics that are joined, from Kafka to Kafka, also if the driver is killed amid batches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.kafka import Kafka
from tests.support.requirements import FULL
from tests.support.spark.kafka_joins import JoinedTopics
from tests.support.spark.spark_joins import PUBLISHING, random_subscriptions

pytestmark = pytest.mark.server
_PATIENCE = 300
_ROOT = Path(__file__).parents[3]


def _start(joined: JoinedTopics) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.spark.spark_driver", str(joined.settings), "local[2]"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT, start_new_session=True)


def _kill_amid_a_batch(joined: JoinedTopics, chance: Random) -> bool:
    """Runs the pipeline, and kills it after it has planned a batch; returns whether that was not done yet."""
    log = joined.folder / "checkpoint/sapwood"
    planned = len(list((log / "planned").glob("[0-9]*"))) if log.exists() else 0
    process = _start(joined)
    limit = time.monotonic() + _PATIENCE
    new = log / f"planned/{planned}"
    while not new.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    time.sleep(chance.uniform(0.0, 0.7))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=_PATIENCE)
    names = [{path.name for path in (log / folder).glob("[0-9]*")} for folder in ("planned", "done")]
    return bool(names[0] - names[1])


def test_topics_are_joined_while_the_driver_is_killed(
    tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    subscriptions = random_subscriptions(Random(7), 10) | PUBLISHING
    joined = JoinedTopics(tmp_path / "joined", kafka, subscriptions, per_batch=8)
    joined.publish(Random(3), 12)
    chance = Random(5)
    kills = [_kill_amid_a_batch(joined, chance) for _ in range(6 if FULL else 1)]
    assert sum(kills) > len(kills) / 2, "most kills fell between batches"
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
