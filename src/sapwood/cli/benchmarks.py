"""`sapwood bench` and `sapwood demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sapwood.cli.console import errors

bench = typer.Typer(help="Measure, beside baselines in the same run.", no_args_is_help=True)


@bench.command("filter")
def bench_filter(
    nitf: Annotated[Path | None, typer.Option(help="A folder with YFilter's NITF workloads.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute instead of a quarter of an hour.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="An experiment by name, or bars, or growth.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the figures and charts.")] = Path("bench-output"),
    as_json: Annotated[bool, typer.Option("--json", help="The figures on the standard output.")] = False,
) -> None:
    """Matching: speed in multiples of raw parsing, growth, churn, loading, memory, recursion.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench import filter as experiments  # here, because drawing takes a second to import
    from sapwood.bench.tables import tables

    options = experiments.Options(nitf=nitf, quick=quick, out=out, only=only or ())
    report = experiments.run(options, errors)
    if as_json:
        print(report.to_json())
    else:
        Console().print(*tables(report))
        Console().print(f"\nFigures and charts are in [bold]{out}[/].", highlight=False)
    if report.interrupted:
        raise typer.Exit(130)


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the chart.")] = Path("demo-output"),
) -> None:
    """Make up news messages and subscriptions, match them, and show a table and a chart."""
    from sapwood.demo import run  # here, because drawing takes a second to import

    run(Console(), out)
