"""`sapwood bench` and `sapwood demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sapwood.cli.common.console import errors
from sapwood.cli.common.relational_options import duckdb_needed
from sapwood.cli.common.run_log import log_to_file, report_errors
from sapwood.cli.run import require_spark

if TYPE_CHECKING:
    from sapwood.bench.report import Report

NitfOption = Annotated[Path | None, typer.Option(help="A folder with YFilter's NITF workloads.")]
OutOption = Annotated[Path, typer.Option(help="The folder for the figures and charts.")]
JsonOption = Annotated[bool, typer.Option("--json", help="The figures on the standard output.")]
OUT = Path("bench-output")

bench = typer.Typer(help="Measure, beside baselines in the same run.", no_args_is_help=True)


@bench.command("filter")
def bench_filter(
    nitf: NitfOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute instead of a quarter of an hour.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="An experiment by name, or bars, or growth.")] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """Matching: speed in multiples of raw parsing, growth, churn, loading, memory, recursion.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench import filter as experiments  # here, because drawing takes a second to import

    options = experiments.Options(nitf=nitf, quick=quick, out=out, only=only or ())
    _show(experiments.run(options, errors), out, as_json)


@bench.command("transform")
def bench_transform(
    nitf: NitfOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute instead of ten.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="sharing, cost, adding, approaches, operators, predicates-and-returns, recursive, "
            "descendant or growth."
        ),
    ] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """For-where-return queries: one network against a plan for each query, costs, changes, growth.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench import transform as experiments

    options = experiments.Options(nitf=nitf, quick=quick, out=out, only=only or ())
    _show(experiments.run(options, errors), out, as_json)


@bench.command("join")
def bench_join(
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute or two instead of a quarter of an hour.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="flat, levels, leaves, equalities, flat-skew, levels-skew, feed, feed-ways or feed-spark."
        ),
    ] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """Joins of messages: all queries at once against one at a time, and feeds of which nothing is forgotten.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench import join as experiments

    options = experiments.Options(quick=quick, out=out, only=only or ())
    _show(experiments.run(options, errors), out, as_json)


@bench.command("relational")
def bench_relational(
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes instead of an hour.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="stocks, growth, large, observations, crossing or spark."),
    ] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """Subscriptions in tables: three plans, growth, memory, and against the automaton and Spark SQL.

    Ctrl-C ends it and keeps what is measured.
    """
    with duckdb_needed("sapwood bench relational"):
        from sapwood.bench import relational as experiments
    options = experiments.Options(quick=quick, out=out, only=only or ())
    _show(experiments.run(options, errors), out, as_json)


@bench.command("spark")
def bench_spark(
    nitf: NitfOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small, for a first look.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="loading, throughput, xpath_boolean or memory.")
    ] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """The pipeline: against the matcher alone, against Spark's xpath_boolean, and its memory over time."""
    with require_spark("sapwood bench spark"):
        from sapwood.bench import spark as experiments
    options = experiments.Options(nitf=nitf, quick=quick, out=out, only=only or ())
    _show(experiments.run(options, errors), out, as_json)


def _show(report: Report, out: Path, as_json: bool) -> None:
    """The figures, as tables or JSON."""
    from sapwood.bench.tables import tables

    if as_json:
        print(report.to_json())
    else:
        Console().print(*tables(report))
        Console().print(f"\nFigures and charts are in [bold]{out}[/].", highlight=False)
    if report.interrupted:
        raise typer.Exit(130)


def demo(
    out: Annotated[Path, typer.Option(help="The folder for all that it makes.")] = Path("demo-output"),
) -> None:
    """Run a whole pipeline on made-up news: 10,000 subscriptions that change meanwhile; about a minute."""
    with require_spark("sapwood demo"):
        from sapwood.demo import run
    log = out / "spark.log"
    with log_to_file(log), report_errors(log):
        code = run(Console(), out)
    raise typer.Exit(code)
