"""Pipelines in a bucket of S3: what drivers killed amid batches have left there, the next ones continue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from sapwood.bench.harness import maven_jars
from sapwood.spark.io.file_system import FileSystemError, is_folder
from sapwood.spark.io.s3_settings import share_s3_settings
from tests.support.requirements import missing
from tests.support.spark.driver_kills import kill_amid_batch, run_driver
from tests.support.spark.s3_streams import Bucket, s3_server
from tests.support.spark.spark_joins import START, JoinedStreams, random_subscriptions
from tests.support.spark.spark_stream import Stream


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    try:
        maven_jars.S3_FILE_SYSTEM.fetch()
        maven_jars.AWS_SDK.fetch()
    except maven_jars.JarError as error:
        missing(str(error))
    with s3_server() as address:
        yield address


def _upload(bucket: Bucket, folder: Path, *names: str) -> None:
    for name in names:
        for path in sorted((folder / name).iterdir()):
            bucket.put(f"{name}/{path.name}", path.read_bytes())


@pytest.mark.long
def test_drivers_continue_what_others_have_left(tmp_path: Path, server: str, spark: SparkSession) -> None:
    """Those are killed amid batches."""
    bucket = Bucket(server, "filters")
    stream = Stream(tmp_path / "stream")
    bucket.move_pipeline(stream.settings)
    stream.subscribe(150)
    stream.publish(7, messages_each=10)
    _upload(bucket, stream.folder, "inbox")
    chance = Random(2)
    amid = 0
    for round in range(3):
        amid += kill_amid_batch(
            stream.settings,
            lambda name: bucket.has(f"checkpoint/sapwood/{name}"),
            chance.uniform(0.0, 2.0),
        )
        stream.change_subscriptions(round)
    assert amid > 0
    run_driver(stream.settings)
    assert not any("unfinished" in key for key in bucket.list_keys())
    bucket.copy_to(stream.folder)
    stream.assert_exact(spark)


@pytest.mark.long
def test_joins_with_their_state_and_feedback(tmp_path: Path, server: str, spark: SparkSession) -> None:
    bucket = Bucket(server, "joins")
    streams = JoinedStreams(tmp_path / "joined", lateness=8)
    bucket.move_pipeline(streams.settings)
    chained = {"publishes": "S//c->x PUBLISH L", "reads that": "L//c->x"}
    streams.subscribe(random_subscriptions(Random(7), 8) | chained)
    for number in range(2):
        streams.publish(START + 5 * number, 6)
    for stream in "S", "T":
        _upload(bucket, streams.folder, stream)
    assert kill_amid_batch(streams.settings, lambda name: bucket.has(f"checkpoint/sapwood/{name}"), 0.3), (
        "the batch was committed before the kill"
    )
    run_driver(streams.settings)
    bucket.copy_to(streams.folder)
    delivered = streams.assert_exact(spark)
    assert "reads that" in {row.subscription for row in delivered}
    assert any(row.messages is not None and len(row.messages) == 2 for row in delivered)


def test_a_session_without_the_file_system(spark: SparkSession) -> None:
    with pytest.raises(FileSystemError, match=r"no file system for s3a://.*org.apache.hadoop:hadoop-aws"):
        is_folder(spark, "s3a://anything/inbox")


def test_settings_of_a_bucket_precede_those_of_all(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAPWOOD_S3_SETTINGS", "{}")
    monkeypatch.setitem(spark.sparkContext.environment, "SAPWOOD_S3_SETTINGS", "{}")
    hadoop = spark._jsc.hadoopConfiguration()
    given = {
        "fs.s3a.endpoint": "store.example:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.bucket.other.endpoint": "https://other.example/",
        "fs.s3a.bucket.other.access.key": "key",
        "fs.s3a.bucket.other.secret.key": "secret",
    }
    for key, value in given.items():
        hadoop.set(key, value)
    try:
        share_s3_settings(spark, "s3a://one/inbox", "s3a://other/out", "/local", None)
    finally:
        for key in given:
            hadoop.unset(key)
    shared = json.loads(spark.sparkContext.environment["SAPWOOD_S3_SETTINGS"])
    assert (shared["one"]["endpoint"], shared["one"]["scheme"]) == ("store.example:9000", "http")
    assert (shared["other"]["endpoint"], shared["other"]["scheme"]) == ("other.example", "https")
    assert (shared["other"]["access_key"], shared["one"]["access_key"]) == ("key", None)
    assert shared.keys() == {"one", "other"}
