"""`sapwood run`: runs the pipeline of a TOML file on Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.cli.common.console import errors, fail
from sapwood.cli.common.extras import require_extra
from sapwood.cli.common.options import JsonLinesOption
from sapwood.cli.common.run_log import Verbosity, log_to_file, log_to_notes, report_errors
from sapwood.lang.xpath.error_hints import set_declaration_form, set_other_language_hints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sapwood.broker import Broker
    from sapwood.spark.monitoring.display import Display
    from sapwood.spark.pipeline.batch import Outcome
    from sapwood.spark.pipeline.config import PipelineConfig
    from sapwood.spark.pipeline.pipeline_signals import PipelineSignals


def run(
    pipeline: Annotated[Path, typer.Argument(help="The TOML file of the pipeline: sources, sinks, run.")],
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The Spark master, such as local[4]; default: as in the file."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a report with charts at the end.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The log of Spark and Sapwood; default: in the checkpoint."),
    ] = None,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Log each batch on the terminal, too; -vv: details.",
        ),
    ] = 0,
    as_json: JsonLinesOption = False,
) -> None:
    """Run a pipeline: match the messages of its sources with all subscriptions, batch by batch.

    Ctrl-C stops it after the current batch, a second one at once; the next run continues from there.
    Warnings are shown on the terminal; the log has each batch, and the traceback of an error.
    """
    with require_extra("spark", "sapwood run"):
        import sapwood.spark.monitoring.report
        import sapwood.spark.pipeline.pipeline  # noqa: F401  # before anything is done
        from sapwood.spark.pipeline.config import read_config
        from sapwood.spark.pipeline.preflight import check_pipeline
    set_declaration_form("subscriptions.namespaces, or for a store 'sapwood subscriptions namespaces'")
    set_other_language_hints(*2 * ("XPath 1.0 is expected here",))
    verbosity = Verbosity(verbose)
    config = read_config(pipeline)
    master = master or config.run.master
    check_report(report)
    compiled = check_pipeline(config, master, pipeline)
    log = log or (Path(config.run.log) if config.run.log else default_log(config.run.checkpoint))
    errors.print(f"[dim]starting Spark; its log is {log}[/]", soft_wrap=True)
    with log_to_file(log, verbosity), report_errors(log):
        code = _run(config, master, log, report, as_json, compiled, verbosity)
    raise typer.Exit(code)


def _run(
    config: PipelineConfig,
    master: str,
    log: Path,
    report: Path | None,
    as_json: bool,
    compiled: Broker | None,
    verbosity: Verbosity,
) -> int:
    from sapwood.spark.io.delta_table import delta_settings
    from sapwood.spark.pipeline.real_time_rules import REAL_TIME, SESSION_SETTINGS
    from sapwood.spark.spark_session import session

    needed = SESSION_SETTINGS if config.run.trigger == REAL_TIME else {}
    options = needed | {key: _format_option(value) for key, value in config.spark.items()}
    if config.uses_delta:
        options |= delta_settings(options, master)
    spark = session(master, name=config.name, config=options, log=log)
    try:
        display = _create_display(config.name, as_json)
        return _run_pipeline(spark, config, display, report, compiled, verbosity)
    finally:
        spark.stop()


def _format_option(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _create_display(name: str, as_json: bool) -> Display:
    from sapwood.spark.monitoring.display import JsonLines, LiveDisplay

    if as_json or not (sys.stdout.isatty() and errors.is_terminal):
        return JsonLines(notes=errors)
    return LiveDisplay(errors, name)


def _run_pipeline(
    spark: SparkSession,
    config: PipelineConfig,
    display: Display,
    report: Path | None,
    compiled: Broker | None,
    verbosity: Verbosity,
) -> int:
    """Run the pipeline, show its batches, write the report, and return the exit code."""
    from sapwood.spark.monitoring.report import write_report
    from sapwood.spark.monitoring.report_data import collect_report_data
    from sapwood.spark.pipeline.pipeline import Pipeline
    from sapwood.spark.pipeline.pipeline_signals import PipelineSignals
    from sapwood.spark.pipeline.real_time import RealTimePipeline
    from sapwood.spark.pipeline.real_time_rules import REAL_TIME

    outcomes: list[Outcome] = []

    def on_batch(outcome: Outcome) -> None:
        outcomes.append(outcome)
        display.batch(outcome)

    def on_ready() -> None:
        sources = ", ".join(source.path or source.table or source.format for source in config.sources)
        display.note(f"waiting for messages in {sources}")

    with log_to_notes(display.note, verbosity):
        in_real_time = config.run.trigger == REAL_TIME
        kind = RealTimePipeline if in_real_time else Pipeline
        pipeline = kind(spark, config, on_batch, compiled, on_ready)
        when = {"when": "in the midst of a batch, as real time does"} if in_real_time else {}
        signals = PipelineSignals(pipeline.stop, display.note, display.close, **when)
        try:
            with display, signals:
                display.tick(pipeline)
                pipeline.run(lambda: display.tick(pipeline))
        finally:  # after a failure, too
            display.summary(outcomes)
    if report is not None:
        data = collect_report_data(config, pipeline.outcomes(), pipeline.matched)
        write_report(report, config.name, data)
        display.note(f"the report is in {report}")
    if signals.received is not None:
        display.note(_describe_stop(config, signals, outcomes))
    return signals.exit_code


def _describe_stop(config: PipelineConfig, signals: PipelineSignals, outcomes: list[Outcome]) -> str:
    from sapwood.spark.pipeline.config import BATCH
    from sapwood.spark.pipeline.real_time_rules import REAL_TIME

    assert signals.received is not None
    if config.run.trigger == BATCH:
        return f"{signals.received.name} was received during the only batch, which is complete"
    last = f"after batch {outcomes[-1].batch}" if outcomes else "before the first batch of this run"
    if config.run.trigger == REAL_TIME:
        return f"stopped {last}; the next run begins there, and repeats what was delivered since then"
    return f"stopped {last}; run it again to continue from there"


# -- also for other commands -------------------------------------------------------------------------------


def check_report(report: Path | None, option: str = "--report") -> None:
    """Create the folder of the report before the run, so that an error in its path is found at once."""
    if report is None:
        return
    if report.is_dir():
        fail(f"{option}: {report} is a folder")
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.open("a").close()
    except OSError as error:
        fail(f"{option}: {report} cannot be written: {error.strerror}")


def default_log(checkpoint: str) -> Path:
    """Return the default path of the log: in a local checkpoint, or else in the current folder."""
    from sapwood.spark.io.file_system import local_path

    folder = local_path(checkpoint)
    return folder / "spark.log" if folder is not None else Path("sapwood-spark.log")
