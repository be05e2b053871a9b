"""The demo: a pipeline from beginning to end, small here."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from sapwood import demo
from sapwood.demo.verification import find_differences
from sapwood.store import SubscriptionStore


def test_the_demo_delivers_changes_checks_and_reports(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "mine.txt").write_text("not the demo's")
    (tmp_path / "rejects").mkdir()
    (tmp_path / "rejects" / "of last time").write_text("")
    console = Console(record=True, width=120)
    assert demo.run(console, tmp_path, demo.Size(files=24, messages=4, subscriptions=300, sample=20)) == 0
    text = console.export_text()
    assert "Generated 96 messages in 24 files and 300 subscriptions." in text
    assert "20 subscriptions added, 20 replaced, 10 removed; the next batch uses version 3" in text
    assert "versions 1 to 5" in text
    assert "messages are exactly those of a broker in one process" in text
    assert text.index("takes one to two minutes") < text.index("Generated")
    speed = re.search(
        r"Without Spark: (\d+) messages × (\d+) filters in one process: ([\d,]+) messages", text
    )
    assert speed is not None
    assert speed[2] == "285"  # the others are transformations
    assert int(speed[3].replace(",", "")) > 0
    report = (tmp_path / "report.html").read_text("utf-8")
    assert "mismatched tag" in report
    assert "string-length" in report
    assert (tmp_path / "mine.txt").exists()
    assert not (tmp_path / "rejects" / "of last time").exists()
    _notices_a_wrong_delivery(tmp_path)


def _notices_a_wrong_delivery(out: Path) -> None:
    with SubscriptionStore(str(out / "subscriptions.db")) as store:
        assert find_differences(out, store, 20, 1, 5)[1] == []
        for file in (out / "deliveries/batch=0").glob("*.parquet"):
            file.unlink()
        assert find_differences(out, store, 20, 1, 5)[1] != []
