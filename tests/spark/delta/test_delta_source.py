"""Delta tables as sources: by path and by name, and their change feeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sapwood.spark.pipeline.config import parse_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.spark.delta_streams import append_rows, read_rows

_CHANGES = {"delta.enableChangeDataFeed": "true"}


def _run(spark: SparkSession, folder: Path, source: dict[str, Any], **more: Any) -> None:
    (folder / "queries.txt").write_text("//a\n")
    given = {
        "source": {"format": "delta", "id": "id"} | source,
        "subscriptions": {"file": "queries.txt"},
        "deliveries": {"format": "delta", "path": "deliveries", "body": True},
        "rejects": {"format": "delta", "path": "rejects"},
        "run": {"checkpoint": "checkpoint"},
    }
    Pipeline(spark, parse_config(given | more, folder=folder)).run()


def _delivered(folder: Path) -> list[tuple[str, str]]:
    return sorted((row["message_id"], row["body"]) for row in read_rows(folder / "deliveries"))


def _rows(*messages: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"id": id, "body": body} for id, body in messages]


def test_changes_of_a_table(tmp_path: Path, spark: SparkSession) -> None:
    inbox = tmp_path / "inbox"
    append_rows(inbox, _rows(("1", "<a>1</a>"), ("2", "<a>2</a>"), ("3", "<b/>")), _CHANGES)
    source = {
        "path": "inbox",
        "options": {"readChangeFeed": True, "startingVersion": 0},
        "id": "concat_ws('@', id, _commit_version)",
        "keep": ["_change_type AS change"],
    }
    _run(spark, tmp_path, source)
    assert _delivered(tmp_path) == [("1@0", "<a>1</a>"), ("2@0", "<a>2</a>")]
    DeltaTable(str(inbox)).update(predicate="id = '1'", updates={"body": "'<a>changed</a>'"})
    DeltaTable(str(inbox)).delete("id = '2'")
    append_rows(inbox, _rows(("4", "<a>4</a>")))
    _run(spark, tmp_path, source)
    assert _delivered(tmp_path) == [
        ("1@0", "<a>1</a>"),
        ("1@1", "<a>changed</a>"),
        ("2@0", "<a>2</a>"),
        ("4@3", "<a>4</a>"),
    ]
    rows = {row["message_id"]: row for row in read_rows(tmp_path / "deliveries")}
    assert rows["1@1"]["change"] == "update_postimage" and rows["4@3"]["change"] == "insert"
    assert rows["1@1"]["published_at"] > rows["1@0"]["published_at"]  # the time of the commit
    # deletions are messages if they are asked for
    batch = {"run": {"checkpoint": "other", "trigger": "batch"}}
    deleted = {"deliveries": {"format": "delta", "path": "deleted"}}
    _run(spark, tmp_path, source | {"changes": ["delete"]}, **batch, **deleted)
    assert [(row["message_id"], row["change"]) for row in read_rows(tmp_path / "deleted")] == [
        ("2@2", "delete")
    ]


def test_a_changed_row_replaces_its_delivery(tmp_path: Path, spark: SparkSession) -> None:
    inbox = tmp_path / "inbox"
    append_rows(inbox, _rows(("1", "<a>1</a>"), ("2", "<a>2</a>")), _CHANGES)
    for text in ("changed", "changed again"):
        DeltaTable(str(inbox)).update(predicate="id = '1'", updates={"body": f"'<a>{text}</a>'"})
    source = {"path": "inbox", "options": {"readChangeFeed": True, "startingVersion": 0}}
    sink = {"format": "delta", "path": "deliveries", "body": True, "mode": "merge"}
    _run(spark, tmp_path, source, deliveries=sink)  # all three commits are one batch
    assert _delivered(tmp_path) == [("1", "<a>changed again</a>"), ("2", "<a>2</a>")]


def test_tables_by_name(tmp_path: Path, spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS news")
    spark.sql("CREATE TABLE news.inbox (id STRING, body STRING) USING delta")
    sinks = {
        "deliveries": {"format": "delta", "table": "spark_catalog.news.deliveries", "mode": "merge"},
        "rejects": {"format": "delta", "table": "news.rejects"},
    }
    for number in range(2):
        spark.sql(f"INSERT INTO news.inbox VALUES ('{number}', '<a/>'), ('{number}x', 'no XML')")
        _run(spark, tmp_path, {"table": "spark_catalog.news.inbox"}, **sinks)
    delivered = spark.table("news.deliveries").select("message_id", "batch").orderBy("message_id").collect()
    assert list(map(tuple, delivered)) == [("0", 0), ("1", 1)]
    rejected = spark.table("news.rejects").select("message_id", "batch").orderBy("message_id").collect()
    assert list(map(tuple, rejected)) == [("0x", 0), ("1x", 1)]
