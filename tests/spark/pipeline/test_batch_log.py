"""The errors of damaged checkpoint files name the file and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sapwood.cli.common.run_log import summarize_error
from sapwood.spark.pipeline.batch_log import BatchLog, CheckpointError
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.spark.spark_stream import Stream

DAMAGED = ["", "  \n", '{"version": 1', "[1]", "\0\0\0\0", "[" * 100_000]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_record_is_named_with_what_to_do(spark: SparkSession, tmp_path: Path, text: str) -> None:
    batch_log = BatchLog(spark, str(tmp_path))
    reads: list[tuple[str, str, Callable[[], object]]] = [
        ("planned/3", "remove it", lambda: batch_log.plan(3, {"version": 1})),
        ("done/3", "remove it", lambda: batch_log.outcome(3)),
        ("done/3", "remove it", batch_log.outcomes),
        ("state/joins", 'write {"format": 3} into it', batch_log.join_layout),
    ]
    for name, remedy, read in reads:
        (tmp_path / name).write_text(text)
        with pytest.raises(CheckpointError) as caught:
            read()
        told = str(caught.value)
        assert f"{tmp_path}/{name}" in told
        assert remedy in told
        assert ("is empty" in told) == (not text.strip())


def test_a_pipeline_names_the_damaged_file_and_continues_once_it_is_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(tmp_path / "stream")
    stream.subscribe(20, transformations=2)
    stream.publish(1)

    def run() -> None:
        Pipeline(spark, read_config(stream.settings)).run()

    planned = stream.folder / "checkpoint/sapwood/planned/0"
    planned.parent.mkdir(parents=True)
    planned.touch()
    with pytest.raises(CheckpointError, match="planned/0 is empty"):
        run()
    planned.unlink()
    run()
    stream.assert_exact(spark)

    offsets = stream.folder / "checkpoint/spark/offsets/0"
    offsets.write_text("")
    offsets.with_name(".0.crc").unlink(missing_ok=True)
    with pytest.raises(PySparkException) as caught:  # Spark's own files, Spark names itself
        run()
    assert "offsets/0" in str(caught.value)
    assert "\n" not in summarize_error(caught.value)
