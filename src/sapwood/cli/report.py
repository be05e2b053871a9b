"""`sapwood report`: what a pipeline did, as a web page, at any time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli.common.console import errors
from sapwood.cli.run import check_report, require_spark


def report(
    pipeline: Annotated[Path, typer.Argument(help="The TOML file of the pipeline.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where the page goes.")
    ] = Path("report.html"),
) -> None:
    """Write a page with charts of what a pipeline did, from its checkpoint, while it runs or after.

    It tells throughput and latency, deliveries by subscription and subscriber, subscriptions that never
    matched, what is slow, and what was refused and why. Spark is not started.
    """
    with require_spark("sapwood report"):
        from sapwood.spark.monitoring.report import write_report
        from sapwood.spark.monitoring.report_data import read_checkpoint
        from sapwood.spark.pipeline.config import read_config
    settings = read_config(pipeline)
    check_report(output, "--output")
    data = read_checkpoint(settings)
    write_report(output, settings.name, data)
    count = "1 batch" if len(data.outcomes) == 1 else f"{len(data.outcomes):,} batches"
    errors.print(f"a report on {count} is in {output}", soft_wrap=True, markup=False)
