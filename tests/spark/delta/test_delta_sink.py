"""Delta tables as sinks: each batch is there once, and deliveries can be merged by id."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from sapwood.spark.io.delta_table import DeltaError
from sapwood.spark.io.sinks import Sink
from sapwood.spark.pipeline.batch import BatchProcessor
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.config import parse_config, read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.crashes import Crash, after
from tests.support.spark.delta_streams import DeltaStream, append_rows, read_rows


def _after_write(sink: str) -> Callable[[int], Any]:
    """Crashes when a sink has a batch."""

    def crash(batch: int) -> Any:
        original = Sink.write

        def write(self: Sink, rows: DataFrame, number: int) -> None:
            original(self, rows, number)
            if number == batch and self.path is not None and self.path.endswith(sink):
                raise Crash

        return mock.patch.object(Sink, "write", write)

    return crash


STEPS: dict[str, Callable[[int], Any]] = {
    "deliveries are written, rejects are not": _after_write("deliveries"),
    "both are written": _after_write("rejects"),
    "all is written, but not committed": lambda n: after(
        BatchProcessor, "process", lambda *arguments: arguments[3], n
    ),
    "committed, but not by Spark": lambda n: after(BatchLog, "commit", lambda batch, outcome: batch, n),
}


def test_a_crash_at_every_step_of_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    stream = DeltaStream(tmp_path / "stream")
    stream.subscribe(120)
    stream.publish(len(STEPS) + 1, messages_each=8)
    for batch, crash in enumerate(STEPS.values()):
        with crash(batch), pytest.raises(Crash):
            Pipeline(spark, read_config(stream.settings)).run()
        stream.change_subscriptions(batch)
    pipeline = Pipeline(spark, read_config(stream.settings))
    pipeline.run()
    outcomes = pipeline.outcomes()
    assert [outcome.batch for outcome in outcomes] == list(range(len(STEPS) + 1))
    # though Delta skipped what it had, all was counted
    assert sum(outcome.messages for outcome in outcomes) == len(stream.messages)
    assert sum(outcome.deliveries for outcome in outcomes) == len(stream.rows())
    stream.assert_exact(spark)
    with_spark = spark.read.format("delta").load(str(stream.folder / "deliveries"))
    assert with_spark.count() == len(stream.rows())


# -- small pipelines -----------------------------------------------------------------------------------------


def _config(folder: Path, trigger: str = "available-now", checkpoint: str = "checkpoint", **sink: Any) -> Any:
    (folder / "queries.txt").write_text("//a\n//b\nfor $a in //a return <got>{$a/text()}</got>\n")
    return parse_config(
        {
            "source": {"format": "delta", "path": "inbox", "id": "id", "published_at": "at"},
            "subscriptions": {"file": "queries.txt"},
            "deliveries": {"format": "delta", "path": "deliveries"} | sink,
            "rejects": {"format": "delta", "path": "rejects"},
            "run": {"checkpoint": checkpoint, "trigger": trigger},
        },
        folder=folder,
    )


def _publish(folder: Path, *messages: tuple[str, str, int]) -> None:
    append_rows(folder / "inbox", [{"id": id, "body": body, "at": at} for id, body, at in messages])


def _delivered(folder: Path, name: str = "deliveries") -> list[tuple[str, str, str | None]]:
    rows = read_rows(folder / name)
    return sorted((row["message_id"], row["subscription"], row["body"] or "") for row in rows)


def test_a_new_checkpoint_is_another_application(tmp_path: Path, spark: SparkSession) -> None:
    _publish(tmp_path, ("1", "<a>x</a>", 1), ("2", "<b/>", 1), ("3", "no XML", 1))
    Pipeline(spark, _config(tmp_path)).run()
    once = _delivered(tmp_path)
    assert once == [("1", "1", ""), ("1", "3", "<got>x</got>"), ("2", "2", "")]
    Pipeline(spark, _config(tmp_path)).run()  # there is nothing new
    assert _delivered(tmp_path) == once
    shutil.rmtree(tmp_path / "checkpoint")
    Pipeline(spark, _config(tmp_path)).run()  # batch 0 once more, and not skipped
    assert _delivered(tmp_path) == sorted(2 * once)
    assert len(read_rows(tmp_path / "rejects")) == 2


def test_deliveries_are_merged_by_id(tmp_path: Path, spark: SparkSession) -> None:
    _publish(tmp_path, ("1", "<a>x</a>", 1), ("2", "<b/>", 1), ("2", "<b>newer</b>", 2))
    config = _config(tmp_path, mode="merge", body=True)
    Pipeline(spark, config).run()
    assert _delivered(tmp_path) == [
        ("1", "1", "<a>x</a>"),
        ("1", "3", "<got>x</got>"),
        ("2", "2", "<b>newer</b>"),
    ]
    _publish(tmp_path, ("1", "<a>corrected</a>", 3), ("4", "<b/>", 3))
    Pipeline(spark, config).run()
    corrected = [
        ("1", "1", "<a>corrected</a>"),
        ("1", "3", "<got>corrected</got>"),
        ("2", "2", "<b>newer</b>"),
        ("4", "2", "<b/>"),
    ]
    assert _delivered(tmp_path) == corrected
    assert {(row["message_id"], row["batch"]) for row in read_rows(tmp_path / "deliveries")} == {
        ("1", 1),
        ("2", 0),
        ("4", 1),
    }
    history = len(spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/deliveries`").collect())
    (tmp_path / "checkpoint/sapwood/done/1").unlink()
    shutil.rmtree(tmp_path / "checkpoint/spark/commits")
    pipeline = Pipeline(spark, config)
    pipeline.run()  # batch 1 again, as after a crash: the table has it
    assert [outcome.deliveries for outcome in pipeline.outcomes()] == [4, 3]
    assert len(spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/deliveries`").collect()) == history
    assert _delivered(tmp_path) == corrected
    # with a new checkpoint, all is processed again, and replaces itself
    Pipeline(spark, _config(tmp_path, checkpoint="other", mode="merge", body=True)).run()
    assert _delivered(tmp_path) == corrected


def test_a_table_without_ids_cannot_be_merged_into(tmp_path: Path, spark: SparkSession) -> None:
    _publish(tmp_path, ("1", "<a>x</a>", 1))
    Pipeline(spark, _config(tmp_path)).run()
    with pytest.raises(DeltaError, match="has no column 'delivery_id'"):
        Pipeline(spark, _config(tmp_path, checkpoint="other", mode="merge")).run()


def test_a_trigger_without_a_stream(tmp_path: Path, spark: SparkSession) -> None:
    _publish(tmp_path, ("1", "<a>x</a>", 1), ("2", "<b/>", 1))
    once = [("1", "1", ""), ("1", "3", "<got>x</got>"), ("2", "2", "")]
    for run in (1, 2):
        Pipeline(spark, _config(tmp_path, "batch")).run()
        assert _delivered(tmp_path) == sorted(run * once)
        Pipeline(spark, _config(tmp_path, "batch", mode="merge", path="merged")).run()
        assert _delivered(tmp_path, "merged") == once


def test_columns_are_added_if_the_options_allow_it(tmp_path: Path, spark: SparkSession) -> None:
    _publish(tmp_path, ("1", "<a>x</a>", 1))
    for mode in ("append", "merge"):
        Pipeline(spark, _config(tmp_path, "batch", mode=mode, path=mode)).run()
        more = _config(tmp_path, "batch", mode=mode, path=mode)
        source = more.source.model_copy(update={"keep": ("at AS seen",)})
        more = more.model_copy(update={"sources": (source,)})
        if mode == "append":
            with pytest.raises(AnalysisException, match="mergeSchema"):
                Pipeline(spark, more).run()
        deliveries = more.deliveries.model_copy(update={"options": {"mergeSchema": True}})
        Pipeline(spark, more.model_copy(update={"deliveries": deliveries})).run()
        assert {row["seen"] for row in read_rows(tmp_path / mode)} == ({None, 1} if mode == "append" else {1})
