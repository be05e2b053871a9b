"""No file is skipped silently: old ones are read, those that Spark does not read are rejects or warnings."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from sapwood.spark import read_messages
from sapwood.spark.io.file_ranges import EMPTY, GONE
from sapwood.spark.io.unread_files import find_skipped_files
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline

DAY = 86_400
AGES = {"new": 0, "week": 8 * DAY, "decade": 3_650 * DAY, "newer": -DAY, "epoch": 70 * 365 * DAY}
SOURCES = {
    "a message a file": ("xml", 'path = "inbox"'),
    "lines": ("xmll", 'path = "inbox"'),
    "records": ("xml", 'path = "inbox"\nrecord = "a"'),
    "json": ("json", 'path = "inbox"\nformat = "json"\nid = "id"\nschema = "id STRING, body STRING"'),
    "parquet": (
        "parquet",
        'path = "inbox"\nformat = "parquet"\nid = "id"\nschema = "id STRING, body STRING"',
    ),
    "text": ("txt", 'path = "inbox"\nformat = "text"\nid = "value"\nbody = "value"'),
}
PIPELINE = """
name = "unread"
[[source]]
{source}
files_per_batch = 2
[subscriptions]
file = "queries.txt"
[deliveries]
path = "deliveries"
[rejects]
path = "rejects"
[run]
checkpoint = "checkpoint"
trigger = "{trigger}"
partitions = 1
"""


def make(folder: Path, source: str, trigger: str = "available-now", queries: str = "/a\n") -> Path:
    (folder / "inbox").mkdir()
    (folder / "queries.txt").write_text(queries)
    (folder / "pipeline.toml").write_text(PIPELINE.format(source=source, trigger=trigger))
    return folder / "inbox"


def put(spark: SparkSession, inbox: Path, name: str, ending: str, age: float) -> None:
    path = inbox / f"{name}.{ending}"
    if ending == "parquet":
        part = inbox.parent / f"part-{name}"
        rows = spark.createDataFrame([(name, f"<a>{name}</a>")], "id string, body string")
        rows.coalesce(1).write.parquet(str(part))
        next(part.glob("*.parquet")).rename(path)
    elif ending == "json":
        path.write_text(json.dumps({"id": name, "body": f"<a>{name}</a>"}))
    else:
        path.write_text(f"<a>{name}</a>")
    os.utime(path, (time.time() - age, time.time() - age))


def run(spark: SparkSession, folder: Path) -> list[Outcome]:
    pipeline = Pipeline(spark, read_config(folder / "pipeline.toml"))
    pipeline.run()
    return pipeline.outcomes()


def rejects(spark: SparkSession, folder: Path) -> dict[str, str]:
    rows = spark.read.parquet(str(folder / "rejects")).select("message_id", "reason").collect()
    return {row["message_id"]: row["reason"] for row in rows}


# -- old files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SOURCES)
def test_files_of_any_age_are_served(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    ending, source = SOURCES[kind]
    inbox = make(tmp_path, source)
    for name, age in AGES.items():
        put(spark, inbox, name, ending, age)
    assert sum(outcome.messages for outcome in run(spark, tmp_path)) == len(AGES)
    for name, age in AGES.items():  # older than what an earlier run has seen
        put(spark, inbox, f"later-{name}", ending, age + 1)
    outcomes = run(spark, tmp_path)
    assert sum(outcome.deliveries for outcome in outcomes) == 2 * len(AGES)
    delivered = spark.read.parquet(str(tmp_path / "deliveries")).select("message_id").collect()
    assert len({row[0] for row in delivered}) == 2 * len(AGES)


def test_files_of_any_age_are_served_by_a_stream_that_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    inbox = make(tmp_path, 'path = "inbox"', "0 seconds")
    put(spark, inbox, "newest", "xml", 0)
    served: Counter[str] = Counter()
    old = [("week", 8 * DAY), ("decade", 3_650 * DAY)]

    def on_batch(outcome: Outcome) -> None:
        served["messages"] += outcome.messages
        if old:
            put(spark, inbox, old[0][0], "xml", old.pop(0)[1])
        elif served["messages"] == 3:
            pipeline.stop()

    pipeline = Pipeline(spark, read_config(tmp_path / "pipeline.toml"), on_batch)
    late = threading.Timer(60, pipeline.stop)
    late.start()
    pipeline.run()
    late.cancel()
    assert served["messages"] == 3


# -- what Spark drops from a batch -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["one", "several", "batch"])
def test_an_empty_file_is_a_reject(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    trigger = "batch" if kind == "batch" else "available-now"
    more = '\nstream = "s"\n[[source]]\npath = "other"\nstream = "t"' if kind == "several" else ""
    inbox = make(tmp_path, f'path = "inbox"{more}', trigger)
    (tmp_path / "other").mkdir()
    for name in ("empty.xml", "empty.xmll", "a b%20[1]*.xml"):
        (inbox / name).touch()
    (inbox / "full.xml").write_text("<a/>")
    assert [outcome.deliveries for outcome in run(spark, tmp_path)][:2].count(1) == 1
    assert rejects(spark, tmp_path) == {"empty.xml": EMPTY, "a b%20[1]*.xml": EMPTY}


@pytest.mark.parametrize("kind", ["a message a file", "json"])
def test_a_file_that_is_gone_when_its_batch_is_served_is_a_reject(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    ending, source = SOURCES[kind]
    inbox = make(tmp_path, source)
    for name in ("kept", "lost"):
        put(spark, inbox, name, ending, 0)
    with (
        mock.patch.object(Pipeline, "_process", side_effect=KeyError("power")),
        pytest.raises(KeyError, match="power"),
    ):
        run(spark, tmp_path)
    (inbox / f"lost.{ending}").unlink()
    (outcome,) = run(spark, tmp_path)
    assert (outcome.deliveries, outcome.rejects) == (1, 1)
    (found,) = rejects(spark, tmp_path).items()
    assert found[0].endswith(f"lost.{ending}")
    assert found[1] == GONE


def test_a_stream_that_joins_reports_empty_files_too(spark: SparkSession, tmp_path: Path) -> None:
    inbox = make(tmp_path, 'path = "inbox"\nstream = "s"')
    text = (tmp_path / "pipeline.toml").read_text()
    (tmp_path / "pipeline.toml").write_text(text + "[joins]\nbuckets = 1\n")
    (inbox / "empty.xml").touch()
    (inbox / "full.xml").write_text("<a/>")
    (outcome,) = run(spark, tmp_path)
    assert (outcome.messages, outcome.deliveries, outcome.rejects) == (2, 1, 1)
    assert rejects(spark, tmp_path) == {"empty.xml": EMPTY}


def test_names_that_look_like_patterns_are_served_once_each(spark: SparkSession, tmp_path: Path) -> None:
    inbox = make(tmp_path, 'path = "inbox"')
    names = ["[1].xml", "1.xml", "*.xml", "?.xml", "{1,2}.xml", "a%20b.xml", "a b.xml", "_a=b.xml", "%.xmll"]
    for name in names:
        (inbox / name).write_text("<a/>\n")
    assert sum(outcome.messages for outcome in run(spark, tmp_path)) == len(names)
    delivered = spark.read.parquet(str(tmp_path / "deliveries")).select("message_id").collect()
    assert sorted(row[0] for row in delivered) == sorted([*names[:-1], "%.xmll@0"])


# -- what never gets into a batch ------------------------------------------------------------------------


def test_files_that_will_not_be_read_are_reported_at_the_start(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = make(tmp_path, 'path = "inbox"')
    (inbox / "_below").mkdir()
    for name in (
        "good.xml",
        "_hidden.xml",
        "_below/x.xml",
        "NEWS.XML",
        "news.zip",
        ".unfinished",
        "_SUCCESS",
    ):
        (inbox / name).write_text("<a/>")
    with caplog.at_level(logging.WARNING, "sapwood"):
        run(spark, tmp_path)
    told = "\n".join(caplog.messages)
    assert (
        "_below/x.xml, _hidden.xml are not read by Spark: the name, or that of a folder, begins with _ or ."
        in told
    )
    assert "NEWS.XML, news.zip are not read: the name does not end in .xml, .xmll" in told
    assert "good.xml" not in told
    assert ".unfinished" not in told
    caplog.clear()

    (inbox / "good.xml").write_text("<a>replaced</a>")
    os.utime(inbox / "good.xml", (time.time() + 10, time.time() + 10))
    with caplog.at_level(logging.WARNING, "sapwood"):
        assert len(run(spark, tmp_path)) == 1  # it is not served again
    assert "good.xml is not read again: changed after a batch had read it" in "\n".join(caplog.messages)


def test_files_served_are_known_from_logs_that_spark_has_compacted(tmp_path: Path) -> None:
    inbox, log = tmp_path / "in box", tmp_path / "log"
    inbox.mkdir()
    log.mkdir()
    for name in ("a.xml", "b.xml"):
        (inbox / name).write_text("<a/>")
        os.utime(inbox / name, (1_000, 1_000))
    entry = {"path": f"file://{inbox}/a.xml".replace(" ", "%20"), "timestamp": 1, "batchId": 9}
    (log / "8").write_text("v1\n")
    (log / "9.compact").write_text("v1\n" + json.dumps(entry))
    later = entry | {"path": entry["path"].replace("a.xml", "b.xml"), "timestamp": 1_000_000}  # type: ignore[attr-defined]
    (log / "10").write_text("v1\n" + json.dumps(later))
    (log / ".10.crc").write_bytes(b"\xff")
    (told,) = find_skipped_files(inbox, log)
    assert told.startswith(f"{inbox}: a.xml is not read again: changed")


def test_a_hidden_file_that_is_named_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_a.xml").write_text("<a/>")
    with pytest.raises(ValueError, match="begins with _ or"):
        read_messages(spark, str(tmp_path / "_a.xml"))
    folder = tmp_path / "_in"
    folder.mkdir()
    (folder / "a.xml").write_text("<a/>")
    assert read_messages(spark, str(folder)).count() == 1
