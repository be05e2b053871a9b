"""The relational engine on Spark gives the answers that a matcher in this process gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sapwood import Matcher, MessageError
from sapwood.relational import Plan, RelationalMatcher
from sapwood.relational.storage import table_snapshot
from sapwood.relational.storage.store_sync import read_sync_state
from sapwood.relational.storage.table_snapshot import SnapshotTable
from sapwood.spark.dataframe_match import column
from sapwood.spark.pipeline.batch import BatchProcessor, Outcome
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.spark.relational import isolated_session, spark_backend
from sapwood.spark.relational.parquet_snapshot import ParquetSnapshot
from sapwood.spark.relational.table_match import Backend, RelationalMatching, match_relational
from sapwood.store import NewSubscription
from tests.support.crashes import Crash, after
from tests.support.spark.spark_stream import Stream

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
    "made": "for $b in /a/b return <made>{$b/c}</made>",
}
MESSAGES = (
    b"<a><b>1</b></a>",
    b"<a><b x='5'>z</b><b/></a>",
    b"<a><c>9</c></a>",
    b"<a><b><c>1</c><d>2</d></b></a>",
    b"<a><b><c>1</c></b><b><d>2</d></b></a>",
    b"<a><b>never closed</a>",
    b"<z id='4'/>",
    b"<a><b>2</b><c>4</c></a>",
    b"<a><b><c><e>1</e></c><q><d/></q></b></a>",
)
NEW = (b"<a><n m='1'/><b>7</b></a>", b"<n><n><b>1</b></n></n>")
"""messages with tag paths that the others do not have"""


# -- without a pipeline ----------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [Plan.SHARED, Plan.BUCKETS])
def test_chains_on_spark_give_the_matchers_answers(
    spark: SparkSession, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_snapshot, "_RULES_PER_PARTITION", 10)
    queries = {f"above {i}": f"/a[c = 4]/b > {i}" for i in range(-30, 30)}  # enough for buckets
    matcher = Matcher()
    matcher.add_many(queries.items())
    rows = [*enumerate(MESSAGES), (len(MESSAGES), None)]
    messages = spark.createDataFrame(rows, "message_id INT, body BINARY").repartition(2)
    with RelationalMatcher(plan=plan) as tables:
        tables.add_many(queries.items())
        matched = match_relational(messages, tables, shape="messages", on="spark").collect()
    assert sum(len(row["subscriptions"]) for row in matched) > 20
    answers = {row["message_id"]: (row["subscriptions"], row["error"]) for row in matched}
    assert len(answers) == len(matched) == len(rows)
    for number, body in rows:
        subscriptions, error = answers[number]
        if body is None:
            assert (subscriptions, error["reason"]) == ([], "the message is null")
            continue
        try:
            assert sorted(subscriptions) == sorted(map(str, matcher.match(body)))
            assert error is None
        except MessageError as refused:
            where = (error["reason"], error["line"], error["column"], bytes(error["body"]))
            assert where == (refused.reason, refused.line, refused.column, body)
            assert subscriptions == []


@pytest.mark.parametrize("on", ["duckdb", "spark"])
def test_columns_of_messages_are_passed(spark: SparkSession, on: Backend) -> None:
    """Whatever they are called, and of any type; also if there are residual checks, which need the body."""
    columns = {
        "message_id": "INT",
        "msg": "STRING",
        "tag": "STRING",
        "_0": "STRUCT<a: INT NOT NULL, `b.c`: ARRAY<TIMESTAMP>>",
        "a.b": "MAP<STRING, DECIMAL(9, 2)>",
        "value_count": "INT",
        "Msg": "DATE",
    }
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        given = spark.createDataFrame(
            [
                (1, "m", None, (7, [datetime(2024, 2, 29, 12)]), {"x": Decimal("1.25")}, 3, date(2024, 1, 1)),
                (2, None, "t", None, None, None, None),
            ],
            schema,
        ).withColumn("body", F.lit("<a><b>1</b></a>"))
        for queries, found in ((("/a[b = 1]",), ["0"]), (("/a[b = 1]", "/a[not(c)]"), ["0", "1"])):
            with RelationalMatcher() as tables:
                tables.add_many((str(number), query) for number, query in enumerate(queries))
                matched = match_relational(given, tables, shape="messages", on=on)
                assert [sorted(row["subscriptions"]) for row in matched.collect()] == [found, found]
            own = matched.select(*(column(name) for name in columns)).orderBy("message_id")
            assert own.collect() == given.drop("body").orderBy("message_id").collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_batch_with_too_many_rows_to_broadcast(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark refuses any broadcast here, as it does those of a batch that is too large for one statement."""
    monkeypatch.setitem(isolated_session._SETTINGS, "spark.sql.maxBroadcastTableSize", "1b")
    monkeypatch.setitem(isolated_session._SETTINGS, "spark.sql.autoBroadcastJoinThreshold", "-1")
    monkeypatch.setattr(spark_backend, "_MAX_BROADCAST_ROWS", -1)
    messages = spark.createDataFrame([(1, b"<a><b>7</b><c/></a>")], "message_id INT, body BINARY")
    with RelationalMatcher(plan=Plan.UNROLLED) as tables, caplog.at_level("INFO"):
        tables.add_many((str(i), f"/a[b = {i}]/c") for i in range(20))
        [row] = match_relational(messages, tables, on="spark").collect()
    assert row["subscription"] == "7"
    assert "too many rows to broadcast: batches of" in caplog.text


