"""Files that workers write have the rows and the columns of those that Spark writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sapwood.spark.deliveries.output_files import (
    OutputFolder,
    can_write,
    find_compression,
    format_json_lines,
)
from sapwood.spark.io.sinks import Sink
from sapwood.spark.pipeline.config import parse_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.store import NewSubscription, SubscriptionStore

BY_SPARK = {"parquet": {"maxRecordsPerFile": 100_000}, "json": {"ignoreNullFields": True}}
"""options with which Spark writes what workers would"""
LINES = [
    b"<a><b>1</b></a>",
    "<a>\xfc \U0001f600 \u2028 \x7f</a>".encode(),
    b"<a>\xff</a>",
    b"<a>",
    b'<a q="&quot;\\"/>',
]
ROWS = [
    NewSubscription("all", "/a", "desk"),
    NewSubscription('quoted " and \\', "//b"),
    NewSubscription("made", "for $b in //b return <made>{$b}</made>"),
    NewSubscription("fails", "//b[sum(/a/b) div 0 > count(//*) * 1e9]"),
]


def run(spark: SparkSession, folder: Path, name: str, **sinks: Any) -> None:
    content: dict[str, Any] = {
        "source": {"path": "inbox", "stream": "news"},
        "subscriptions": {"store": "subscriptions.db"},
        "run": {"checkpoint": f"{name}/checkpoint"},
    } | {key: {"path": f"{name}/{key}"} | value for key, value in sinks.items()}
    Pipeline(spark, parse_config(content, folder=folder)).run()


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/some.xmll").write_bytes(b"\n".join(LINES))
    with SubscriptionStore(str(tmp_path / "subscriptions.db")) as store:
        store.import_many(ROWS)
    return tmp_path


@pytest.mark.parametrize("format", ["parquet", "json"])
@pytest.mark.parametrize("shape", ["pairs", "messages"])
def test_workers_write_what_spark_writes(spark: SparkSession, inbox: Path, format: str, shape: str) -> None:
    for name, options in {"workers": {}, "spark": BY_SPARK[format]}.items():
        sink = {"format": format, "options": options}
        run(spark, inbox, name, deliveries=sink | {"body": True, "shape": shape}, rejects=sink)
    for table in ("deliveries", "rejects"):
        ours, theirs = (
            spark.read.format(format).load(str(inbox / who / table)) for who in ("workers", "spark")
        )
        assert dict(ours.dtypes) == dict(theirs.dtypes)
        columns = sorted(ours.columns)
        assert sorted(map(str, ours.select(columns).collect())) == sorted(
            map(str, theirs.select(columns).collect())
        )
        assert ours.count() > 0
        names = sorted(path.name for path in (inbox / "workers" / table / "batch=0").iterdir())
        assert names[0] == "_SUCCESS" and all(name.startswith("part-") for name in names[1:])
    if format == "json":  # to the letter, but for the order of keys and lines
        assert read_lines(inbox / "workers/rejects") == read_lines(inbox / "spark/rejects")


def read_lines(table: Path) -> list[str]:
    lines = [line for path in table.glob("batch=0/part-*") for line in path.read_text().split("\n") if line]
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in lines)


def test_a_batch_without_deliveries_has_the_columns(spark: SparkSession, inbox: Path) -> None:
    with SubscriptionStore(str(inbox / "subscriptions.db")) as store:
        store.remove(*(row.id for row in ROWS))
    run(spark, inbox, "out", deliveries={}, rejects={})
    table = spark.read.parquet(str(inbox / "out/deliveries"))
    assert table.count() == 0
    assert {"message_id", "subscription", "subscriber", "body", "version"} <= set(table.columns)


def test_files_of_tasks_that_ran_twice_are_not_visible(tmp_path: Path) -> None:
    folder = OutputFolder(f"{tmp_path}/batch=7", "parquet")
    schema = pa.schema([("n", pa.int64())])
    rows = pa.record_batch([pa.array([1, 2])], schema=schema)
    known, unknown = folder.open(schema), folder.open(schema)
    known._name, unknown._name = "part-00000-1.parquet", "part-00000-2.parquet"
    for file in (known, unknown):
        file.write(rows)
        file.close()
    assert list((tmp_path / "batch=7").iterdir()) == [tmp_path / "batch=7/_unfinished"]
    folder.commit(["part-00000-1.parquet"], schema)
    visible = sorted(path.name for path in (tmp_path / "batch=7").iterdir())
    assert visible == ["_SUCCESS", "part-00000-1.parquet"]
    assert pq.read_table(tmp_path / "batch=7/part-00000-1.parquet").column("n").to_pylist() == [1, 2]
    folder.clear()
    assert not (tmp_path / "batch=7").exists()


@pytest.mark.parametrize(
    ("format", "options", "compression"),
    [
        ("parquet", {}, "snappy"),
        ("parquet", {"Compression": "ZSTD"}, "zstd"),
        ("parquet", {"compression": "uncompressed"}, "none"),
        ("parquet", {"compression": "lzo"}, None),
        ("parquet", {"mergeSchema": "true"}, None),
        ("json", {}, "none"),
        ("json", {"compression": "gzip"}, None),
        ("json", {"timestampFormat": "y"}, None),
        ("orc", {}, None),
        ("delta", {}, None),
    ],
)
def test_options_that_workers_do_not_have_are_left_to_spark(
    format: str, options: dict[str, str], compression: str | None
) -> None:
    assert find_compression(format, options) == compression
    found = Sink(format, "/some/folder", options).folder(0, pa.schema([("n", pa.int64())]))
    assert (found is None) == (compression is None)
    assert Sink(format, "hdfs://host/folder", options).folder(0, pa.schema([])) is None


def test_types_that_json_of_workers_does_not_have_are_left_to_spark() -> None:
    known = pa.schema([("t", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.string())), ("d", pa.float64())])
    assert can_write("json", known)
    for kind in (pa.timestamp("us"), pa.decimal128(5), pa.map_(pa.string(), pa.string()), pa.date32()):
        assert not can_write("json", pa.schema([("x", kind)]))
        assert can_write("parquet", pa.schema([("x", kind)]))


def test_json_has_no_nulls_and_no_numbers_that_json_lacks() -> None:
    moment = datetime(2026, 11, 17, 12, 30, 0, 123456, tzinfo=UTC)
    rows = pa.record_batch(
        {
            "text": pa.array(["ü\n", None]),
            "number": pa.array([1.5, float("nan")]),
            "at": pa.array([moment, moment + timedelta(days=1)], pa.timestamp("us", "UTC")),
            "raw": pa.array([b"a\xff", b""]),
        }
    )
    first, second = map(json.loads, format_json_lines(rows))
    assert first == {"text": "ü\n", "number": 1.5, "at": "2026-11-17T12:30:00.123Z", "raw": "a\ufffd"}
    assert second == {"number": "NaN", "at": "2026-11-18T12:30:00.123Z", "raw": ""}
