"""The relational engine on Spark gives the answers that a matcher in this process gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sapwood import Matcher, MessageError
from sapwood.relational import Plan, RelationalMatcher
from sapwood.spark.relational import Place, RelationalMatching, match_relational

QUERIES = {
    "equal": "/a[b = '1']",
    "same as equal": "/a[b = '1']",
    "range": "//b[@x > 3]",
    "differs": "//*[@id != '5']",
    "both": "/a[b < 5 and c > 3]",
    "contains": "//b[contains(., 'z')]",
    "starts": "//b[starts-with(., '1')]",
    "together": "/a[b[c = 1 and d = 2]]",
    "deep": "/a[.//b[c/e = 1]//d]",
    "absent": "/a[not(b)]",
    "second": "/a/b[2]",
    "many": "count(//b) > 1",
    "either": "/a[b > 4] | /z",
}
MESSAGES = (
    "<a><b>1</b></a>",
    "<a><b x='5'>z</b><b/></a>",
    "<a><c>9</c></a>",
    "<a><b><c>1</c><d>2</d></b></a>",
    "<a><b><c>1</c></b><b><d>2</d></b></a>",
    "<a><b>never closed</a>",
    "<z id='4'/>",
    "<a><b>2</b><c>4</c></a>",
    "<a><b><c><e>1</e></c><q><d/></q></b></a>",
    None,
)
NEW = ("<a><n m='1'/><b>7</b></a>", "<n><n><b>1</b></n></n>")
"""messages with tag paths that the others do not have"""
RANGES = {f"above {i}": f"/a[c = 4]/b > {i}" for i in range(60)}
"""enough for buckets"""

Answer = tuple[list[str], tuple[str, int | None, int | None] | None]


class Both:
    """The same subscriptions in tables and in a matcher."""

    def __init__(self, queries: Mapping[str, str], plan: Plan) -> None:
        self.tables = RelationalMatcher(plan=plan)
        self.matcher = Matcher()
        self.tables.add_many(queries.items())
        self.matcher.add_many(queries.items())

    def change(self) -> None:
        """Some go, some come, and some have another query: a new one, or one that others have."""
        for each in (self.tables, self.matcher):
            each.remove("range")
            each.remove("deep")
            each.replace("both", "/a[b = '1']")
            each.replace("starts", "/a[n/@m = 1 and b > 5]")
            each.add("new", "//n[b or .//b[not(c)]]")

    def answers(self, messages: Iterable[str | None]) -> dict[str, Answer]:
        """What is to be expected of messages, by their numbers."""
        return {str(number): self._answer(message) for number, message in enumerate(messages)}

    def _answer(self, message: str | None) -> Answer:
        if message is None:
            return [], ("the message is null", None, None)
        try:
            return sorted(map(str, self.matcher.match(message))), None
        except MessageError as error:
            return [], (error.reason, error.line, error.column)


def frame(spark: SparkSession, messages: Iterable[str | None]) -> DataFrame:
    rows = [(str(number), message) for number, message in enumerate(messages)]
    return spark.createDataFrame(rows, "message_id STRING, body STRING").repartition(2)


def told(matched: DataFrame) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    rows = matched.collect()
    for row in rows:
        error = row["error"]
        why = (error["reason"], error["line"], error["column"]) if error is not None else None
        answers[row["message_id"]] = sorted(row["subscriptions"]), why
    assert len(answers) == len(rows)
    return answers


@pytest.mark.parametrize("plan", [Plan.SHARED, Plan.BUCKETS])
def test_chains_on_spark_give_the_matchers_answers(spark: SparkSession, plan: Plan) -> None:
    both = Both(RANGES, plan)
    pairs = match_relational(frame(spark, MESSAGES), both.tables, on="spark")
    expected = {(message, id) for message, (ids, _) in both.answers(MESSAGES).items() for id in ids}
    assert len(expected) > 1
    assert sorted(tuple(row) for row in pairs.collect()) == sorted((*pair, None) for pair in expected)


@pytest.mark.parametrize("on", ["spark", "duckdb"])
def test_subscriptions_change_between_batches(spark: SparkSession, tmp_path: Path, on: Place) -> None:
    both = Both(QUERIES, Plan.UNROLLED)
    matching = RelationalMatching(both.tables, on, str(tmp_path))
    with matching(frame(spark, MESSAGES)) as matched:
        assert told(matched) == both.answers(MESSAGES)
    both.change()
    with matching(frame(spark, MESSAGES + NEW)) as matched:
        assert told(matched) == both.answers(MESSAGES + NEW)
    matching.close()