def test_one_message_reads_few_files(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_snapshot, "_RULES_PER_PARTITION", 10)
    read: dict[str, list[int]] = {}
    read_table = ParquetSnapshot.read_table

    def recorded(
        self: ParquetSnapshot,
        session: SparkSession,
        table: SnapshotTable,
        partitions: Iterable[int] | None = None,
    ) -> DataFrame:
        found = read_table(self, session, table, partitions)
        read.setdefault(table.name, []).append(len(found.inputFiles()))
        return found

    monkeypatch.setattr(ParquetSnapshot, "read_table", recorded)
    messages = spark.createDataFrame([(1, b"<a><b>7</b><c/></a>")], "message_id INT, body BINARY")
    with RelationalMatcher(plan=Plan.UNROLLED) as tables:
        tables.add_many((str(i), f"/a[b = {i}]/c") for i in range(200))
        [row] = match_relational(messages, tables, on="spark").collect()
    assert row["subscription"] == "7"
    assert {name: counts[0] for name, counts in read.items()} == {
        **dict.fromkeys(("fact", "rule", "predicate", "fact_chain", "unrolled"), 17),
        **dict.fromkeys(("query", "bound_chain", "subscription"), 1),
    }
    # those that have the values of a message, and those without any
    assert {name: counts[1] for name, counts in read.items() if len(counts) > 1} == {
        "fact": 2,  # b as a number: nothing else is asked for
        "unrolled": 4,  # b, c, and what holds of every message
        "fact_chain": 4,
        "predicate": 2,
    }


def test_a_snapshot_is_used_again_unless_it_lacks_columns(tmp_path: Path) -> None:
    def update() -> str:
        connection = tables.connection
        try:
            return ParquetSnapshot(tables, str(tmp_path)).update(connection, Plan.UNROLLED)
        finally:
            connection.close()

    with RelationalMatcher(plan=Plan.UNROLLED) as tables:
        tables.add("1", "/a[b = 1]")
        first = update()
        assert update() == first
        marks = tmp_path / first / "marks"
        marks.write_text(marks.read_text().replace(', "layout": 2', ""))  # as earlier versions wrote it
        assert update() != first
        assert not (tmp_path / first).exists()


def test_invalid_arguments_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with RelationalMatcher() as tables:
        with pytest.raises(ValueError, match="on must be one of 'duckdb', 'spark', not 'sparc'"):
            RelationalMatching(tables, "sparc", str(tmp_path))  # type: ignore[arg-type]
        stream = spark.readStream.format("rate").load()
        with pytest.raises(ValueError, match="must not be a streaming DataFrame"):
            match_relational(stream, tables)
        with pytest.raises(ValueError, match="messages need a column 'body'; there are message_id"):
            match_relational(spark.createDataFrame([("1",)], "message_id STRING"), tables)


# -- a pipeline ------------------------------------------------------------------------------------------


def streaming(folder: Path, on: str) -> Stream:
    """A pipeline with the relational engine, its subscriptions and a first file of messages."""
    stream = Stream(folder)
    text = stream.settings.read_text()
    plan = 'plan = "unrolled"'  # what others need more steps for
    stream.settings.write_text(f'engine = "relational"\n{text}\n[relational]\non = "{on}"\n{plan}\n')
    with stream.store() as store:
        store.import_many(NewSubscription(id, query) for id, query in QUERIES.items())
    stream.publish_these(MESSAGES)
    return stream


def change(stream: Stream) -> None:
    """Some go, some come, and some have another query: a new one, one that others have, or no filter."""
    with stream.store() as store:
        store.remove("range", "deep")
        store.replace("both", "/a[b = '1']")
        store.replace("starts", "/a[n/@m = 1 and b > 5]")
        store.replace("absent", "for $c in /a/c return <c/>")
        store.replace("made", "/a[not(c)]")
        store.add("new", "//n[b or .//b[not(c)]]")


def run(spark: SparkSession, stream: Stream, on_batch: Callable[[Outcome], None] | None = None) -> Pipeline:
    pipeline = Pipeline(spark, read_config(stream.settings), on_batch)
    pipeline.run()
    return pipeline


def test_a_pipeline_with_spark_sql(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_snapshot, "_RULES_PER_PARTITION", 2)
    stream = streaming(tmp_path / "stream", "spark")
    stream.publish_these(MESSAGES + NEW)
    pipeline = run(spark, stream, lambda outcome: change(stream) if outcome.batch == 0 else None)
    assert [outcome.subscriptions for outcome in pipeline.outcomes()] == [14, 13]
    stream.assert_exact(spark)


def test_a_pipeline_with_duckdb_that_crashes(tmp_path: Path, spark: SparkSession) -> None:
    stream = streaming(tmp_path / "stream", "duckdb")
    with after(BatchProcessor, "process", lambda *arguments: arguments[3], 0), pytest.raises(Crash):
        run(spark, stream)
    change(stream)  # which the first batch must not see
    stream.publish_these(MESSAGES + NEW)
    pipeline = run(spark, stream)
    assert [outcome.subscriptions for outcome in pipeline.outcomes()] == [14, 13]
    stream.assert_exact(spark)
    assert version_of_tables(stream) == pipeline.outcomes()[-1].version


def version_of_tables(stream: Stream) -> int | None:
    with RelationalMatcher(stream.folder / "checkpoint" / "relational.duckdb") as tables:
        return read_sync_state(tables).version
