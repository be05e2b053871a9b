"""Matching in SQL."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sapwood import QueryError
from sapwood.spark import match, register
from sapwood.workload import MessageGenerator, QueryGenerator, TransformationGenerator, load_dtd


@pytest.mark.parametrize("transformations", [0, 100])
def test_sql_finds_what_match_finds(spark: SparkSession, transformations: int) -> None:
    news = load_dtd("news")
    bodies = [*MessageGenerator(news, seed=31).take(60), b"<broken"]
    queries = QueryGenerator(news, seed=32).take(200)
    queries += TransformationGenerator(news, seed=33).take(transformations)
    subscriptions = {f"s{i}": query for i, query in enumerate(queries)}
    messages = spark.createDataFrame(list(enumerate(bodies)), "message_id int, body binary").repartition(3)
    messages.createOrReplaceTempView("messages")
    register(spark, subscriptions)
    found = spark.sql("SELECT * FROM sapwood_match(TABLE(messages))").collect()
    expected = match(messages, subscriptions).collect()
    assert len(found) > 60
    assert sorted(map(tuple, found)) == sorted((str(row[0]), *row[1:]) for row in expected)
    assert any(row["body"] is not None for row in found) == (transformations > 0)


def test_rows_of_the_table_function_can_be_joined_and_grouped(spark: SparkSession) -> None:
    messages = spark.createDataFrame(
        [("m1", "<a><b/></a>", "x"), ("m2", "<a/>", "y")], "message_id string, body string, source string"
    )
    messages.createOrReplaceTempView("sources")
    register(spark, {1: "//a", 2: "//b"}, "find")
    rows = spark.sql(
        "SELECT source, sum(subscription) AS total"
        " FROM find(TABLE(SELECT message_id, body FROM sources)) JOIN sources USING (message_id)"
        " GROUP BY source ORDER BY source"
    ).collect()
    assert [tuple(row) for row in rows] == [("x", 3), ("y", 1)]


def test_a_table_without_a_body_is_an_error(spark: SparkSession) -> None:
    register(spark, {"a": "/a"}, "bodiless")
    with pytest.raises(Exception, match="needs a column 'body'"):
        spark.sql("SELECT * FROM bodiless(TABLE(SELECT 'm' AS message_id))").collect()


def test_an_invalid_query_is_refused_before_anything_runs(spark: SparkSession) -> None:
    with pytest.raises(QueryError):
        register(spark, {"a": "//a["}, "bad")
