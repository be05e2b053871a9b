"""`sapwood bench filter`: all experiments of matching, one after another.

    report = run(Options(nitf=Path("…/nitf")), console)

Results are written to `Options.out` as soon as all is done, or the user has had enough (Ctrl-C), or something
failed: what was measured until then is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sapwood.bench import bars, charts, growth, recursion, values
from sapwood.bench.report import Report
from sapwood.bench.scale import FULL, GENERATED, QUICK, Scale
from sapwood.bench.setting import Experiment, Setting
from sapwood.bench.sources import BenchError, source

_BARS = (*bars.EXPERIMENTS, *recursion.EXPERIMENTS)
_GROWTH = (*growth.EXPERIMENTS, *values.EXPERIMENTS)
EXPERIMENTS: tuple[Experiment, ...] = _BARS + _GROWTH
GROUPS = {
    "bars": tuple(experiment.name for experiment in _BARS),
    "growth": tuple(experiment.name for experiment in _GROWTH),
}
"""names that stand for several experiments"""


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure, how thoroughly, and where to leave it."""

    nitf: Path | None = None
    """a folder with the published NITF workload; without it, workloads are generated"""
    quick: bool = False
    """a minute instead of a quarter of an hour; the bars are then for reference only"""
    out: Path | None = Path("bench-output")
    """the folder for filter.json and the charts, made if need be; None writes nothing"""
    only: Sequence[str] = ()
    """names of experiments or groups; none: all"""
    scale: Scale | None = None
    """sizes, if neither of the usual ones will do"""


def chosen(only: Sequence[str]) -> list[Experiment]:
    """The experiments of those names, in their usual order; BenchError names the known ones."""
    known = [experiment.name for experiment in EXPERIMENTS]
    unknown = [name for name in only if name not in known and name not in GROUPS]
    if unknown:
        raise BenchError(
            f"there is no experiment {', '.join(unknown)}: choose from {', '.join([*GROUPS, *known])}"
        )
    wanted = {name for chosen in only for name in GROUPS.get(chosen, (chosen,))} or set(known)
    return [experiment for experiment in EXPERIMENTS if experiment.name in wanted]


def run(options: Options, console: Console | None = None) -> Report:
    """Measures, and writes the results; progress is shown if the console is a terminal.

    BenchError, before anything is measured, if the options cannot be met. A report that the
    user cut short says so (`Report.interrupted`).
    """
    experiments = chosen(options.only)
    workload = source(options.nitf)
    if options.out is not None:
        _make_folder(options.out)
    scale = options.scale or (QUICK if options.quick else FULL if options.nitf else GENERATED)
    report = Report(workload.label, options.quick)
    setting = Setting(workload, scale, report, judged=scale is FULL and options.nitf is not None)
    start = perf_counter()
    try:
        _measure(experiments, setting, console or Console(stderr=True))
    except KeyboardInterrupt:
        report.interrupted = True
    finally:
        report.seconds = round(perf_counter() - start, 1)
        if options.out is not None:
            write(report, options.out)
    return report


def write(report: Report, folder: Path) -> list[Path]:
    """Writes the JSON and the charts; returns the files."""
    figures = folder / "filter.json"
    figures.write_text(report.to_json() + "\n", encoding="utf-8")
    return [figures, *charts.write(report, folder)]


def _measure(experiments: Sequence[Experiment], setting: Setting, console: Console) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    # Drawn once a second only, so as not to disturb what is measured.
    with Progress(
        *columns, console=console, transient=True, refresh_per_second=1, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=len(experiments))
        for experiment in experiments:
            for step in experiment.steps(setting):
                progress.update(task, description=f"{experiment.name}: {step}")
            progress.advance(task)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"cannot make the folder {folder}: {error.strerror}") from error
