"""`sapwood bench transform`: all experiments with for-where-return queries, one after another.

    report = run(Options(nitf=Path("…/nitf")), console)

Workloads are generated, as in the thesis; the published NITF messages, if given, decide what a message costs.
"""

from __future__ import annotations

from rich.console import Console

from sapwood.bench import session, transform_bars, transform_plans
from sapwood.bench.report import Report
from sapwood.bench.setting import Experiment
from sapwood.bench.sources import source
from sapwood.bench.transform_setting import FULL, QUICK, TransformScale, TransformSetting

Options = session.Options[TransformScale]

EXPERIMENTS: tuple[Experiment[TransformSetting], ...] = (
    *transform_bars.EXPERIMENTS,
    *transform_plans.EXPERIMENTS,
)


def run(options: Options, console: Console | None = None) -> Report:
    """Measures, and writes the results; BenchError, before that, if the options cannot be met."""
    experiments = session.chosen(EXPERIMENTS, options.only)
    nitf = None if options.nitf is None else source(options.nitf)
    scale = options.scale or (QUICK if options.quick else FULL)
    label = "generated from the DTDs 'book' and 'bibliography'"
    report = Report(label if nitf is None else f"{label}; {nitf.label}", options.quick)
    setting = TransformSetting(report, scale is FULL, scale, nitf)
    return session.run("transform", experiments, lambda: setting, report, options, console)
