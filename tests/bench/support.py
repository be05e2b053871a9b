"""Runs of a whole suite at its smoke scale, checks of the results, and a folder like the published one."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sapwood.bench.harness import datasets, isolation, plots
from sapwood.bench.harness.benchmark_report import BenchmarkReport, Chart, Figure, Listing, Role
from sapwood.bench.harness.experiments import Bench, Experiment, ScaleName
from sapwood.bench.harness.runner import Options, Suite, run_suite
from sapwood.bench.harness.terminal_tables import build_tables
from sapwood.workload import load_dtd

Run = tuple[BenchmarkReport, Path]


def run_in_process(
    work: Callable[..., Iterator[Any]], args: tuple[Any, ...], options: dict[str, Any]
) -> Iterator[Any]:
    """Stand in for the process of an isolated measurement, without the time to start one."""
    return work(*args, **options)


def smoke_run(suite: Suite, out: Path, only: Sequence[str] = ()) -> Run:
    """Run the experiments of a suite in this process, all or some."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation, "_stream_process", run_in_process)
        patch.setattr(plots, "_DPI", 20)  # drawing takes most of the time
        return run_suite(suite, Options(scale="smoke", out=out, only=only), Console(file=StringIO())), out


def make_bench(folder: Path, scale: ScaleName = "smoke") -> Bench:
    """Return the context of a single experiment."""
    return Bench(BenchmarkReport("", False), scale, datasets.open_dataset(), folder)


def one_experiment_suite(steps: Callable[[Bench], Iterator[str]], monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Return a suite with one experiment, named `test`."""
    experiment = Experiment("test", "a test", steps, {})
    monkeypatch.setattr(Suite, "_experiments_of", lambda self, module: (experiment,))
    return Suite("filter", ("test",))


def find_figures(report: BenchmarkReport, measure: str) -> list[Figure]:
    return [figure for figure in report.figures if figure.measure == measure]


def find_chart(report: BenchmarkReport, name: str) -> Chart:
    return next(chart for chart in report.charts if chart.name == name)


def find_listing(report: BenchmarkReport, name: str) -> Listing:
    return next(listing for listing in report.listings if listing.name == name)


def points_by_label(chart: Chart) -> dict[str, list[float]]:
    return {series.label: [point.x for point in series.points] for series in chart.series}


def assert_filled(report: BenchmarkReport, charts: set[str], listings: set[str]) -> None:
    """Check that the charts and listings are these, and that none is empty."""
    assert {chart.name for chart in report.charts} == charts
    assert {listing.name for listing in report.listings} == listings
    for chart in report.charts:
        assert Role.SAPWOOD in [series.role for series in chart.series]
        for series in chart.series:
            assert series.points, f"{chart.name}: {series.label}"
            assert all(point.y > 0 for point in series.points)
    assert all(listing.rows for listing in report.listings)


def assert_written(out: Path, name: str, charts: set[str], report: BenchmarkReport) -> None:
    """Check that the folder has the figures, a picture of each chart, and one of all; nothing else."""
    drawn = {f"{name}-{chart}.png" for chart in charts | {"bars"}}
    assert {path.name for path in out.iterdir()} == {f"{name}.json", f"{name}.png"} | drawn
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in out.glob("*.png"))
    assert json.loads((out / f"{name}.json").read_text(encoding="utf-8")) == json.loads(report.to_json())


def print_report(report: BenchmarkReport) -> str:
    """Return what a terminal shows of a report, each chart and listing with its title, in one line."""
    console = Console(file=StringIO(), width=260)
    for table in build_tables(report):
        console.print(table)
    assert isinstance(console.file, StringIO)
    text = " ".join(console.file.getvalue().split())
    titles = [chart.title for chart in report.charts] + [listing.title for listing in report.listings]
    assert all(title in text for title in titles)
    return text


def run_command(*arguments: str, without: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run `sapwood bench`, as if some libraries were not installed."""
    missing = "".join(f"sys.modules[{name!r}] = None; " for name in without)
    code = f"import sys; {missing}from sapwood.cli import main; main()"
    wide = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    command = [sys.executable, "-c", code, "bench", *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False, env=wide)


def flatten(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def assert_helps(suite: Suite, *options: str) -> None:
    """Check that `sapwood bench NAME --help` names what can be chosen."""
    helped = run_command(suite.name, "--help")
    assert helped.returncode == 0
    assert all(option in helped.stdout for option in ("--quick", "--only", "--out", "--json", *options))
    text = flatten(helped.stdout)
    assert all(experiment.name in text for experiment in suite.experiments) or suite.groups


def nitf_folder(folder: Path) -> Path:
    """Fill a folder with all files of the published workload, from the news DTD."""
    made = datasets.GeneratedDataset(load_dtd("news"))
    (folder / datasets.MESSAGES).mkdir()
    for number, message in enumerate(made.messages(6)):
        (folder / datasets.MESSAGES / f"{number}.xml").write_bytes(message)
    counts: dict[datasets.Kind, int] = {"distinct": 60, "repeated": 80, "predicates": 30, "nested": 20}
    for kind, count in counts.items():
        with gzip.open(folder / datasets.QUERY_FILES[kind], "wt", encoding="utf-8") as file:
            file.writelines(f"{query}\n" for query in made.queries(kind, count))
    return folder
