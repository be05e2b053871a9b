"""`sapwood bench spark` measures what it says, small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sapwood.bench.report import Figure
from sapwood.bench.sources import BenchError
from sapwood.bench.spark import EXPERIMENTS, Options, Sizes, run
from sapwood.spark.spark_session import JavaError, check_java

_TINY = Sizes(
    messages=40,
    queries=200,
    rounds=1,
    compared_queries=5,
    compared_messages=10,
    batches=4,
    churning=50,
    changes=2,
)


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    try:
        check_java()
    except JavaError as error:
        pytest.skip(str(error))


def test_figures_are_measured_and_written(tmp_path: Path) -> None:
    report = run(Options(out=tmp_path, scale=_TINY, only=("loading", "xpath_boolean")))
    loading, compared = report.figures
    assert loading.value > 0
    assert compared.value > 0
    assert compared.details["same_answers"] == "yes"
    assert not report.missed  # nothing is promised of so little
    written = json.loads((tmp_path / "spark.json").read_text())
    assert [figure["measure"] for figure in written["figures"]] == [loading.measure, compared.measure]


def test_an_unknown_experiment_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BenchError, match=", ".join(e.name for e in EXPERIMENTS)):
        run(Options(only=("speed",), out=None))


def test_a_bar_may_ask_for_more_instead_of_less() -> None:
    assert Figure("", "", 2.0, "times", 1.6, judged=True, at_least=True).met is True
    assert Figure("", "", 1.5, "times", 1.6, judged=True, at_least=True).met is False
    assert Figure("", "", 1.5, "times", 1.6, judged=True).met is True
