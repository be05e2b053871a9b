"""A query that fails on one message is in the rejects and the outcome, and affects no other."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sapwood import Limits
from sapwood.relational import RelationalMatcher
from sapwood.spark import match
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.spark.relational.table_match import Backend, match_relational
from tests.engine.fallback.test_budgets import MESSAGE, STALLING, TIGHT

SLOW = STALLING["nested counts"]
FILTERS = {"fine": "//b", "refined": "count(//b) * 1 = 300", "slow": SLOW}
MADE = {
    "large": "for $x in //a return <r>{$x}</r>",
    "made": "for $x in //a where count($x/b) = 300 return <r/>",
}
OVER = "over budget: it takes more than 0.05 s"
TOO_LARGE = "failed: it makes more than 2,000 bytes"


def in_a_frame(row: Any) -> tuple[list[str], list[tuple[str, str]]]:
    told = [(each["subscription"], f"{each['kind']}: {each['reason']}") for each in row["undecided"] or ()]
    return sorted(row["subscriptions"]), sorted(told)


def test_a_frame_tells_them_in_a_column(spark: SparkSession) -> None:
    messages = spark.createDataFrame([("1", MESSAGE), ("2", "<a/>")], "message_id STRING, body STRING")
    limits = Limits(query_seconds=0.05, result=2_000)
    rows = match(messages, FILTERS | MADE, shape="messages", limits=limits).collect()
    assert {row["message_id"]: in_a_frame(row) for row in rows} == {
        "1": (["fine", "made", "refined"], [("large", TOO_LARGE), ("slow", OVER)]),
        "2": (["large", "slow"], []),
    }
    assert all(row["error"] is None for row in rows)


@pytest.mark.parametrize("on", ["duckdb", "spark"])
def test_the_relational_engine_tells_them_too(spark: SparkSession, on: Backend) -> None:
    messages = spark.createDataFrame([("1", MESSAGE), ("2", "<a/>")], "message_id STRING, body STRING")
    with RelationalMatcher(limits=TIGHT) as tables:
        tables.add_many([*FILTERS.items(), ("as slow", SLOW)])
        rows = match_relational(messages, tables, shape="messages", on=on).collect()
    assert {row["message_id"]: in_a_frame(row) for row in rows} == {
        "1": (["fine", "refined"], [("as slow", OVER), ("slow", OVER)]),
        "2": (["as slow", "slow"], []),
    }


SETTINGS = """
name = "failures"
{first}
[[source]]
path = "inbox"
stream = "S"
time = "/*/@t"
[subscriptions]
file = "queries.jsonl"
[deliveries]
path = "deliveries"
format = "json"
shape = "{shape}"
[rejects]
path = "rejects"
format = "json"
[run]
checkpoint = "checkpoint"
trigger = "available-now"
partitions = 1
[limits]
query_seconds = 0.05
result = 2000
{last}
"""


def served(
    spark: SparkSession, folder: Path, queries: dict[str, str], messages: dict[str, str], **settings: str
) -> tuple[Outcome, list[dict[str, Any]], list[dict[str, Any]]]:
    """The outcome of one batch, its deliveries and its rejects."""
    (folder / "inbox").mkdir()
    for name, body in messages.items():
        (folder / "inbox" / name).write_text(body)
    lines = [json.dumps({"id": id, "query": query}) for id, query in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    text = SETTINGS.format(**{"shape": "pairs", "first": "", "last": ""} | settings)
    if "joins" not in text:
        text = text.replace("[[source]]", "[source]").replace('time = "/*/@t"\n', "")
    (folder / "pipeline.toml").write_text(text)
    pipeline = Pipeline(spark, read_config(folder / "pipeline.toml"))
    pipeline.run()
    (outcome,) = pipeline.outcomes()
    return outcome, written(folder / "deliveries"), written(folder / "rejects")


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.rglob("*.json") for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "settings",
    [{}, {"shape": "messages"}, {"first": 'engine = "relational"'}],
    ids=["pairs", "messages", "tables"],
)
def test_a_pipeline_rejects_them_by_subscription(
    spark: SparkSession, tmp_path: Path, settings: dict[str, str]
) -> None:
    messages = {"1.xml": MESSAGE, "2.xml": "<a/>", "3.xml": "<a>"}
    outcome, deliveries, rejects = served(spark, tmp_path, FILTERS | MADE, messages, **settings)
    told = {(Path(row["message_id"]).name, row.get("subscription"), row["reason"]) for row in rejects}
    assert told == {
        ("1.xml", "slow", OVER),
        ("1.xml", "large", TOO_LARGE),
        ("3.xml", None, "no element found"),
    }
    assert ["body" in row for row in rejects if row.get("subscription")] == [False, False]
    ids = Counter(id for row in deliveries for id in row.get("subscriptions", [row.get("subscription")]))
    assert ids == {"fine": 1, "refined": 1, "made": 1, "slow": 1, "large": 1}
    assert (outcome.messages, outcome.rejects, outcome.failures) == (3, 1, 2)
    assert outcome.reasons == {"no element found": 1}
    assert outcome.failed == {f"slow: {OVER}": 1, f"large: {TOO_LARGE}": 1}
    assert Outcome.from_record(outcome.as_record()) == outcome


def test_a_join_whose_output_fails(spark: SparkSession, tmp_path: Path) -> None:
    queries = {
        "large": "SELECT <r>{$x}{$y}</r> FROM S/a->x[@k->p] JOIN{p = q, 10 s} S/b->y[@k->q]",
        "pair": "SELECT <r>{$q}</r> FROM S/a[@k->p] JOIN{p = q, 10 s} S/b[@k->q]",
        "single": "SELECT <r>{$x}</r> FROM S/a->x",
    }
    messages = {
        "1.xml": f"<a t='1' k='1'>{'x' * 2_500}</a>",
        "2.xml": "<b t='2' k='1'/>",
        "3.xml": "<a t='1' k='2'/>",
    }
    last = '[joins]\nlateness = "10 s"\nbuckets = 2'
    outcome, deliveries, rejects = served(spark, tmp_path, queries, messages, last=last)
    assert Counter(row["subscription"] for row in deliveries) == {"pair": 1, "single": 1}
    assert {(row["subscription"], row["reason"]) for row in rejects} == {
        ("large", TOO_LARGE),
        ("single", TOO_LARGE),
    }
    assert (outcome.deliveries, outcome.rejects, outcome.failures) == (2, 0, 2)
    assert outcome.failed == {f"large: {TOO_LARGE}": 1, f"single: {TOO_LARGE}": 1}
