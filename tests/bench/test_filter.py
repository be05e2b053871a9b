"""The whole benchmark, at sizes that take no time: what it reports and writes, and how it ends."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sapwood.bench import filter as bench
from sapwood.bench.filter import EXPERIMENTS, GROUPS, Options, run
from sapwood.bench.report import Report, Role
from sapwood.bench.setting import Experiment, Setting
from sapwood.bench.sources import BenchError
from tests.bench.support import TINY, assert_written, nitf_folder, shown

CHARTS = {
    "recursion",
    "queries",
    "depth",
    "wildcards",
    "descendants",
    "nesting",
    "inserts",
    "predicates",
    "ranges",
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    out = tmp_path_factory.mktemp("bench") / "deep" / "out"
    return run(Options(scale=TINY, out=out), Console(file=StringIO())), out


def test_every_figure_is_measured(everything: tuple[Report, Path]) -> None:
    figures = everything[0].figures
    measures = [figure.measure for figure in figures]
    assert measures.count("warm") == 5  # few, many, with duplicates, with predicates, nested
    assert measures.count("loading") == 2
    assert measures.count("loading, garbage collector off") == 2
    assert gc.isenabled()
    for measure in ("first pass", "churn, an add and a remove per message", "resident memory, warm"):
        assert measures.count(measure) == 1
    assert measures.count("recursion, degree") == 4
    assert all(figure.value > 0 for figure in figures if figure.measure != "recursion, degree")


def test_bars_are_not_judged_on_generated_workloads(everything: tuple[Report, Path]) -> None:
    figures = everything[0].figures
    assert any(figure.bar is not None for figure in figures)
    assert all(figure.met is None for figure in figures)
    assert everything[0].missed == []


def test_every_chart_has_its_curves(everything: tuple[Report, Path]) -> None:
    charts = {chart.name: chart for chart in everything[0].charts}
    assert set(charts) == CHARTS
    for chart in charts.values():
        for series in chart.series:
            assert series.points, f"{chart.name}: {series.label}"
            assert all(point.y > 0 for point in series.points)
        if chart.name != "recursion":
            assert Role.BASELINE in [series.role for series in chart.series]
    assert [point.x for point in charts["depth"].series[0].points] == [6, 7]
    assert Role.TWIN in [series.role for series in charts["predicates"].series]


def test_files_are_written(everything: tuple[Report, Path]) -> None:
    report, out = everything
    assert_written(out, "filter", set(CHARTS), report)


def test_tables_show_everything(everything: tuple[Report, Path]) -> None:
    text = shown(everything[0])
    for chart in everything[0].charts:
        assert chart.x_label in text  # one has brackets, which rich would take for marks
    assert "for reference" in text


def test_a_folder_of_published_workloads(tmp_path: Path) -> None:
    folder = nitf_folder(tmp_path)
    report = run(Options(nitf=folder, scale=TINY, out=None, only=["paths", "growth-queries"]))
    assert report.workload == "published NITF workload"
    assert {figure.workload for figure in report.figures} >= {"10 distinct paths", "60 distinct paths"}
    assert [chart.name for chart in report.charts] == ["queries"]


def test_only_and_groups() -> None:
    assert [e.name for e in bench.chosen(["memory", "paths"])] == ["paths", "memory"]
    assert [e.name for e in bench.chosen(["growth"])] == list(GROUPS["growth"])
    assert bench.chosen([]) == list(EXPERIMENTS)
    with pytest.raises(BenchError, match="no experiment speed: choose from bars, growth, paths"):
        bench.chosen(["paths", "speed"])


def test_ctrl_c_keeps_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(setting: Setting) -> Iterator[str]:
        yield "first half"
        setting.figure("warm", "half of it", 2.0, "× raw parsing", 5)
        yield "second half"
        raise KeyboardInterrupt

    _experiments(monkeypatch, interrupted)
    report = run(Options(scale=TINY, out=tmp_path))
    assert report.interrupted
    assert [figure.workload for figure in report.figures] == ["half of it"]
    written = json.loads((tmp_path / "filter.json").read_text(encoding="utf-8"))
    assert written["interrupted"]
    assert written["figures"][0]["value"] == 2.0
    assert (tmp_path / "filter-bars.png").exists()


def test_a_failure_keeps_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(setting: Setting) -> Iterator[str]:
        yield "something"
        setting.figure("warm", "before", 2.0, "× raw parsing")
        raise MemoryError

    _experiments(monkeypatch, failing)
    with pytest.raises(MemoryError):
        run(Options(scale=TINY, out=tmp_path))
    assert json.loads((tmp_path / "filter.json").read_text(encoding="utf-8"))["figures"]


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def quiet(setting: Setting) -> Iterator[str]:
        yield "counting sheep"

    _experiments(monkeypatch, quiet)
    console = Console(file=StringIO(), force_terminal=True, width=100)
    run(Options(scale=TINY, out=None), console)
    assert isinstance(console.file, StringIO)
    assert "test: counting sheep" in console.file.getvalue()


def test_an_output_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BenchError, match="cannot make the folder"):
        run(Options(scale=TINY, out=tmp_path / "file" / "out"))


def _experiments(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[Setting], Iterator[str]]) -> None:
    made = tuple(Experiment("test", "a test", step) for step in steps)
    monkeypatch.setattr(bench, "EXPERIMENTS", made)
