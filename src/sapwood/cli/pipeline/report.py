"""`sapwood report`: the report on a pipeline, from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli.common.console import errors
from sapwood.cli.common.extras import require_extra
from sapwood.cli.pipeline.run import check_report


def report(
    pipeline: Annotated[Path, typer.Argument(help="The TOML file of the pipeline.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="The file of the report.")
    ] = Path("report.html"),
) -> None:
    """Write a report with charts on a pipeline, from its checkpoint, while it runs or afterwards.

    It shows throughput and latency, deliveries by subscription and subscriber, subscriptions that never
    matched, slow subscriptions, and rejects with their reasons. Spark is not started.
    """
    with require_extra("spark", "sapwood report"):
        from sapwood.spark.monitoring.report import write_report
        from sapwood.spark.monitoring.report_data import read_checkpoint
        from sapwood.spark.pipeline.config import read_config
    config = read_config(pipeline)
    check_report(output, "--output")
    data = read_checkpoint(config)
    write_report(output, config.name, data)
    count = "1 batch" if len(data.outcomes) == 1 else f"{len(data.outcomes):,} batches"
    errors.print(f"a report on {count} is in {output}", soft_wrap=True, markup=False)
