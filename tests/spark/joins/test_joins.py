"""Joins on Spark deliver the same as a broker in one process, with any change between two batches."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sapwood.config_file import ConfigError
from sapwood.spark import match
from sapwood.spark.distribution.match_worker import MatchPartition
from sapwood.spark.joins.segment_catalog import SegmentCatalog
from sapwood.spark.pipeline.batch import BatchProcessor, Outcome
from sapwood.spark.pipeline.batch_log import BatchLog, CheckpointError
from sapwood.spark.pipeline.config import parse_config, read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.crashes import Crash, after
from tests.support.spark.spark_joins import (
    PUBLISHING,
    START,
    DeliveryRow,
    JoinedStreams,
    has_feedback,
    random_subscriptions,
)

PAIR = "S//a->x[.//b->p] JOIN{p = q, 5 s} T//*->z[.//b->q]"
THREE = f"{PAIR} JOIN{{q = r, 1 s}} S//*->y[.//b->r]"
FIVE = PUBLISHING["five"].replace("2 s", "1 s")


def run(
    spark: SparkSession, streams: JoinedStreams, on_batch: Callable[[Outcome], None] | None = None
) -> Pipeline:
    pipeline = Pipeline(spark, read_config(streams.settings), on_batch)
    pipeline.run()
    return pipeline


# -- what is delivered ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_subscriptions_change_and_unused_state_is_evicted(
    tmp_path: Path,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partitions: list[MatchPartition] = []

    def record(*arguments: Any) -> MatchPartition:
        partitions.append(MatchPartition(*arguments))
        return partitions[-1]

    monkeypatch.setattr("sapwood.spark.dataframe_match.MatchPartition", record)
    streams = JoinedStreams(tmp_path / "joined", lateness=2)
    streams.subscribe({"pair": PAIR, "gone": PAIR, "back": PAIR, "filter": "//b", "chain": FIVE})

    def change(outcome: Outcome) -> None:
        with streams.store() as store:
            if outcome.batch == 0:
                store.add("new", PAIR.replace("5 s", "6 s"))
                store.add("same as new", PAIR.replace("5 s", "6 s"))
                store.remove("gone")
                store.replace("pair", PAIR, subscriber="somebody")  # which is no other query
            elif outcome.batch == 1:
                store.add("three", THREE)
                store.remove("back")
                store.add("back", PAIR)
                store.replace("new", "T//a->x")
                store.replace("filter", PAIR)
                store.add("feeds", f"{PAIR} PUBLISH P")
                store.add("feeds back", "P//*->x[.//b->p] JOIN{p = q, 5 s} T//*->z[.//b->q] PUBLISH S")

    for at in (0, 3, 6, 1_000, 2_000):
        streams.publish(START + at, 9, spread=4)
    with caplog.at_level(logging.ERROR, "sapwood"):
        pipeline = run(spark, streams, change)
    assert "subscription feeds back is left out: a cycle of streams: 'P' → 'S' → 'P'" in caplog.text
    delivered = streams.assert_exact(spark, {"feeds back"})
    assert partitions and all(each.matches is not None for each in partitions)  # extraction has matched them
    outcomes = pipeline.outcomes()
    assert [outcome.batch for outcome in outcomes if not outcome.left_out] == [0, 1]
    assert {tuple(outcome.left_out) for outcome in outcomes[2:]} == {("feeds back",)}

    # four messages of a chain meet the fifth when time has gone on by far, which is then evicted
    assert any(t.subscription == "chain" and files_of(t) & {"1", "2"} for t in delivered)
    assert 0 < (outcomes[-1].kept or 0) < max(outcome.kept or 0 for outcome in outcomes)

    def over_files(id: str, batch: int) -> bool:
        """Whether messages of several files have met in a batch."""
        return any((t.subscription, t.batch) == (id, batch) and len(files_of(t)) == 2 for t in delivered)

    assert over_files("pair", 1)  # though somebody else has subscribed by now
    assert not over_files("new", 1) and not over_files("back", 2) and not over_files("filter", 2)
    assert over_files("pair", 2) and over_files("same as new", 2)
    assert {t.batch for t in delivered if t.subscription == "gone"} == {0}
    assert any(t.subscription == "three" for t in delivered)


def files_of(row: DeliveryRow) -> set[str]:
    """The numbers of the files that the messages are from."""
    return {name[:3].lstrip("0")[:1] for name in row.messages or ()}


# -- wherever it ends and goes on ----------------------------------------------------------------------------

STEPS: dict[str, Callable[[int], Any]] = {
    "served, and no more": lambda n: after(BatchProcessor, "process", lambda *arguments: arguments[3], n),
    "in the message log, and no more": lambda n: after(
        SegmentCatalog, "commit", lambda batch, *arguments: batch, n
    ),
    "on record, but not noted by Spark": lambda n: after(BatchLog, "commit", lambda batch, outcome: batch, n),
}


def test_a_crash_at_every_step_of_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    streams = JoinedStreams(tmp_path / "joined", lateness=1)
    subscriptions = random_subscriptions(Random(5), 50) | PUBLISHING
    streams.subscribe(subscriptions)
    to_go = [id for id in subscriptions if id.startswith("q") and not has_feedback(subscriptions[id])]
    for number in range(len(STEPS) + 1):
        streams.publish(START + 7 * number, 8)
    for batch, crash in enumerate(STEPS.values()):
        with crash(batch), pytest.raises(Crash):
            run(spark, streams)
        with streams.store() as store:  # a batch that is served again must not see this
            store.add(f"new-{batch}", PAIR)
            store.remove(to_go[batch])
    outcomes = run(spark, streams).outcomes()
    delivered = streams.assert_exact(spark)
    assert len(set(streams.versions().values())) == len(STEPS) + 1
    assert [outcome.batch for outcome in outcomes] == list(range(len(outcomes)))
    assert len(outcomes) > len(STEPS) + 1  # and some more for what goes on
    assert not any((tmp_path / "joined/checkpoint/sapwood/feedback").glob(f"{len(STEPS)}/*"))  # which is done
    published = {row.message for row in delivered if "(" in row.message}
    assert any("#2" in name for name in published)
    assert sum(outcome.messages for outcome in outcomes) >= 64 + len(published)
    assert sum(outcome.deliveries for outcome in outcomes) == sum(delivered.values())
    assert sum(outcome.rejects for outcome in outcomes) == len(streams.too_late()) > 0
    assert outcomes[-1].kept is not None and outcomes[-1].kept > 64
    check_variety(subscriptions, delivered)


def check_variety(subscriptions: dict[str, str], delivered: Counter[DeliveryRow]) -> None:
    kinds = Counter(len(row.messages or ()) for row in delivered)
    # filters and so on, single blocks, pairs, chains
    assert kinds[0] > 60 and kinds[1] > 60 and kinds[2] > 200 and kinds[3] > 50 and kinds[5] > 10, kinds
    assert set(PUBLISHING) <= {row.subscription for row in delivered}
    pairs = [row for row in delivered if len(row.messages or ()) == 2 and row.subscription in subscriptions]
    assert {row.batch for row in pairs} >= set(range(len(STEPS) + 1))
    texts = [subscriptions[row.subscription].upper() for row in pairs]
    for part in ("JOIN", "FOLLOWED", "INF", "SELECT", "!=", "<"):
        assert any(part in text for text in texts), part


# -- what cannot be ------------------------------------------------------------------------------------------


def refused(spark: SparkSession, streams: JoinedStreams) -> str:
    with pytest.raises(ConfigError) as caught:
        Pipeline(spark, read_config(streams.settings))
    return str(caught.value)


def test_a_pipeline_stays_as_it_began(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    streams = JoinedStreams(tmp_path / "joined")
    Pipeline(spark, read_config(streams.settings))
    BatchLog(spark, str(tmp_path / "joined/checkpoint/sapwood")).commit_join_layout({"buckets": 4})
    with pytest.raises(CheckpointError) as caught:  # a checkpoint from before there were numbers
        Pipeline(spark, read_config(streams.settings))
    assert "has the state of joins in format 1, and this version of Sapwood reads format 3." in str(
        caught.value
    )
    assert "set run.checkpoint to a new folder" in str(caught.value)
    assert "the state is built again from the messages that they still have" in str(caught.value)

    # one without joins goes on without, whoever subscribes
    streams = JoinedStreams(tmp_path / "plain")
    with_joins = streams.settings.read_text()
    streams.settings.write_text(with_joins[: with_joins.index("[joins]")])
    streams.subscribe({"filter": "//b"})
    streams.publish(START, 3)
    run(spark, streams)
    streams.subscribe({"pair": PAIR})
    streams.publish(START + 5, 3)
    with caplog.at_level(logging.ERROR, "sapwood"):
        outcomes = run(spark, streams).outcomes()
    assert "subscription pair is left out: it joins messages, and this pipeline does not" in caplog.text
    assert [list(outcome.left_out) for outcome in outcomes] == [[], ["pair"]]
    assert [outcome.subscriptions for outcome in outcomes] == [1, 1]
    streams.settings.write_text(with_joins)
    assert "this pipeline started without joins" in refused(spark, streams)


def test_settings_that_do_not_go_with_joins(tmp_path: Path, spark: SparkSession) -> None:
    streams = JoinedStreams(tmp_path / "joined")
    streams.subscribe({"pair": PAIR})
    text = streams.settings.read_text()
    text = text[: text.index("[joins]")]
    streams.settings.write_text(text.replace('"available-now"', '"batch"'))
    message = refused(spark, streams)
    assert message == (
        "some subscriptions join messages. 'run.trigger': joins need a stream;"
        " 'available-now' ends after the available messages"
    )
    streams.settings.write_text(
        text.replace('path = "deliveries"', 'path = "deliveries"\nshape = "messages"')
    )
    assert "'deliveries.shape': joins need 'pairs'" in refused(spark, streams)
    streams.settings.write_text(text.replace('"/*/@t"', '"count(//a)"'))
    assert refused(spark, streams).startswith("source #1.time: a time is read from a path")


def test_joins_are_not_for_a_dataframe(spark: SparkSession) -> None:
    messages = spark.createDataFrame([("1", "<a/>")], "message_id STRING, body STRING")
    with pytest.raises(ValueError, match="only a pipeline has them"):
        match(messages, {"pair": PAIR})


# -- settings ------------------------------------------------------------------------------------------------


def given(**changed: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "source": [{"path": "a", "stream": "a"}, {"path": "b", "stream": "b"}],
        "subscriptions": {"file": "queries"},
        "deliveries": {"path": "deliveries"},
        "rejects": {"path": "rejects"},
        "run": {"checkpoint": "checkpoint"},
        "joins": {"lateness": "10 min"},
    }
    return content | changed


def test_several_sources_and_lengths_of_time() -> None:
    checked = parse_config(given())
    assert [source.stream for source in checked.sources] == ["a", "b"]
    assert checked.joins is not None and checked.joins.lateness_seconds == 600
    assert checked.source is checked.sources[0]
    for text, length in {"0 s": 0, "90 s": 90, "1.5 h": 5400, "250 ms": 0.25}.items():
        joins = parse_config(given(joins={"lateness": text})).joins
        assert joins is not None and joins.lateness_seconds == length


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": []}, "'source' is empty"),
        ({"source": [{"path": "a"}, {"path": "b", "stream": "b"}]}, "source #1: 'stream' is missing"),
        (
            {"source": [{"path": "a", "stream": "a"}, {"path": "b", "stream": "a"}]},
            "source #2: 'stream' is 'a', which is also that of source #1",
        ),
        (
            {"source": [{"path": "a", "stream": "a"}, {"pth": "b", "stream": "b"}]},
            "source #2.pth: there is no such key; did you mean 'path'?",
        ),
        (
            {"source": {"path": "a", "steam": "a"}},
            "source.steam: there is no such key; did you mean 'stream'?",
        ),
        ({"joins": {"lateness": "10"}}, "joins.lateness: '10' has no unit; write 10 s, or"),
        (
            {"joins": {"lateness": "10 m"}},
            "joins.lateness: '10 m': there is no unit 'm'; write min for minutes",
        ),
        (
            {"joins": {"lateness": "0 m"}},
            "joins.lateness: '0 m': there is no unit 'm'; write min for minutes",
        ),
        ({"joins": {"lateness": "INF"}}, "joins.lateness: a duration such as '10 min' or '0 s' is expected"),
        ({"joins": {"lateness": "1 h 5 min"}}, "joins.lateness: a duration such as"),
        ({"joins": {"latenes": "1 h"}}, "joins.latenes: there is no such key; did you mean 'lateness'?"),
        ({"joins": {"buckets": 0}}, "joins.buckets: Input should be greater than 0"),
        ({"joins": {"wait_for": "godot"}}, "joins.wait_for: Input should be 'slowest' or 'fastest'"),
        ({"run": {"checkpoint": "c", "trigger": "batch"}}, "'run.trigger': joins need a stream"),
        ({"deliveries": {"path": "d", "shape": "messages"}}, "'deliveries.shape': joins need 'pairs'"),
    ],
)
def test_a_key_that_is_wrong(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(given(**changed))
    assert message in str(caught.value)
