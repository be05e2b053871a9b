"""Spark's answers are those of the matcher in this process, row for row, whatever the messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sapwood import Broker, Limits, Matcher, MessageError, QueryError
from sapwood.spark import match
from sapwood.workload import MessageGenerator, QueryGenerator, load_dtd
from tests.support.oracles import lxml_oracle

Answer = tuple[list[str], tuple[str, int | None, int | None, bytes | None] | None]
"""subscriptions; error with reason, line, column and body"""


def frame(spark: SparkSession, bodies: Iterable[bytes | str | None], partitions: int = 3) -> DataFrame:
    """Messages that are called by their numbers."""
    rows = [(str(number), body) for number, body in enumerate(bodies)]
    kind = "string" if any(isinstance(body, str) for _, body in rows) else "binary"
    return spark.createDataFrame(rows, f"message_id string, body {kind}").repartition(partitions)


def expected(matcher: Matcher, bodies: Iterable[bytes | str | None]) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for number, body in enumerate(bodies):
        raw = body.encode() if isinstance(body, str) else body
        if body is None:
            answers[str(number)] = [], ("the message is null", None, None, None)
            continue
        try:
            answers[str(number)] = sorted(str(id) for id in matcher.match(body)), None
        except MessageError as error:
            answers[str(number)] = [], (error.reason, error.line, error.column, raw)
    return answers


def by_message(rows: DataFrame) -> dict[str, Answer]:
    collected = rows.collect()
    answers: dict[str, Answer] = {}
    for row in collected:
        error = row["error"]
        body = bytes(error["body"]) if error is not None and error["body"] is not None else None
        refused = (error["reason"], error["line"], error["column"], body) if error is not None else None
        answers[row["message_id"]] = sorted(row["subscriptions"]), refused
    assert len(answers) == len(collected)
    return answers


def as_pairs(answers: dict[str, Answer]) -> list[tuple[str, str, None]]:
    return sorted((message, id, None) for message, (ids, _) in answers.items() for id in ids)


def delivery(message: str, subscription: str | int) -> Row:
    return Row(message_id=message, subscription=subscription, body=None)


def check(
    spark: SparkSession,
    subscriptions: dict[str, str],
    bodies: list[bytes | str | None],
    namespaces: dict[str, str] | None = None,
) -> dict[str, Answer]:
    """Both shapes, against the matcher in this process."""
    matcher = Matcher(namespaces)
    matcher.add_many(subscriptions.items())
    answers = expected(matcher, bodies)
    messages = frame(spark, bodies)
    assert by_message(match(messages, matcher, shape="messages")) == answers
    pairs = match(messages, subscriptions, namespaces=namespaces)
    assert pairs.columns == ["message_id", "subscription", "body"]
    assert sorted(map(tuple, pairs.collect())) == as_pairs(answers)
    return answers


# -- generated messages and queries ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtd", "refined"),
    [
        ("news", "count(//item) > 2"),
        ("auction", "count(//*) > 40"),
        ("bibliography", "count(//author) > 2"),
    ],
)
def test_generated_messages_match_as_in_one_process(spark: SparkSession, dtd: str, refined: str) -> None:
    definition = load_dtd(dtd)
    queries = [
        *QueryGenerator(definition, seed=1).take(80),
        *QueryGenerator(definition, seed=2, predicates=1, operators=("=", "<", ">=")).take(80),
        *QueryGenerator(definition, seed=3, nested=1).take(60),
        refined,
    ]
    bodies: list[bytes | str | None] = [*MessageGenerator(definition, seed=5).take(60)]
    answers = check(spark, {f"s{i}": query for i, query in enumerate(queries)}, bodies)
    assert sum(len(ids) for ids, _ in answers.values()) > 100
    assert any(f"s{len(queries) - 1}" in ids for ids, _ in answers.values())


def test_all_of_xpath_matches_as_in_one_process(spark: SparkSession) -> None:
    rng = random.Random(42)
    subscriptions = {f"q{i}": lxml_oracle.random_query(rng, native=i % 2 == 0) for i in range(250)}
    bodies: list[bytes | str | None] = [
        lxml_oracle.random_message(rng, lxml_oracle.random_document(rng)) for _ in range(120)
    ]
    answers = check(spark, subscriptions, bodies, lxml_oracle.NAMESPACES)
    trees = [lxml_oracle.parse(body, defaults=True) for body in bodies[:15] if isinstance(body, bytes)]
    for number, tree in enumerate(trees):
        said = {id for id, query in subscriptions.items() if lxml_oracle.matches(tree, query)}
        assert set(answers[str(number)][0]) == said


def test_bodies_may_be_strings(spark: SparkSession) -> None:
    bodies: list[bytes | str | None] = ["<a>ü</a>", "<a>€𝄞</a>", "<b", None, "", "<?xml version='1.0'?><a/>"]
    answers = check(spark, {"a": "/a", "ü": "//*[. = 'ü']", "clef": "//*[contains(., '𝄞')]"}, bodies)
    assert answers["0"][0] == ["a", "ü"]
    assert answers["1"][0] == ["a", "clef"]


# -- broken messages -------------------------------------------------------------------------------------

_BOMB = b"<!DOCTYPE a [<!ENTITY a0 'aaaaaaaaaa'>%b]><a>&a9;</a>" % b"".join(
    b"<!ENTITY a%d '%b'>" % (i, b"&a%d;" % (i - 1) * 10) for i in range(1, 10)
)
BROKEN: list[bytes | None] = [
    None,
    b"",
    b" \n ",
    b"not XML at all",
    b"<news><head>never closed",
    b"<news>\n  <a></b>\n</news>",
    b"<news/><news/>",
    b"<news>&undeclared;</news>",
    _BOMB,
    b"<a>" * 501 + b"</a>" * 501,
    b"<a " + b" ".join(b"x%d=''" % i for i in range(1001)) + b"/>",
    b"<a>\xff\xfe</a>",
    b"<?xml version='1.0' encoding='no-such'?><a/>",
    b"<?xml version='1.0' encoding='UTF-16'?><a/>",
    b"<p:a/>",
    b"<a x='1' x='2'/>",
    b"\x00\x01\x02\x03",
    b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><a>&x;</a>",
    b"<a>]]></a>",
    b"\xef\xbb\xbf",
]


def test_malformed_messages_are_rejected_without_effect_on_others(spark: SparkSession) -> None:
    good = MessageGenerator(load_dtd("news"), seed=9).take(9 * len(BROKEN))
    bodies: list[bytes | str | None] = list(good)
    for place, broken in enumerate(BROKEN):
        bodies.insert(place * 10 + place % 7, broken)
    queries = QueryGenerator(load_dtd("news"), seed=4, predicates=1).take(100)
    subscriptions = {f"s{i}": query for i, query in enumerate([*queries, "//*"])}
    answers = check(spark, subscriptions, bodies)
    refused = {number: error for number, (_, error) in answers.items() if error is not None}
    assert len(refused) >= len(BROKEN) - 1  # what an external entity would say is left out, not an error
    assert {error[3] for error in refused.values()} <= set(BROKEN)
    assert all("s100" in ids for ids, error in answers.values() if error is None)
    by_body = {error[3]: error for error in refused.values()}
    assert by_body[b"<news>\n  <a></b>\n</news>"][1:3] == (2, 8)
    assert "deep" in by_body[b"<a>" * 501 + b"</a>" * 501][0]


def test_limits_are_those_given(spark: SparkSession) -> None:
    bodies: list[bytes | str | None] = [b"<a><a/></a>", b"<a>%b</a>" % (b"x" * 100), b"<a/>"]
    rows = match(frame(spark, bodies), {"a": "//a"}, shape="messages", limits=Limits(bytes=50, depth=1))
    matcher = Matcher(limits=Limits(bytes=50, depth=1))
    matcher.add("a", "//a")
    answers = expected(matcher, bodies)
    assert [answers[number][1] is None for number in "012"] == [False, False, True]
    assert by_message(rows) == answers


def test_a_message_that_its_source_could_not_read_is_rejected_unread(spark: SparkSession) -> None:
    rows = [("1", b"<a/>", None), ("2", b"<a/>", "the file is gone"), ("3", None, "the file is gone")]
    messages = spark.createDataFrame(rows, "message_id string, body binary, _problem string")
    matched = match(messages, {"a": "/a"}, shape="messages")
    assert matched.columns == ["message_id", "subscriptions", "error", "undecided"]
    assert by_message(matched) == {
        "1": (["a"], None),
        "2": ([], ("the file is gone", None, None, b"<a/>")),
        "3": ([], ("the file is gone", None, None, None)),
    }


# -- how subscriptions are given -------------------------------------------------------------------------

_PAIRS = [("one", "/a"), ("two", "//b[@x = 1]"), ("three", "count(//b) > 1")]
_GIVEN: dict[str, Callable[[SparkSession], Any]] = {
    "mapping": lambda spark: dict(_PAIRS),
    "pairs": lambda spark: list(_PAIRS),
    "iterator": lambda spark: iter(_PAIRS),
    "frame": lambda spark: spark.createDataFrame(_PAIRS, "id string, query string").coalesce(1),
    "frame with more columns": lambda spark: spark.createDataFrame(
        [(False, query, id) for id, query in _PAIRS], "active boolean, query string, id string"
    ).coalesce(1),
}


@pytest.mark.parametrize("given", _GIVEN)
def test_subscriptions_may_be_given_as(spark: SparkSession, given: str) -> None:
    bodies = [b"<a><b x='1'/><b/></a>", b"<a><b x='2'/></a>", b"<c/>"]
    rows = match(frame(spark, bodies), _GIVEN[given](spark), shape="messages")
    assert {id: ids for id, (ids, _) in by_message(rows).items()} == {
        "0": ["one", "three", "two"],
        "1": ["one"],
        "2": [],
    }


def test_ids_that_are_numbers_stay_numbers_and_others_become_strings(spark: SparkSession) -> None:
    messages = frame(spark, [b"<a/>"])
    subscriptions = spark.createDataFrame([(7, "/a"), (10, "/b")], "id int, query string")
    assert match(messages, subscriptions).collect() == [delivery("0", 7)]
    assert match(messages, {-(1 << 63): "/a"}).collect() == [delivery("0", -(1 << 63))]
    assert match(messages, {1 << 63: "/a"}).collect() == [delivery("0", str(1 << 63))]
    mixed: list[tuple[str | int, str]] = [(1, "/a"), ("one", "/a")]
    assert [row["subscription"] for row in match(messages, mixed).collect()] == ["1", "one"]
    matcher = Matcher()
    matcher.add(("tuple", 1), "/a")
    assert match(frame(spark, [b"<a/>"]), matcher).collect() == [delivery("0", "('tuple', 1)")]


def test_a_matcher_may_change_after_it_was_given(spark: SparkSession) -> None:
    matcher = Matcher()
    matcher.add("before", "/a")
    rows = match(frame(spark, [b"<a/>"]), matcher)
    matcher.remove("before")
    matcher.add("after", "/a")
    assert [row["subscription"] for row in rows.collect()] == ["before"]
    assert [row["subscription"] for row in match(frame(spark, [b"<a/>"]), matcher).collect()] == ["after"]


def test_ids_may_be_any_strings(spark: SparkSession) -> None:
    ids = [
        "",
        " ",
        "a b",
        "\t\n",
        "ü€𝄞",
        "'\"`\\",
        "x" * 100_000,
        "null",
        "None",
        "%00",
        "a,b;c",
        "e\u0301",
        "é",
    ]
    rows = match(frame(spark, [b"<a/>"]), [(id, "/a") for id in ids])
    assert sorted(row["subscription"] for row in rows.collect()) == sorted(ids)


# -- few and many ----------------------------------------------------------------------------------------


def test_without_subscriptions_nothing_matches(spark: SparkSession) -> None:
    bodies: list[bytes | str | None] = [b"<a/>", b"<broken"]
    answers = check(spark, {}, bodies)
    assert answers["0"] == ([], None)
    assert answers["1"][1] is not None


def test_without_messages_there_are_no_rows(spark: SparkSession) -> None:
    none = spark.createDataFrame([], "message_id string, body binary, n int")
    assert match(none, {"a": "/a"}).collect() == []
    assert match(none, {"a": "/a"}, shape="messages").collect() == []
    assert match(none, {"a": "/a"}).columns == ["message_id", "n", "subscription", "body"]


def test_partitions_may_be_empty(spark: SparkSession) -> None:
    messages = frame(spark, [b"<a/>", b"<b/>"], partitions=7)
    assert match(messages, {"a": "/a"}).collect() == [delivery("0", "a")]


def test_a_message_may_match_tens_of_thousands(spark: SparkSession) -> None:
    count, copies = 60_000, 9  # more in all than one Arrow batch takes
    queries = ["//a", "/a", "//*", "/*", "//a[@x]", "//b"]
    matcher = Matcher()
    matcher.add_many((f"s{i}", queries[i % len(queries)]) for i in range(count))
    bodies = [b"<a x='1'/>", b"<c/>", b"<a/>"] * (copies // 3)
    matched = match(frame(spark, bodies, partitions=1), matcher, shape="messages").cache()
    rows = matched.select("message_id", F.size("subscriptions").alias("n")).collect()
    sizes = [50_000, 20_000, 40_000]
    assert {row["message_id"]: row["n"] for row in rows} == {str(i): sizes[i % 3] for i in range(copies)}
    first = matched.filter("message_id = '0'").first()
    assert first is not None
    assert sorted(first["subscriptions"]) == sorted(str(id) for id in matcher.match(bodies[0]))
    assert matched.selectExpr("explode(subscriptions) s").distinct().count() == 50_000
    matched.unpersist()


def test_more_messages_than_an_arrow_batch_takes(spark: SparkSession) -> None:
    messages = spark.range(2_500, numPartitions=1).selectExpr(
        "cast(id as string) message_id", "concat('<a n=\"', id, '\"/>') body"
    )
    rows = match(messages, {"some": "/a[@n >= 2490]", "one": "/a[@n = 999]"}).collect()
    found = sorted((row["subscription"], int(row["message_id"])) for row in rows)
    assert found == [("one", 999), *(("some", n) for n in range(2_490, 2_500))]


# -- other columns ---------------------------------------------------------------------------------------

_TIME = datetime(2024, 2, 29, 12, 30, 15, 123456)
_SCHEMA = """message_id long not null, t timestamp, body binary, n int, d decimal(20, 5), day date,
    ok boolean, s struct<a: string, b: array<int>>, m map<string, double>, `a.b` string, `odd ``name` string,
    local timestamp_ntz, raw binary, big bigint, _x string"""


def test_all_other_columns_are_kept(spark: SparkSession) -> None:
    full = (
        1, _TIME, b"<a/>", 7, Decimal("12345.67891"), _TIME.date(), True, ("x", [1, None, 3]), {"k": 0.5},
        "dotted", "odd", _TIME, b"\x00\xff", 1 << 60, "under",
    )  # fmt: skip
    null = (2, None, b"<a/>", *(None for _ in full[3:]))
    refused = (3, _TIME, b"<", *full[3:])
    messages = spark.createDataFrame([full, null, refused], _SCHEMA)
    for shape, added in (
        ("messages", ["subscriptions", "error", "undecided"]),
        ("pairs", ["subscription", "body"]),
    ):
        rows = match(messages, {"s": "/a"}, shape=shape)  # type: ignore[arg-type]
        kept = [field for field in messages.schema.fields if field.name != "body"]
        assert rows.schema.fields[: len(kept)] == kept
        assert rows.columns[len(kept) :] == added
        values = {row["message_id"]: tuple(row)[: len(kept)] for row in rows.collect()}
        wanted = {row["message_id"]: tuple(row) for row in messages.drop("body").collect()}
        if shape == "pairs":
            del wanted[3]
        assert values == wanted
    first = match(messages, {"s": "/a"}).filter("message_id = 1").selectExpr("cast(t as string) t").first()
    assert first is not None
    assert first["t"] == str(_TIME.replace(tzinfo=UTC))[:26]


def test_the_same_messages_twice_are_two_messages(spark: SparkSession) -> None:
    messages = frame(spark, [b"<a/>"])
    assert match(messages.union(messages), {"s": "/a"}).count() == 2


# -- what is wrong ---------------------------------------------------------------------------------------


def test_a_bad_query_names_its_subscription(spark: SparkSession) -> None:
    subscriptions = spark.createDataFrame([("good", "/a"), ("bad one", "/a[")], "id string, query string")
    for given in (subscriptions, {"good": "/a", "bad one": "/a["}):
        with pytest.raises(QueryError) as caught:
            match(frame(spark, [b"<a/>"]), given)
        assert "in the query of subscription 'bad one'" in caught.value.__notes__


def test_an_id_that_comes_twice_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="'a' is subscribed already"):
        match(frame(spark, [b"<a/>"]), [("a", "/a"), ("a", "/b")])


@pytest.mark.parametrize("row", [(None, "/a"), ("a", None)])
def test_null_is_neither_an_id_nor_a_query(spark: SparkSession, row: tuple[str | None, str | None]) -> None:
    subscriptions = spark.createDataFrame([row], "id string, query string")
    with pytest.raises(ValueError, match="neither 'id' nor 'query' of a subscription may be null"):
        match(frame(spark, [b"<a/>"]), subscriptions)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id string, body binary", "messages need a column 'message_id'; there are id, body"),
        ("message_id string, text string", "messages need a column 'body'; there are message_id, text"),
        ("message_id string, body int", "the column 'body' must be binary or string, not int"),
        ("message_id string, body binary, subscription string", "must not have a column 'subscription'"),
        ("message_id string, body binary, bodies string", "must not have a column 'bodies'"),
        ("message_id string, body binary, error int", "must not have a column 'error'"),
        (
            "message_id string, body binary, _sapwood_matches binary",
            "must not have a column '_sapwood_matches'",
        ),
        ("message_id string, body binary, n int, n int", "messages have the column 'n' twice"),
    ],
)
def test_wrong_columns_are_named(spark: SparkSession, schema: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        match(spark.createDataFrame([], schema), {"a": "/a"})


def test_wrong_columns_of_subscriptions_are_named(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="subscriptions need a column 'query'; there are id, xpath"):
        match(frame(spark, [b"<a/>"]), spark.createDataFrame([], "id string, xpath string"))


def test_the_error_of_an_unknown_shape_lists_all_shapes(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="shape must be one of 'pairs', 'messages', not 'rows'"):
        match(frame(spark, [b"<a/>"]), {}, shape="rows")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Matcher, Broker])
def test_compiled_subscriptions_take_no_namespaces_and_limits(
    spark: SparkSession, kind: type[Matcher] | type[Broker]
) -> None:
    for more in ({"namespaces": {"p": "urn:p"}}, {"limits": Limits()}):
        with pytest.raises(ValueError, match=f"a {kind.__name__} has its namespaces and limits already"):
            match(frame(spark, [b"<a/>"]), kind(), **more)


def test_streaming_subscriptions_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.schema("id string, query string").parquet(str(tmp_path))
    with pytest.raises(ValueError, match="subscriptions must not be a streaming DataFrame"):
        match(frame(spark, [b"<a/>"]), stream)


# -- streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["pairs", "messages"])
def test_a_stream_matches_as_a_batch_does(spark: SparkSession, tmp_path: Path, shape: Any) -> None:
    bodies = [*MessageGenerator(load_dtd("news"), seed=3).take(40), b"<broken", None]
    stored = frame(spark, bodies, partitions=3)
    stored.write.parquet(str(tmp_path / "in"))
    queries = QueryGenerator(load_dtd("news"), seed=8, predicates=1).take(80)
    subscriptions = {f"s{i}": query for i, query in enumerate([*queries, "count(//*) > 30"])}
    stream = (
        spark.readStream.schema(stored.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    )
    matched = match(stream, subscriptions, shape=shape)
    assert matched.isStreaming
    query = (
        matched.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    assert len([progress for progress in query.recentProgress if progress.numInputRows]) == 3
    written = spark.read.parquet(str(tmp_path / "out"))
    batch = match(stored, subscriptions, shape=shape)
    assert written.columns == batch.columns
    assert sorted(map(repr, written.collect())) == sorted(map(repr, batch.collect()))
    assert written.count() > 40
