"""`sapwood bench join`: all experiments with joins of messages, one after another.

    report = run(Options(quick=True), console)

Workloads are generated, in the shape of those of Hong et al. (SIGMOD 2007), whose figures are lost: what the
text says of them stands beside ours.
"""

from __future__ import annotations

from rich.console import Console

from sapwood.bench import join_feed, join_pairs, join_spark, session
from sapwood.bench.join_setting import FULL, QUICK, JoinScale, JoinSetting
from sapwood.bench.report import Report
from sapwood.bench.setting import Experiment

Options = session.Options[JoinScale]

EXPERIMENTS: tuple[Experiment[JoinSetting], ...] = (
    *join_pairs.EXPERIMENTS,
    *join_feed.EXPERIMENTS,
    *join_spark.EXPERIMENTS,
)


def run(options: Options, console: Console | None = None) -> Report:
    """Measures, and writes the results; BenchError, before that, if the options cannot be met."""
    experiments = session.chosen(EXPERIMENTS, options.only)
    scale = options.scale or (QUICK if options.quick else FULL)
    report = Report("joins of generated messages, as in Hong et al. (2007)", options.quick)
    setting = JoinSetting(report, scale is FULL, scale)
    return session.run("join", experiments, lambda: setting, report, options, console)
