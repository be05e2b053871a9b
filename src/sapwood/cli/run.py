"""`sapwood run`: a pipeline on Spark, as a file describes it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.cli.common.console import errors, fail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sapwood.broker import Broker
    from sapwood.spark.monitoring.display import Display
    from sapwood.spark.pipeline.batch import Outcome
    from sapwood.spark.pipeline.config import PipelineConfig
    from sapwood.spark.pipeline.signals import SignalHandler

_NEEDED = frozenset({"pyspark", "py4j", "pyarrow", "pandas", "pydantic"})
"""what `sapwood[spark]` installs"""


def run(
    pipeline: Annotated[Path, typer.Argument(help="A TOML file: what is read, for whom, where it goes.")],
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where Spark runs, such as local[4]; else as in the file."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page with charts at the end.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For what Spark prints; else in the checkpoint.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as in a pipe.")] = False,
) -> None:
    """Serve every subscription with the messages of a pipeline; shows each batch as it is done.

    Ctrl-C finishes the current batch and ends, a second one ends at once; the next run goes on from there.
    """
    with require_spark("sapwood run"):
        from sapwood.spark.pipeline.config import read_config
        from sapwood.spark.pipeline.preflight import check_master
    settings = read_config(pipeline)
    master = master or settings.run.master
    check_master(master)
    check_source(settings)
    check_checkpoint(settings)
    check_report(report)
    compiled = check_subscriptions(settings)
    log = log or (Path(settings.run.log) if settings.run.log else default_log(settings.run.checkpoint))
    errors.print(f"[dim]starting Spark; what it prints goes to {log}[/]", soft_wrap=True)
    with report_spark_errors(log):
        code = _run(settings, master, log, report, as_json, compiled)
    raise typer.Exit(code)


def _run(
    settings: PipelineConfig,
    master: str,
    log: Path,
    report: Path | None,
    as_json: bool,
    compiled: Broker | None,
) -> int:
    from sapwood.spark.spark_session import session

    config = {key: _option(value) for key, value in settings.spark.items()}
    spark = session(master, name=settings.name, config=config, log=log)
    try:
        return _serve(spark, settings, _display(settings.name, as_json), report, compiled)
    finally:
        spark.stop()


def _option(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _display(name: str, as_json: bool) -> Display:
    from sapwood.spark.monitoring.display import JsonLines, LiveDisplay

    if as_json or not (sys.stdout.isatty() and errors.is_terminal):
        return JsonLines(notes=errors)
    return LiveDisplay(errors, name)


def _serve(
    spark: SparkSession,
    settings: PipelineConfig,
    display: Display,
    report: Path | None,
    compiled: Broker | None,
) -> int:
    from sapwood.spark.monitoring.report import write_report
    from sapwood.spark.monitoring.report_data import collect_report_data
    from sapwood.spark.pipeline.pipeline import Pipeline
    from sapwood.spark.pipeline.signals import SignalHandler

    done: list[Outcome] = []

    def served(outcome: Outcome) -> None:
        done.append(outcome)
        display.batch(outcome)

    places = ", ".join(source.path or source.format for source in settings.sources)
    pipeline = Pipeline(
        spark, settings, served, compiled, lambda: display.note(f"waiting for messages in {places}")
    )
    interrupts = SignalHandler(pipeline.stop, display.note, display.leave)
    try:
        with display, interrupts, _warnings_to(display.note):
            display.tick(pipeline)
            pipeline.run(lambda: display.tick(pipeline))
    finally:  # what was done before a failure is worth telling, too
        display.summary(done)
    if report is not None:
        write_report(
            report, settings.name, collect_report_data(settings, pipeline.outcomes(), pipeline.matched)
        )
        display.note(f"the report is in {report}")
    if interrupts.received is not None:
        display.note(_how_far(settings, interrupts, done))
    return interrupts.exit_code


def _how_far(settings: PipelineConfig, interrupts: SignalHandler, done: list[Outcome]) -> str:
    from sapwood.spark.pipeline.config import BATCH

    assert interrupts.received is not None
    if settings.run.trigger == BATCH:
        return (
            f"{interrupts.received.name} came during the only batch, which is finished: nothing is left to do"
        )
    far = f"after batch {done[-1].batch}" if done else "before the first batch of this run was done"
    return f"stopped {far}; run it again to go on from there"


# -- before the start --------------------------------------------------------------------------------------


@contextmanager
def require_spark(command: str) -> Iterator[None]:
    """Says what to install where Spark's part of Sapwood is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        fail(
            f"'{command}' runs on Spark, and {error.name} is missing: "
            "in a clone of Sapwood, pip install '.[spark]'"
        )


