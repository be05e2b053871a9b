"""Every message is served once, by the version its delivery names, wherever a run ends and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sapwood import Broker
from sapwood.spark.deliveries.output_files import OutputFolder
from sapwood.spark.distribution.index_snapshot import BrokerSnapshots
from sapwood.spark.io.file_system import remove_file
from sapwood.spark.io.sinks import Sink
from sapwood.spark.pipeline.batch import BatchProcessor, Outcome
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.spark.worker_stage import WorkerStage
from tests.support.crashes import Crash, after
from tests.support.spark.spark_stream import MADE, Stream


def _run(spark: SparkSession, stream: Stream, on_batch: Callable[[Outcome], None] | None = None) -> Pipeline:
    pipeline = Pipeline(spark, read_config(stream.settings), on_batch)
    pipeline.run()
    return pipeline


def _while_spark_delivers(batch: int) -> Any:
    """Crashes when Spark has written some of a batch's deliveries."""
    original = Sink.write

    def write(self: Sink, rows: DataFrame, number: int) -> None:
        original(self, rows.limit(7) if number == batch else rows, number)
        if number == batch:
            raise Crash

    return mock.patch.object(Sink, "write", write)


def _while_workers_deliver(batch: int) -> Any:
    """Crashes when some of the files that workers have written for a batch are visible."""
    original = OutputFolder.commit

    def commit(self: OutputFolder, names: list[str], schema: pa.Schema) -> None:
        if not self.path.endswith(f"/batch={batch}"):
            return original(self, names, schema)
        original(self, names[:1], schema)
        remove_file(f"{self.path}/_SUCCESS")
        raise Crash

    return mock.patch.object(OutputFolder, "commit", commit)


_BY_SPARK = "maxRecordsPerFile = 100000"
"""an option that only Spark's writer has"""


STEPS: dict[str, Callable[[int], Any]] = {
    "planned": lambda n: after(BatchLog, "plan", lambda batch, plan: batch, n),
    "delivered, but not rejected": lambda n: after(
        BatchProcessor, "_deliver", lambda *arguments: arguments[3], n
    ),
    "served, but not on record": lambda n: after(
        BatchProcessor, "process", lambda *arguments: arguments[3], n
    ),
    "on record, but not noted by Spark": lambda n: after(BatchLog, "commit", lambda batch, outcome: batch, n),
}


@pytest.mark.parametrize(
    ("options", "while_delivering"),
    [("", _while_workers_deliver), (_BY_SPARK, _while_spark_delivers)],
    ids=["written by workers", "written by Spark"],
)
def test_a_crash_at_every_step_of_a_batch(
    tmp_path: Path, spark: SparkSession, options: str, while_delivering: Callable[[int], Any]
) -> None:
    stream = Stream(tmp_path / "stream", options=options)
    stream.subscribe(150)
    steps = [while_delivering, *STEPS.values()]
    stream.publish(len(steps) + 1)
    for batch, crash in enumerate(steps):
        with crash(batch), pytest.raises(Crash):
            _run(spark, stream)
        stream.change_subscriptions(batch)  # a batch that is served again must not see this
    pipeline = _run(spark, stream)
    versions = stream.versions()
    assert sorted(versions) == list(range(len(steps) + 1))
    assert len(set(versions.values())) == len(steps) + 1
    assert [outcome.batch for outcome in pipeline.outcomes()] == sorted(versions)
    assert sum(outcome.messages for outcome in pipeline.outcomes()) == len(stream.messages)
    stream.assert_exact(spark)


def test_200_subscriptions_come_and_go_while_a_stream_runs(tmp_path: Path, spark: SparkSession) -> None:
    stream = Stream(tmp_path / "stream", shape="messages")
    stream.subscribe(300, transformations=0)  # the first one comes with the second batch
    stream.publish(10, messages_each=30)

    def change(outcome: Outcome) -> None:
        with stream.store() as store:
            for i in range(10 * outcome.batch, 10 * outcome.batch + 10):
                store.add(f"new-{i}", ("//*", "/news", "//body//*", "count(//*) > 30", *MADE)[i % 7])
                store.remove(f"s1-{i}")
                if i >= 40:
                    store.remove(f"new-{i - 40}")

    pipeline = _run(spark, stream, change)
    versions = [outcome.version for outcome in pipeline.outcomes()]
    assert versions == sorted(set(versions))
    assert versions[-1] - versions[0] > 200
    stream.assert_exact(spark)


def test_files_that_come_later_are_served_by_the_next_run(tmp_path: Path, spark: SparkSession) -> None:
    stream = Stream(tmp_path / "stream", files_per_batch=5)
    stream.subscribe(50)
    stream.publish(2)
    _run(spark, stream)
    first = stream.delivered(spark)
    _run(spark, stream)
    assert stream.delivered(spark) == first
    stream.publish(2)
    _run(spark, stream)
    assert sum(stream.delivered(spark).values()) > sum(first.values())
    stream.assert_exact(spark)


def test_a_namespace_declared_while_a_stream_runs(tmp_path: Path, spark: SparkSession) -> None:
    stream = Stream(tmp_path / "stream")
    stream.subscribe(20)
    stream.publish(3)

    def declare(outcome: Outcome) -> None:
        if outcome.batch == 0:
            with stream.store() as store:
                store.declare({"n": "urn:news"})
                store.add("with a prefix", "not(//n:body)")

    _run(spark, stream, declare)
    served = {batch for _, id, _, _, batch in stream.delivered(spark) if id == "with a prefix"}
    assert served == {1, 2}
    stream.assert_exact(spark)


def test_stopping_leaves_the_rest_for_the_next_run(tmp_path: Path, spark: SparkSession) -> None:
    stream = Stream(tmp_path / "stream", trigger="100 milliseconds")
    stream.subscribe(50)
    stream.publish(6)
    seen: list[Outcome] = []

    def stop_after_two(outcome: Outcome) -> None:
        seen.append(outcome)
        if len(seen) == 2:
            pipeline.stop()

    pipeline = Pipeline(spark, read_config(stream.settings), stop_after_two)
    pipeline.run()
    assert [outcome.batch for outcome in seen] == [0, 1]

    def stop_at_the_end(outcome: Outcome) -> None:
        seen.append(outcome)
        if sum(each.messages for each in seen) == len(stream.messages):
            again.stop()

    again = Pipeline(spark, read_config(stream.settings), stop_at_the_end)
    again.run()
    assert [outcome.batch for outcome in seen] == list(range(len(seen)))
    # stopped between two of Spark's logs, the next run may take two files into its first batch
    assert len(seen) in (5, 6)
    stream.assert_exact(spark)


def test_rows_that_a_sink_skips_are_counted(spark: SparkSession) -> None:
    broker = Broker()
    broker.subscribe("a", "//a")
    snapshots = BrokerSnapshots(broker)
    messages = spark.createDataFrame([("1", "<a/>"), ("2", "<b/>")], "message_id STRING, body STRING")
    processor = BatchProcessor(Sink("delta", "deliveries"), Sink("delta", "rejects"))
    with mock.patch.object(Sink, "write", lambda self, rows, batch: None):  # as Delta does, then
        outcome = processor.process(WorkerStage.of(messages), snapshots.issue(spark.sparkContext), 1, 0)
    assert (outcome.messages, outcome.deliveries, outcome.rejects) == (2, 1, 0)
    snapshots.close()
