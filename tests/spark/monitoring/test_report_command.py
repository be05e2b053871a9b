"""`sapwood report` makes a page from a checkpoint, whatever the pipeline is doing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from sapwood.cli import main
from sapwood.spark.io.file_system import remove_file
from sapwood.spark.monitoring.delivery_counts import MatchedSubscriptions, most_frequent
from sapwood.spark.monitoring.report_data import read_checkpoint
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.store import NewSubscription, SubscriptionStore
from tests.support.spark.outcomes import outcome

PIPELINE = """
name = "reported"
[source]
path = "inbox"
stream = "S"
files_per_batch = 1
[subscriptions]
store = "subscriptions.db"
[deliveries]
path = "deliveries"
[rejects]
path = "rejects"
[joins]
buckets = 1
[run]
checkpoint = "checkpoint"
partitions = 1
"""


def make(folder: Path) -> None:
    (folder / "inbox").mkdir()
    (folder / "pipeline.toml").write_text(PIPELINE)
    rows = [
        NewSubscription("all", "/a", "desk"),
        NewSubscription("ones", "//b[. = 1]", "reader"),
        NewSubscription("later", "//c", "reader"),
        NewSubscription("never", "//none"),
        NewSubscription("off", "//none", active=False),
        NewSubscription("meets", "S//a->x[.//b->p] JOIN{p = q, INF} S//a->y[.//b->q]", "joiner"),
    ]
    with SubscriptionStore(str(folder / "subscriptions.db")) as store:
        store.import_many(rows)


def put(folder: Path, name: str, *lines: str) -> None:
    path = folder / "inbox" / f"{name}.xmll"
    path.write_text("\n".join(lines))
    os.utime(path, (1_000 + int(name), 1_000 + int(name)))


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["sapwood", "report", *arguments])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_report_from_a_checkpoint_while_it_runs_and_after(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "pipeline.toml") == 2
    assert "has no batch in its log yet" in " ".join(capsys.readouterr().err.split())
    put(tmp_path, "1", "<a><b>1</b></a>", "<a>", "<a><b>3</b></a>")
    put(tmp_path, "2", "<a><b>1</b></a>", "<a><b>2</b></a>")
    settings = read_config(tmp_path / "pipeline.toml")
    seen: list[int] = []

    def while_it_runs(done: Outcome) -> None:
        seen.append(len(read_checkpoint(settings).outcomes))

    Pipeline(spark, settings, while_it_runs).run()
    assert seen == [1, 2]
    data = read_checkpoint(settings)
    assert [each.matched for each in data.outcomes] == [2, 3]
    first, second = data.outcomes
    assert first.by_subscription == {"all": 2, "ones": 1}
    assert first.by_subscriber == {"desk": 2, "reader": 1}
    meetings = second.by_subscription["meets"]
    assert second.by_subscription == {"all": 2, "meets": meetings, "ones": 1}
    assert second.by_subscriber == {"desk": 2, "joiner": meetings, "reader": 1}
    assert (first.joined, second.joined) == (0, meetings)
    assert second.deliveries == 3 + meetings
    ((id, reason),) = first.rejected
    assert id == "1.xmll@16"
    assert reason
    assert data.unmatched is not None
    assert [each.id for each in data.unmatched.some] == ["later", "never"]
    assert (data.unmatched.count, data.unmatched.since, data.pending) == (2, 0, None)

    put(tmp_path, "3", "<a><c/></a>")
    pipeline = Pipeline(spark, settings)  # which knows what has matched in the run before
    pipeline.run()
    assert pipeline.matched.ids == {"all", "ones", "later", "meets"}
    assert command(monkeypatch, "pipeline.toml", "--output", "pages/report.html") == 0
    assert "a report on 3 batches is in pages/report.html" in capsys.readouterr().err
    page = (tmp_path / "pages" / "report.html").read_text()
    for text in ("1.xmll@16", "joiner", "//none", "No message has matched these: 1 active", "joined"):
        assert text in page
    assert command(monkeypatch, "pipeline.toml", "-o", "inbox") == 2


def test_subscriptions_that_have_matched_are_kept_in_few_files(spark: SparkSession, tmp_path: Path) -> None:
    batch_log = BatchLog(spark, str(tmp_path))
    matched = batch_log.matched()
    assert (matched.ids, matched.since) == (set(), None)
    for batch in range(5, 205):
        matched.add([f"s{batch}", "again"])
        batch_log.commit_matched(batch, matched)
        matched.add([f"s{batch}"])
        batch_log.commit_matched(batch, matched)  # nothing is new
        assert batch_log.matched().ids == matched.ids if batch % 50 == 0 else True
    files = [path for path in (tmp_path / "matched").iterdir() if path.name.isdigit()]
    assert len(files) <= 64
    found = batch_log.matched()
    assert (found.ids, found.since) == (matched.ids, 5)


def test_the_log_of_a_batch_is_bounded() -> None:
    counts = {f"s{n}": n for n in range(10_000)}
    most = most_frequent(counts, 100)
    assert list(most.items())[:2] == [("s9999", 9_999), ("s9998", 9_998)]
    assert len(most) == 100
    new = MatchedSubscriptions(["a"], 3)
    new.add(["a", "b"])
    assert (new.take_new(), new.take_new()) == (["b"], [])


def test_records_of_other_versions_can_be_read() -> None:
    record = outcome(3).as_record()
    assert Outcome.from_record(json.loads(json.dumps(record)) | {"of a newer version": 1}) == outcome(3)
    for name in ("joined", "matched", "by_subscription", "by_subscriber", "rejected"):
        del record[name]
    assert Outcome.from_record(record).by_subscription == {}


def test_checkpoints_by_hadoops_names_are_found_by_arrows() -> None:
    for uri, asked in {"s3a://b/a": "s3://b/a", "s3n://b/a": "s3://b/a", "hdfs://h/a": "hdfs://h/a"}.items():
        with mock.patch("sapwood.spark.io.file_system.fs") as arrow:
            arrow.FileSystem.from_uri.return_value = mock.Mock(), "b/a"
            remove_file(uri)
        arrow.FileSystem.from_uri.assert_called_once_with(asked)