def local(path: str) -> Path | None:
    """The path, if it is one of this machine's."""
    if "://" in path:
        return Path(path.removeprefix("file://")) if path.startswith("file://") else None
    return Path(path.removeprefix("file:"))


def check_source(settings: PipelineConfig) -> None:
    """Says that there is nothing to read before Spark takes seconds to start and more words to say it."""
    from sapwood.spark.io.unread_files import is_hidden

    for number, source in enumerate(settings.sources, 1):
        path = local(source.path) if source.path is not None else None
        pattern = source.format != "files" and any(char in str(path) for char in "*?[{")
        which = "source" if len(settings.sources) == 1 else f"source #{number}"
        if path is not None and not pattern and not path.exists():
            fail(f"{which}.path: there is no file or folder {path}")
        if path is not None and path.is_file() and is_hidden(path.name):
            fail(f"{which}.path: Spark does not read {path}, a name that begins with _ or .; rename it")


def check_checkpoint(settings: PipelineConfig) -> None:
    """Says that another run is using the checkpoint before Spark is started."""
    from sapwood.spark.pipeline.checkpoint_lock import lock_checkpoint

    with lock_checkpoint(settings.run.checkpoint):
        pass


def check_subscriptions(settings: PipelineConfig) -> Broker | None:
    """Says that a store is absent, or what is wrong in a file of queries, before Spark is started; with a
    file, its queries."""
    from sapwood.spark.distribution.pipeline_subscriptions import compile_file
    from sapwood.spark.joins.join_plan import check_times
    from sapwood.store import SubscriptionStore

    given = settings.subscriptions
    namespaces = given.namespaces
    if given.store is not None:
        with SubscriptionStore(given.store, create=False) as store:
            namespaces = store.namespaces
    if settings.joins is not None:
        check_times(settings.sources, namespaces)
    if given.store is not None:
        return None
    assert given.file is not None
    return compile_file(given.file, namespaces, settings.matcher_limits())


def check_report(report: Path | None, option: str = "--report") -> None:
    """Makes the report's folder now, so that what is wrong with it is told before hours of work."""
    if report is None:
        return
    if report.is_dir():
        fail(f"{option}: {report} is a folder")
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"{option}: {report} cannot be written: {error.strerror}")


def default_log(checkpoint: str) -> Path:
    """Where Spark's noise goes by default."""
    folder = local(checkpoint)
    return folder / "spark.log" if folder is not None else Path("sapwood-spark.log")


# -- errors and warnings -----------------------------------------------------------------------------------


@contextmanager
def report_spark_errors(log: Path) -> Iterator[None]:
    """What goes wrong in Spark becomes one line that names the log."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        fail(f"Spark: {summarize_error(error)}; more is in {log}")


def summarize_error(error: Exception) -> str:
    """What an error of Spark's comes down to, without its stack of Java or Python."""
    cause = getattr(error, "java_exception", None)
    text = str(cause.toString()) if cause is not None else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        python = [line for line in text.splitlines() if line and not line[0].isspace()]
        return python[-1].strip().rstrip(".")
    return lines[0].rstrip(".;") if lines else type(error).__name__


class _Notes(logging.Handler):
    """Log records as notes."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.getMessage())


@contextmanager
def _warnings_to(note: Callable[[str], None]) -> Iterator[None]:
    """What Sapwood itself warns of is shown where it does not tear the display."""
    logger, handler = logging.getLogger("sapwood"), _Notes(note)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
