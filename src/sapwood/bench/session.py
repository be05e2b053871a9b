"""What every bench does around its experiments: the options, the choice, progress, and what is left behind.

Results are written to `Options.out` as soon as all is done, or the user has had enough (Ctrl-C), or something
failed: what was measured until then is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Generic, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sapwood.bench import charts
from sapwood.bench.report import Report
from sapwood.bench.setting import Experiment
from sapwood.bench.sources import BenchError

AnyScale = TypeVar("AnyScale")
AnySetting = TypeVar("AnySetting")


@dataclass(frozen=True)
class Options(Generic[AnyScale]):
    """What to measure, how thoroughly, and where to leave it."""

    nitf: Path | None = None
    """a folder with the published NITF workload; without it, workloads are generated"""
    quick: bool = False
    """a minute instead of a quarter of an hour; the bars are then for reference only"""
    out: Path | None = Path("bench-output")
    """the folder for the figures and the charts, made if need be; None writes nothing"""
    only: Sequence[str] = ()
    """names of experiments or groups of them; none: all"""
    scale: AnyScale | None = None
    """sizes, if neither of the usual ones will do"""


def chosen(
    experiments: Sequence[Experiment[AnySetting]],
    only: Sequence[str],
    groups: Mapping[str, Sequence[str]] | None = None,
) -> list[Experiment[AnySetting]]:
    """The experiments of those names, in their usual order; BenchError names the known ones."""
    groups = groups or {}
    known = [experiment.name for experiment in experiments]
    unknown = [name for name in only if name not in known and name not in groups]
    if unknown:
        raise BenchError(
            f"there is no experiment {', '.join(unknown)}: choose from {', '.join([*groups, *known])}"
        )
    wanted = {name for chosen in only for name in groups.get(chosen, (chosen,))} or set(known)
    return [experiment for experiment in experiments if experiment.name in wanted]


def run(
    name: str,
    experiments: Sequence[Experiment[AnySetting]],
    prepare: Callable[[], AnySetting],
    report: Report,
    options: Options[AnyScale],
    console: Console | None = None,
) -> Report:
    """Measures what `prepare` sets up, and writes the results, whatever ends it.

    Progress is shown if the console is a terminal. BenchError, before anything is measured, if the folder
    cannot be made. A report that the user cut short says so (`Report.interrupted`).
    """
    if options.out is not None:
        _make_folder(options.out)
    start = perf_counter()
    try:
        _measure(experiments, prepare, console or Console(stderr=True))
    except KeyboardInterrupt:
        report.interrupted = True
    finally:
        report.seconds = round(perf_counter() - start, 1)
        if options.out is not None:
            write(report, options.out, name)
    return report


def write(report: Report, folder: Path, name: str) -> list[Path]:
    """Writes the JSON and the charts; returns the files."""
    figures = folder / f"{name}.json"
    figures.write_text(report.to_json() + "\n", encoding="utf-8")
    return [figures, *charts.write(report, folder, name)]


def _measure(
    experiments: Sequence[Experiment[AnySetting]], prepare: Callable[[], AnySetting], console: Console
) -> None:
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
        task = progress.add_task("preparing", total=len(experiments))
        setting = prepare()
        for experiment in experiments:
            for step in experiment.steps(setting):
                progress.update(task, description=f"{experiment.name}: {step}")
            progress.advance(task)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"cannot make the folder {folder}: {error.strerror}") from error
