"""`sapwood bench filter`: all experiments of matching, one after another.

report = run(Options(nitf=Path("…/nitf")), console)
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from sapwood.bench import bars, growth, recursion, session, values
from sapwood.bench.report import Report
from sapwood.bench.scale import FULL, GENERATED, QUICK, Scale
from sapwood.bench.setting import Experiment, Setting
from sapwood.bench.sources import source

Options = session.Options[Scale]

_BARS = (*bars.EXPERIMENTS, *recursion.EXPERIMENTS)
_GROWTH = (*growth.EXPERIMENTS, *values.EXPERIMENTS)
EXPERIMENTS: tuple[Experiment[Setting], ...] = _BARS + _GROWTH
GROUPS = {
    "bars": tuple(experiment.name for experiment in _BARS),
    "growth": tuple(experiment.name for experiment in _GROWTH),
}
"""names that stand for several experiments"""


def chosen(only: Sequence[str]) -> list[Experiment[Setting]]:
    """The experiments of those names, in their usual order; BenchError names the known ones."""
    return session.chosen(EXPERIMENTS, only, GROUPS)


def run(options: Options, console: Console | None = None) -> Report:
    """Measures, and writes the results; BenchError, before that, if the options cannot be met."""
    experiments = chosen(options.only)
    workload = source(options.nitf)
    scale = options.scale or (QUICK if options.quick else FULL if options.nitf else GENERATED)
    report = Report(workload.label, options.quick)
    setting = Setting(report, scale is FULL and options.nitf is not None, workload, scale)
    return session.run("filter", experiments, lambda: setting, report, options, console)
