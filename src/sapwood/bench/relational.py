"""`sapwood bench relational`: all experiments with subscriptions in tables, one after another.

    report = run(Options(quick=True), console)

They are those of Tian et al. (SIGMOD 2004), whose figures stand beside ours, and comparisons with the
automaton and with Spark SQL. Every measurement is made in a process of its own, by the clock on the wall.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from sapwood.bench import (
    relational_crossing,
    relational_growth,
    relational_observations,
    relational_spark,
    relational_stocks,
    session,
)
from sapwood.bench.relational_setting import FULL, QUICK, RelationalScale, RelationalSetting
from sapwood.bench.report import Report
from sapwood.bench.setting import Experiment

Options = session.Options[RelationalScale]

EXPERIMENTS: tuple[Experiment[RelationalSetting], ...] = (
    *relational_stocks.EXPERIMENTS,
    *relational_growth.EXPERIMENTS,
    *relational_observations.EXPERIMENTS,
    *relational_crossing.EXPERIMENTS,
    *relational_spark.EXPERIMENTS,
)


def run(options: Options, console: Console | None = None) -> Report:
    """Measures, and writes the results; BenchError, before that, if the options cannot be met."""
    experiments = session.chosen(EXPERIMENTS, options.only)
    scale = options.scale or (QUICK if options.quick else FULL)
    report = Report("subscriptions in tables, as in Tian et al. (2004)", options.quick)
    with TemporaryDirectory(prefix="sapwood-bench-", ignore_cleanup_errors=True) as folder:
        setting = RelationalSetting(report, scale is FULL, scale, Path(folder))
        return session.run("relational", experiments, lambda: setting, report, options, console)
