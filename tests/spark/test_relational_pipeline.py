"""A pipeline with its filters in tables delivers what it delivers without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sapwood.relational import RelationalMatcher
from sapwood.relational.sync import held
from sapwood.spark.pipeline import Pipeline
from sapwood.spark.serving import Outcome, Server
from sapwood.spark.settings import read_settings
from tests.spark.crashes import Crash, after
from tests.spark.stream import Stream


def relational(folder: Path, on: str) -> Stream:
    """A stream whose pipeline has the relational engine."""
    stream = Stream(folder)
    text = stream.settings.read_text()
    stream.settings.write_text(f'engine = "relational"\n{text}\n[relational]\non = "{on}"\n')
    stream.subscribe(140, transformations=4)
    return stream


def run(spark: SparkSession, stream: Stream, on_batch: Callable[[Outcome], None] | None = None) -> Pipeline:
    pipeline = Pipeline(spark, read_settings(stream.settings), on_batch)
    pipeline.run()
    return pipeline


def test_a_crash_and_changes_with_duckdb_on_the_driver(tmp_path: Path, spark: SparkSession) -> None:
    stream = relational(tmp_path / "stream", "duckdb")
    stream.publish(2, messages_each=6, broken_each=1)
    with after(Server, "serve", lambda *arguments: arguments[3], 0), pytest.raises(Crash):
        run(spark, stream)
    stream.change_subscriptions(0)  # which the first batch must not see
    with stream.store() as store:
        store.replace("s1-20", "count(//*) > 41")
        store.replace("s1-21", "for $p in /* return <p/>")
    pipeline = run(spark, stream)
    assert [outcome.batch for outcome in pipeline.outcomes()] == [0, 1]
    assert pipeline.outcomes()[-1].subscriptions == 141
    stream.assert_exact(spark)
    with RelationalMatcher(stream.folder / "checkpoint" / "relational.duckdb") as tables:
        assert held(tables).version == pipeline.outcomes()[-1].version


def test_changes_with_spark_sql(tmp_path: Path, spark: SparkSession) -> None:
    stream = relational(tmp_path / "stream", "spark")
    stream.publish(2, messages_each=6, broken_each=1)
    run(spark, stream, lambda outcome: stream.change_subscriptions(outcome.batch))
    assert len(set(stream.versions().values())) == 2
    stream.assert_exact(spark)
