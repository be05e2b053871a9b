"""The columns of deliveries: subscriber, kept columns of files, and the message itself if configured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from sapwood.config_file import ConfigError
from sapwood.spark.deliveries.delivery_rows import count_by_subscriber
from sapwood.spark.io.message_text import decode_text
from sapwood.spark.pipeline.config import parse_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.store import NewSubscription, SubscriptionStore

MESSAGES = {
    "plain.xml": b"<a><b>1</b></a>",
    "latin.xml": "<?xml version='1.0' encoding='ISO-8859-1'?>\n<a>\xfc</a>".encode("latin-1"),
    "wide.xml": '<?xml version="1.0"?><a>\xfc</a>'.encode("utf-16"),
    "broken.xml": b"<a>",
}
TEXTS = {"plain.xml": "<a><b>1</b></a>", "latin.xml": "<a>ü</a>", "wide.xml": "<a>ü</a>"}
ROWS = [
    NewSubscription("all", "/a", "desk"),
    NewSubscription("ones", "//b[. = 1]", "reader"),
    NewSubscription("made", "for $b in //b return <made>{$b}</made>", "reader"),
    NewSubscription("nobody's", "//b", ""),
]


def make(folder: Path, **changed: Any) -> None:
    (folder / "inbox").mkdir()
    for name, body in MESSAGES.items():
        (folder / "inbox" / name).write_bytes(body)
    with SubscriptionStore(str(folder / "subscriptions.db")) as store:
        store.import_many(ROWS)


def run(spark: SparkSession, folder: Path, **changed: dict[str, Any]) -> list[Row]:
    """Runs a pipeline; its deliveries, in order."""
    content: dict[str, Any] = {
        "source": {"path": "inbox"},
        "subscriptions": {"store": "subscriptions.db"},
        "deliveries": {"path": "deliveries"},
        "rejects": {"path": "rejects"},
        "run": {"checkpoint": "checkpoint", "partitions": 1},
    }
    for key, value in changed.items():
        content[key] = content.get(key, {}) | value if isinstance(value, dict) else value
    Pipeline(spark, parse_config(content, folder=folder)).run()
    found = spark.read.parquet(str(folder / "deliveries"))
    return sorted(found.collect(), key=lambda row: (row["batch"], row["message_id"], str(row)))


def subscribers(rows: list[Row]) -> set[tuple[str, str | None]]:
    return {(row["subscription"], row["subscriber"]) for row in rows}


NAMED = {("all", "desk"), ("ones", "reader"), ("made", "reader"), ("nobody's", None)}


def test_deliveries_name_the_subscriber_of_their_version(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    rows = run(spark, tmp_path)
    assert subscribers(rows) == NAMED
    assert {row["body"] for row in rows} == {None, "<made><b>1</b></made>"}  # as it is by default
    with SubscriptionStore(str(tmp_path / "subscriptions.db")) as store:
        store.replace("all", "/a", "another")  # with the same query
    (tmp_path / "inbox" / "more.xml").write_bytes(MESSAGES["plain.xml"])
    later = [row for row in run(spark, tmp_path) if row["message_id"] == "more.xml"]
    assert subscribers(later) == (NAMED - {("all", "desk")}) | {("all", "another")}


@pytest.mark.parametrize("engine", ["automaton", "relational"])
def test_deliveries_of_filters_have_the_message_if_configured(
    spark: SparkSession, tmp_path: Path, engine: Any
) -> None:
    make(tmp_path)
    keep = ["path", "offset", "octet_length(body) AS size", "body AS `the.raw`"]
    rows = run(spark, tmp_path, engine=engine, source={"keep": keep}, deliveries={"body": True})
    assert {row["message_id"]: row["body"] for row in rows if row["subscription"] == "all"} == TEXTS
    (made,) = [row for row in rows if row["subscription"] == "made"]
    assert made["body"] == "<made><b>1</b></made>"
    for row in rows:
        raw = MESSAGES[row["message_id"]]
        assert bytes(row["the.raw"]) == raw
        assert (row["size"], row["offset"]) == (len(raw), 0)
        assert row["path"] == f"file:{tmp_path}/inbox/{row['message_id']}"
    assert subscribers(rows) == NAMED
    (refused,) = spark.read.parquet(str(tmp_path / "rejects")).collect()
    assert bytes(refused["body"]) == bytes(refused["the.raw"]) == MESSAGES["broken.xml"]
    assert "_message" not in refused


def test_a_row_for_a_message_has_it_once(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    rows = run(spark, tmp_path, deliveries={"body": True, "shape": "messages"})
    assert {row["message_id"]: row["message"] for row in rows} == TEXTS
    assert all("subscriber" not in row for row in rows)


def test_joins_name_the_subscriber_and_get_the_message_itself(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    with SubscriptionStore(str(tmp_path / "subscriptions.db")) as store:
        store.add("alone", "S//b->x", "joiner")
        store.add("meets", "S//a->x[.//b->p] JOIN{p = q, INF} S//a->y[.//b->q]", "joiner")
    (tmp_path / "inbox" / "again.xml").write_bytes(MESSAGES["plain.xml"])
    rows = run(
        spark,
        tmp_path,
        source={"stream": "S", "keep": ["offset"]},
        joins={"buckets": 1},
        deliveries={"body": True},
    )
    assert subscribers(rows) >= {("alone", "joiner"), ("all", "desk"), ("nobody's", None)}
    texts = TEXTS | {"again.xml": TEXTS["plain.xml"]}
    for id in ("all", "alone"):
        got = {row["message_id"]: row["body"] for row in rows if row["subscription"] == id}
        assert got == {name: text for name, text in texts.items() if id == "all" or "<b>" in text}
    assert {row["offset"] for row in rows} == {0}


def test_a_file_of_queries_may_name_subscribers(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    lines = [{"id": 1, "query": "/a", "subscriber": "desk"}, {"id": 2, "query": "//b"}]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, lines)))
    content = {"subscriptions": {"store": None, "file": "queries.jsonl"}}
    assert subscribers(run(spark, tmp_path, **content)) == {("1", "desk"), ("2", None)}


def test_deliveries_are_counted_by_subscriber() -> None:
    names = {"a": "one", "b": "one", "c": "two"}
    assert count_by_subscriber({"a": 3, "b": 4, "c": 2, "d": 1}, names) == {"one": 7, "two": 2, "": 1}


def test_messages_as_text() -> None:
    assert decode_text(None) is None
    assert decode_text("<?xml version='1.0' encoding='latin-1'?>\n<a/>") == "<a/>"
    assert decode_text(b"\xef\xbb\xbf<a/>") == "<a/>"
    assert decode_text(b"<?xml-stylesheet href='x'?><a/>") == "<?xml-stylesheet href='x'?><a/>"
    assert decode_text(b"<a>\xff</a>") is None


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"keep": ["body"]}, "deliveries.body = true"),
        ({"keep": ["upper(path) as subscriber"]}, "another name with AS"),
        ({"keep": ["`batch`"]}, "'batch'"),
        ({"options": {"x": 1}}, "'options' is for other formats"),
        ({"body": "value"}, "'body' is for other formats"),
        ({"path": None, "format": "kafka", "bytes_per_batch": 7}, "'bytes_per_batch' is for files"),
    ],
)
def test_columns_that_would_be_ignored_or_collide_are_refused(source: dict[str, Any], told: str) -> None:
    content: dict[str, Any] = {
        "source": {"path": "inbox"} | source,
        "subscriptions": {"store": "subscriptions.db"},
        "deliveries": {"path": "deliveries"},
        "rejects": {"path": "rejects"},
        "run": {"checkpoint": "checkpoint"},
    }
    with pytest.raises(ConfigError) as caught:
        parse_config(content)
    assert told in str(caught.value)
