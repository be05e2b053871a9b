"""The runner of a suite: options, choice of experiments, progress, and the files with the results.

Results are written to `Options.out` when all is done, when the user presses Ctrl-C, or when an experiment
fails: everything measured until then is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sapwood.bench.harness.benchmark_report import BenchmarkReport
from sapwood.bench.harness.datasets import open_dataset
from sapwood.bench.harness.experiments import INSTALL_HINT, Bench, BenchError, Experiment, ScaleName
from sapwood.bench.harness.machine_info import describe_machine


@dataclass(frozen=True)
class Options:
    """The choice of experiments, their scale, and the folder for the results."""

    nitf: Path | None = None
    """a folder with the published NITF workload; without it, workloads are generated"""
    quick: bool = False
    """measure at the quick scale, where the bars are for reference only"""
    out: Path | None = Path("bench-output")
    """the folder for the figures and the charts, made if needed; None writes nothing"""
    only: Sequence[str] = ()
    """names of experiments or groups of them; none: all"""
    scale: ScaleName | None = None
    """a scale by name, which overrides `quick`"""


@dataclass(frozen=True)
class Suite:
    """The experiments of one subject, by the modules that declare them."""

    name: str
    modules: tuple[str, ...]
    workload: str = ""
    """a description; without it, that of the dataset"""
    published: bool = False
    """True if the bars are promises about the published workload only"""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """modules that a name stands for"""

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """All experiments in their usual order."""
        return tuple(experiment for module in self.modules for experiment in self._experiments_of(module))

    def choose(self, only: Sequence[str]) -> list[Experiment]:
        """Return the experiments of those names, in their usual order; BenchError lists the known names."""
        members = {
            group: {experiment.name for module in modules for experiment in self._experiments_of(module)}
            for group, modules in self.groups.items()
        }
        known = [experiment.name for experiment in self.experiments]
        unknown = [name for name in only if name not in known and name not in members]
        if unknown:
            raise BenchError(
                f"there is no experiment {', '.join(unknown)}: choose from {', '.join([*members, *known])}"
            )
        wanted = {name for chosen in only for name in members.get(chosen, {chosen})} or set(known)
        return [experiment for experiment in self.experiments if experiment.name in wanted]

    def scale(self, options: Options) -> ScaleName:
        """Return the name of the scale that the options ask for."""
        if options.scale is not None:
            return options.scale
        if options.quick:
            return "quick"
        return "generated" if self.published and options.nitf is None else "full"

    def _experiments_of(self, module: str) -> list[Experiment]:
        declared = vars(import_module(f"sapwood.bench.{self.name}.{module}"))
        return [each for each in declared.values() if isinstance(each, Experiment)]


def run_suite(suite: Suite, options: Options, console: Console | None = None) -> BenchmarkReport:
    """Measure, and write the results, however the measurement ends.

    Progress is shown if the console is a terminal. BenchError, before anything is measured, if the options
    cannot be met. Ctrl-C ends the run and marks the report as interrupted.
    """
    console = console or Console(stderr=True)
    experiments = suite.choose(options.only)
    dataset = open_dataset(options.nitf)
    described = (
        [suite.workload] if suite.workload and options.nitf is None else [suite.workload, dataset.label]
    )
    report = BenchmarkReport("; ".join(filter(None, described)), options.quick, describe_machine())
    if options.out is not None:
        _make_folder(options.out)
    start = perf_counter()
    try:
        with TemporaryDirectory(prefix="sapwood-bench-", ignore_cleanup_errors=True) as folder:
            _measure(experiments, Bench(report, suite.scale(options), dataset, Path(folder)), console)
    except KeyboardInterrupt:
        report.interrupted = True
    finally:
        report.seconds = round(perf_counter() - start, 1)
        if options.out is not None:
            write_results(report, options.out, suite.name, console)
    return report


def write_results(report: BenchmarkReport, folder: Path, name: str, console: Console) -> None:
    """Write the JSON and the charts; without matplotlib, say what charts need."""
    (folder / f"{name}.json").write_text(report.to_json() + "\n", encoding="utf-8")
    if find_spec("matplotlib") is None:
        console.print(
            f"Charts need matplotlib: {INSTALL_HINT}", highlight=False, markup=False, soft_wrap=True
        )
        return
    from sapwood.bench.harness.plots import write_charts

    write_charts(report, folder, name)


def _measure(experiments: Sequence[Experiment], bench: Bench, console: Console) -> None:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    # Drawn only once a second, in order not to disturb the measurement.
    with Progress(
        *columns, console=console, transient=True, refresh_per_second=1, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("preparing", total=len(experiments))
        for experiment in experiments:
            progress.update(task, description=experiment.name)
            for step in experiment.run(bench):
                progress.update(task, description=f"{experiment.name}: {step}")
            progress.advance(task)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"cannot make the folder {folder}: {error.strerror}") from error
