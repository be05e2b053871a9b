"""The Spark suite measures at its smoke scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sapwood.bench.harness.runner import Options, run_suite
from sapwood.bench.suites import SPARK
from sapwood.spark.spark_session import JavaError, check_java
from tests.support.requirements import missing


@pytest.fixture(scope="module")
def java() -> None:
    try:
        check_java()
    except JavaError as error:
        pytest.skip(str(error))


@pytest.mark.long
def test_figures_are_measured_and_written(java: None, tmp_path: Path) -> None:
    only = "loading", "throughput", "xpath_boolean"
    report = run_suite(SPARK, Options(out=tmp_path, scale="smoke", only=only))
    _, numbers, counting, ids, compared = report.figures
    assert all(figure.value > 0 for figure in report.figures)
    alone = [figure.measure.partition(" alone that ")[2] for figure in (numbers, counting, ids)]
    assert alone == ["lists numbers", "counts", "lists ids"]
    assert (numbers.bar, counting.bar, ids.bar) == (0.8, 0.5, None)
    for figure in (numbers, counting, ids):
        ours, theirs = figure.details["messages_per_second"], figure.details["alone_per_second"]
        assert isinstance(ours, float) and isinstance(theirs, float)
        assert figure.value == pytest.approx(ours / theirs, rel=1e-2)
    assert compared.details["same_answers"] == "yes"
    assert not report.missed  # nothing is promised at this scale
    written = json.loads((tmp_path / "spark.json").read_text())
    assert [figure["measure"] for figure in written["figures"]] == [each.measure for each in report.figures]


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.long
def test_latency_is_measured_on_a_kafka_server(java: None, tmp_path: Path) -> None:
    report = run_suite(SPARK, Options(out=tmp_path, scale="smoke", only=("real-time",)))
    if report.skipped:
        missing(report.skipped[0])
    median, most = report.figures
    assert (median.bar, most.bar) == (50, 300)
    assert 0 < median.value <= most.value
    assert median.details["messages_lost"] == 0


def test_bars_are_promises_about_the_published_workload(tmp_path: Path) -> None:
    assert SPARK.scale(Options()) == "generated"
    assert SPARK.scale(Options(nitf=tmp_path)) == "full"
