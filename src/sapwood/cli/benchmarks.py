"""`sapwood bench` and `sapwood demo`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapwood.cli.common.console import errors
from sapwood.cli.common.extras import require_extra
from sapwood.cli.common.relational_options import require_duckdb
from sapwood.cli.common.run_log import log_to_file, report_errors

if TYPE_CHECKING:
    from sapwood.bench.harness.runner import Suite

NitfOption = Annotated[Path | None, typer.Option(help="A folder with YFilter's NITF workloads.")]
OutOption = Annotated[Path, typer.Option(help="The folder for the figures and charts.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
Only = list[str] | None
OUT = Path("bench-output")


def _quick(help: str) -> Any:
    return typer.Option("--quick", help=help)


def _only(help: str) -> Any:
    return typer.Option("--only", help=help)


bench = typer.Typer(help="Run benchmarks, with baselines measured in the same run.", no_args_is_help=True)


@bench.command("filter")
def bench_filter(
    nitf: NitfOption = None,
    quick: Annotated[bool, _quick("A few minutes instead of an hour.")] = False,
    only: Annotated[Only, _only("An experiment by name, or bars, or growth.")] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """Matching with every engine: cost in multiples of raw parsing, growth, churn, loading, memory, threads.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench.suites import FILTER  # imported here, because rich and the generators load slowly

    _run(FILTER, nitf, quick, only, out, as_json)


@bench.command("transform")
def bench_transform(
    nitf: NitfOption = None,
    quick: Annotated[bool, _quick("A minute instead of ten.")] = False,
    only: Annotated[
        Only,
        _only(
            "sharing, cost, adding, approaches, operators, recursive, predicates-and-returns, "
            "descendant or growth."
        ),
    ] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """For-where-return queries: one shared plan against a plan for each query, costs, changes, growth.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench.suites import TRANSFORM

    _run(TRANSFORM, nitf, quick, only, out, as_json)


@bench.command("join")
def bench_join(
    quick: Annotated[bool, _quick("A minute or two instead of a quarter of an hour.")] = False,
    only: Annotated[
        Only,
        _only("flat, levels, leaves, equalities, flat-skew, levels-skew, feed, feed-ways or feed-spark."),
    ] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """Joins of messages: all queries at once against one at a time, and feeds with unbounded windows.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench.suites import JOIN

    _run(JOIN, None, quick, only, out, as_json)


@bench.command("relational")
def bench_relational(
    quick: Annotated[bool, _quick("A few minutes instead of an hour.")] = False,
    only: Annotated[
        Only, _only("stocks, growth, large, observations, crossing, spark or spark-large.")
    ] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """Subscriptions in tables: three plans, growth, memory, and against the automaton and Spark SQL.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench.suites import RELATIONAL

    with require_duckdb("sapwood bench relational"):
        _run(RELATIONAL, None, quick, only, out, as_json)


@bench.command("spark")
def bench_spark(
    nitf: NitfOption = None,
    quick: Annotated[bool, _quick("Small, for a first look.")] = False,
    only: Annotated[Only, _only("loading, throughput, xpath_boolean, latency, real-time or memory.")] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """The pipeline: throughput, seconds of a batch, latency in real time, and its memory over time."""
    from sapwood.bench.suites import SPARK

    with require_extra("spark", "sapwood bench spark"):
        _run(SPARK, nitf, quick, only, out, as_json)


@bench.command("serve")
def bench_serve(
    nitf: NitfOption = None,
    quick: Annotated[bool, _quick("A minute instead of several.")] = False,
    only: Annotated[Only, _only("publish, listeners, start or restart.")] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """The service: durable publishing against one process, latency, listeners, start and restart.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench.suites import SERVE

    with require_extra("serve", "sapwood bench serve"):
        _run(SERVE, nitf, quick, only, out, as_json)


@bench.command("mesh")
def bench_mesh(
    nitf: NitfOption = None,
    quick: Annotated[bool, _quick("Some minutes instead of a quarter of an hour.")] = False,
    only: Annotated[
        Only,
        _only(
            "chain, transport, parts, confirm, import, slow, repair, hub, routing, links, table-budget, "
            "scale, format-sizes, format-processing, inner, projection, exclusiveness, hop-latency or "
            "routing-latency."
        ),
    ] = None,
    out: OutOption = OUT,
    as_json: JsonOption = False,
) -> None:
    """Brokers of a mesh on this machine: throughput, CPU of a hop, confirmation, repair, link traffic.

    It takes nats-server. Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench.suites import MESH

    with require_extra("mesh", "sapwood bench mesh"):
        _run(MESH, nitf, quick, only, out, as_json)


def _run(suite: Suite, nitf: Path | None, quick: bool, only: Only, out: Path, as_json: bool) -> None:
    """Run a suite and print its figures as tables or JSON."""
    from rich.console import Console

    from sapwood.bench.harness.runner import Options, run_suite
    from sapwood.bench.harness.terminal_tables import build_tables

    report = run_suite(suite, Options(nitf=nitf, quick=quick, out=out, only=only or ()), errors)
    for reason in report.skipped:
        errors.print(f"not measured: {reason}", highlight=False, markup=False, soft_wrap=True)
    if as_json:
        print(report.to_json())
    else:
        Console().print(*build_tables(report))
        written = "Figures and charts" if find_spec("matplotlib") is not None else "Figures"
        Console().print(f"\n{written} are in [bold]{out}[/].", highlight=False)
    if report.interrupted:
        raise typer.Exit(130)


def demo(
    out: Annotated[Path, typer.Option(help="The folder for all that it makes.")] = Path("demo-output"),
) -> None:
    """Run a whole pipeline on made-up news: 10,000 subscriptions that change meanwhile; about a minute."""
    from rich.console import Console

    with require_extra("spark", "sapwood demo"):
        from sapwood.demo import run
    log = out / "spark.log"
    with log_to_file(log), report_errors(log):
        code = run(Console(), out)
    raise typer.Exit(code)
