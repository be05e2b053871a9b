"""The Spark suite measures at its smoke scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sapwood.bench.harness.runner import Options, run_suite
from sapwood.bench.suites import SPARK
from sapwood.spark.spark_session import JavaError, check_java


@pytest.fixture(scope="module")
def java() -> None:
    try:
        check_java()
    except JavaError as error:
        pytest.skip(str(error))


def test_figures_are_measured_and_written(java: None, tmp_path: Path) -> None:
    report = run_suite(SPARK, Options(out=tmp_path, scale="smoke", only=("loading", "xpath_boolean")))
    loading, compared = report.figures
    assert loading.value > 0
    assert compared.value > 0
    assert compared.details["same_answers"] == "yes"
    assert not report.missed  # nothing is promised at this scale
    written = json.loads((tmp_path / "spark.json").read_text())
    assert [figure["measure"] for figure in written["figures"]] == [loading.measure, compared.measure]


def test_bars_are_promises_about_the_published_workload(tmp_path: Path) -> None:
    assert SPARK.scale(Options()) == "generated"
    assert SPARK.scale(Options(nitf=tmp_path)) == "full"
