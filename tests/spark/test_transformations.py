"""Transformations on Spark give the same results as a broker in this process."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from sapwood import Broker, Limits, Matcher, MessageError, QueryError
from sapwood.spark import match
from sapwood.spark.distribution import match_worker
from sapwood.spark.distribution.index_snapshot import BrokerSnapshots
from sapwood.workload import MessageGenerator, QueryGenerator, TransformationGenerator, load_dtd
from tests.spark.distribution.test_index_snapshot import Context
from tests.spark.test_matching import BROKEN, frame
from tests.support.generators import transform_strategies
from tests.support.oracles import lxml_oracle
from tests.support.spark.spark_stream import delivered_by

Body = bytes | str | None
Triple = tuple[str, str, str | None]
"""message, subscription, and what was made, or None for a filter"""
COPY = "for $a in /* return <made>{$a}</made>"


def expected(broker: Broker, bodies: Iterable[Body]) -> tuple[Counter[Triple], dict[str, str]]:
    """Every delivery, and why other messages are refused."""
    delivered: Counter[Triple] = Counter()
    refused: dict[str, str] = {}
    for number, body in enumerate(bodies):
        if body is None:
            refused[str(number)] = "the message is null"
            continue
        try:
            delivered.update((str(number), id, made) for id, made in delivered_by(broker, body))
        except MessageError as error:
            refused[str(number)] = error.reason
    return delivered, refused


def in_pairs(rows: DataFrame) -> Counter[Triple]:
    assert rows.columns == ["message_id", "subscription", "body"]
    return Counter((row[0], row[1], row[2]) for row in rows.collect())


def in_messages(rows: DataFrame) -> tuple[Counter[Triple], dict[str, str]]:
    assert rows.columns == ["message_id", "subscriptions", "bodies", "error", "undecided"]
    delivered: Counter[Triple] = Counter()
    refused: dict[str, str] = {}
    for row in rows.collect():
        both = zip(row["subscriptions"], row["bodies"], strict=True)
        delivered.update((row["message_id"], id, body) for id, body in both)
        if row["error"] is not None:
            refused[row["message_id"]] = row["error"]["reason"]
    return delivered, refused


def population(rng: random.Random, filters: int = 120, transformations: int = 120) -> dict[str, str]:
    """Queries from both languages, among them such as lxml evaluates."""
    queries = [lxml_oracle.random_query(rng, native=i % 4 > 0) for i in range(filters)]
    queries += [
        transform_strategies.random_query(rng, beyond=i % 4 == 0).sapwood for i in range(transformations)
    ]
    rng.shuffle(queries)
    return {f"s{i}": query for i, query in enumerate(queries)}


def messages(rng: random.Random, count: int) -> list[Body]:
    return [transform_strategies.random_document(rng).encode() for _ in range(count)]


def compiled(subscriptions: dict[str, str]) -> Broker:
    broker = Broker(transform_strategies.NAMESPACES)
    broker.subscribe_many(subscriptions.items())
    return broker


# -- batches and streams ---------------------------------------------------------------------------------


def test_both_kinds_deliver_as_in_one_process(spark: SparkSession) -> None:
    rng = random.Random(24)
    subscriptions, bodies = population(rng), messages(rng, 80)
    broker = compiled(subscriptions)
    answers = expected(broker, bodies)
    made = Counter(body is not None for _, _, body in answers[0])
    assert min(made.values()) > 500
    sent = frame(spark, bodies)
    assert in_messages(match(sent, broker, shape="messages")) == answers
    pairs = match(sent, subscriptions, namespaces=transform_strategies.NAMESPACES)
    assert in_pairs(pairs) == answers[0]


@pytest.mark.parametrize("shape", ["pairs", "messages"])
def test_a_stream_delivers_as_one_process_does(spark: SparkSession, tmp_path: Path, shape: Any) -> None:
    rng = random.Random(25)
    broker, bodies = compiled(population(rng)), [*messages(rng, 30), b"<broken", None]
    stored = frame(spark, bodies)
    stored.write.parquet(str(tmp_path / "in"))
    stream = (
        spark.readStream.schema(stored.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    )
    writer = match(stream, broker, shape=shape).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert writer.start(str(tmp_path / "out")).awaitTermination(120)
    written = spark.read.parquet(str(tmp_path / "out"))
    delivered, refused = expected(broker, bodies)
    if shape == "pairs":
        assert in_pairs(written) == delivered
    else:
        assert in_messages(written) == (delivered, refused)


def test_acceptance_24_on_spark(spark: SparkSession) -> None:
    book = load_dtd("book")
    queries = TransformationGenerator(book, seed=24).take(10_000)
    generated = MessageGenerator(book, seed=24, max_depth=5, max_repeats=2, values=10)
    bodies: list[Body] = [*generated.take(200)]
    assert len(set(queries)) == 10_000
    broker = compiled({f"q{i}": query for i, query in enumerate(queries)})
    delivered, refused = expected(broker, bodies)
    assert not refused
    assert len(delivered) > 10_000
    assert in_pairs(match(frame(spark, bodies), broker)) == delivered


# -- neighbours ------------------------------------------------------------------------------------------


def test_a_malformed_message_does_not_affect_others(spark: SparkSession) -> None:
    news = load_dtd("news")
    bodies: list[Body] = [*MessageGenerator(news, seed=9, max_depth=5).take(3 * len(BROKEN))]
    for place, broken in enumerate(BROKEN):
        bodies.insert(place * 4 + place % 3, broken)
    queries = [*QueryGenerator(news, seed=4).take(40), *TransformationGenerator(news, seed=4).take(40), COPY]
    broker = compiled({f"s{i}": query for i, query in enumerate(queries)})
    delivered, refused = expected(broker, bodies)
    assert len(refused) >= len(BROKEN) - 1
    copied = {message for message, id, _ in delivered if id == "s80"}
    assert copied == {str(number) for number in range(len(bodies))} - refused.keys()
    assert in_messages(match(frame(spark, bodies), broker, shape="messages")) == (delivered, refused)
    assert in_pairs(match(frame(spark, bodies), broker)) == delivered


def test_limits_hold_for_transformations_alone(spark: SparkSession) -> None:
    bodies = [b"<a><a/></a>", b"<a/>"]
    rows = match(frame(spark, bodies), {"copy": COPY}, limits=Limits(depth=1))
    assert in_pairs(rows) == {("1", "copy", "<made><a/></made>"): 1}


def test_a_bad_transformation_names_its_subscription(spark: SparkSession) -> None:
    with pytest.raises(QueryError) as caught:
        match(frame(spark, [b"<a/>"]), {"good": COPY, "bad": "for $a in //a return <made>"})
    assert "in the query of subscription 'bad'" in caught.value.__notes__


# -- what is in a row ------------------------------------------------------------------------------------


def test_bodies_are_there_only_if_there_are_transformations(spark: SparkSession) -> None:
    sent = frame(spark, [b"<a>\xc3\xa4</a>", "<b/>".encode("utf-16")])
    filters = match(sent, {"a": "/a"}, shape="messages")
    assert filters.columns == ["message_id", "subscriptions", "error", "undecided"]
    both = match(sent, {"a": "/a", "copy": COPY}, shape="messages")
    assert in_messages(both)[0] == {
        ("0", "a", None): 1,
        ("0", "copy", "<made><a>ä</a></made>"): 1,
        ("1", "copy", "<made><b/></made>"): 1,
    }
    for subscriptions in ({"a": "/a"}, {"copy": COPY}):
        assert match(sent, subscriptions).dtypes[-1] == ("body", "string")


def test_a_transformation_that_makes_nothing_of_a_message_has_no_row(spark: SparkSession) -> None:
    empty = "for $a in /a return $a/text()"  # but one that makes an empty text of it has
    rows = match(frame(spark, [b"<a/>", b"<b/>"]), {"empty": empty, "none": "for $c in //c return <c/>"})
    assert in_pairs(rows) == {("0", "empty", ""): 1}


def test_ids_of_both_kinds_may_be_numbers(spark: SparkSession) -> None:
    rows = match(frame(spark, [b"<a/>"]), {7: "/a", 8: COPY, 9: COPY})
    assert sorted(map(tuple, rows.collect())) == [
        ("0", 7, None),
        ("0", 8, "<made><a/></made>"),
        ("0", 9, "<made><a/></made>"),
    ]
    mixed: list[tuple[str | int, str]] = [(7, "/a"), ("x", COPY)]
    assert {row["subscription"] for row in match(frame(spark, [b"<a/>"]), mixed).collect()} == {"7", "x"}


def test_a_matcher_stays_a_matcher(spark: SparkSession) -> None:
    matcher = Matcher()
    matcher.add("a", "/a")
    assert in_pairs(match(frame(spark, [b"<a/>"]), matcher)) == {("0", "a", None): 1}
    matcher.add("b", "/a")
    assert list(matcher.match("<a/>")) == ["a", "b"]


# -- Arrow batches ---------------------------------------------------------------------------------------


@pytest.fixture
def collected() -> Iterator[None]:
    """Workers freeze what they have unpacked; here it is to be collected."""
    yield
    gc.unfreeze()


def answered(subscriptions: dict[str, str], bodies: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The rows of each Arrow batch that a worker makes of one batch of messages."""
    snapshot = BrokerSnapshots(compiled(subscriptions)).issue(cast(SparkContext, Context()))
    batch = pa.RecordBatch.from_pydict({"n": list(range(len(bodies))), "body": list(bodies)})
    return [part.to_pylist() for part in match_worker.MatchPartition(snapshot, "body", None)(iter([batch]))]


def test_batches_end_at_so_many_bytes(collected: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_worker, "BYTES_PER_BATCH", 100)
    bodies = ["<a/>", "<a>%s</a>" % ("x" * 90), "<b/>", "<a>", "<a>y</a>"]
    subscriptions = {"a": "/a", "copy": COPY, "again": COPY}
    parts = answered(subscriptions, bodies)
    assert [[row["n"] for row in part] for part in parts] == [[0, 1], [2, 3, 4]]
    broker = compiled(subscriptions)
    for row in (row for part in parts for row in part):
        if row["error"] is None:
            made = dict(zip(row["subscriptions"], row["bodies"], strict=True))
            assert made == dict(delivered_by(broker, bodies[row["n"]]))


def test_a_message_of_which_too_much_is_made_is_refused(
    collected: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(match_worker, "BYTES_PER_MESSAGE", 100)
    bodies = ["<a/>", "<a>%s</a>" % ("x" * 90), "<a>y</a>"]
    ((first, large, last),) = answered({"a": "/a", "copy": COPY}, bodies)
    assert large["error"]["reason"] == "transformations make more than 100 bytes of it"
    assert large["error"]["body"] == bodies[1].encode()
    assert (large["subscriptions"], large["bodies"]) == ([], [])
    assert first["bodies"] == [None, "<made><a/></made>"]
    assert last["bodies"] == [None, "<made><a>y</a></made>"]
