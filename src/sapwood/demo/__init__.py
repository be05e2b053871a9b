"""A first look: a whole pipeline on Spark, with messages and subscriptions that are made up.

Everything is put into one folder, to look at and to run again:

    inbox/             news messages, one a line, some of them broken
    subscriptions.db   the store, whose subscriptions change while the pipeline runs
    pipeline.toml      what is read, for whom, and where it goes
    deliveries/        which message goes to whom, in Parquet
    rejects/           what was refused, and why
    report.html        charts of all this
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape

from sapwood.demo.demo_workload import (
    NAME,
    SubscriptionChurn,
    write_config,
    write_inbox,
    write_subscriptions,
)
from sapwood.demo.matcher_speed import measure_matcher
from sapwood.demo.verification import find_differences
from sapwood.spark.monitoring.display import Display, LiveDisplay, PlainLines
from sapwood.spark.monitoring.report import write_report
from sapwood.spark.monitoring.report_data import read_checkpoint
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.spark.pipeline.signals import PipelineSignals
from sapwood.spark.spark_session import session
from sapwood.store import SubscriptionStore

_OURS = ("inbox", "deliveries", "rejects", "checkpoint")
_OUR_FILES = ("subscriptions.db", "pipeline.toml", "report.html", "spark.log")
_CHANGES = 2
"""How often the subscriptions change."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is made up."""

    files: int = 12
    messages: int = 500
    """in each file"""
    subscriptions: int = 10_000
    sample: int = 100
    """messages whose deliveries are compared with those of a broker in this process"""


def run(console: Console, out: Path, size: Size | None = None) -> int:
    """Runs the demo; the exit code is 0, or 130 after Ctrl-C, or 1 if an answer was wrong."""
    size = size or Size()
    _clean(out)
    console.print(
        "A pipeline from beginning to end. This takes one to two minutes on two cores.", highlight=False
    )
    with console.status("making up messages and subscriptions"):
        made = write_inbox(out / "inbox", size.files, size.messages)
        kept = write_subscriptions(out / "subscriptions.db", size.subscriptions)
        settings_file = write_config(out)
    console.print(
        f"Made up {made:,} messages in {size.files} files and {kept:,} subscriptions."
        f"\nStarting Spark on two cores; what it prints goes to {escape(str(out / 'spark.log'))}",
        highlight=False,
    )
    running = SparkSession.getActiveSession()
    spark = running or session("local[2]", name=NAME, log=out / "spark.log")
    try:
        display = LiveDisplay(console, NAME) if console.is_terminal else PlainLines(console)
        outcomes, code = _serve(spark, settings_file, display)
        wrong = _finish(console, display, out, outcomes, 0 if code else size.sample)
        return code or int(wrong > 0)
    finally:
        if running is None:
            spark.stop()


def _clean(out: Path) -> None:
    """Removes what an earlier demo has left, and nothing else that may be in the folder."""
    out.mkdir(parents=True, exist_ok=True)
    for name in _OURS:
        shutil.rmtree(out / name, ignore_errors=True)
    for name in _OUR_FILES:
        (out / name).unlink(missing_ok=True)


def _serve(spark: SparkSession, settings_file: Path, display: Display) -> tuple[list[Outcome], int]:
    """Serves all messages, while the subscriptions change now and then."""
    settings = read_config(settings_file)
    assert settings.subscriptions.store is not None
    outcomes: list[Outcome] = []
    with SubscriptionStore(settings.subscriptions.store) as store:
        changes = SubscriptionChurn(store)

        def served(outcome: Outcome) -> None:
            outcomes.append(outcome)
            display.batch(outcome)
            if len(outcomes) % 2 == 0 and changes.made < _CHANGES:  # before Spark goes on to the next batch
                display.note(f"after batch {outcome.batch}: {changes.make()}")

        pipeline = Pipeline(spark, settings, served)
        with display, PipelineSignals(pipeline.stop, display.note, display.close) as signals:
            display.tick(pipeline)
            pipeline.run(lambda: display.tick(pipeline))
    return outcomes, signals.exit_code


def _finish(console: Console, display: Display, out: Path, outcomes: list[Outcome], sample: int) -> int:
    """Shows what came of it; the number of answers that are wrong in a sample, which is 0 after Ctrl-C."""
    display.summary(outcomes)
    checked, wrong = _check(console, out, outcomes, sample) if sample and outcomes else (0, [])
    report = out / "report.html"
    if outcomes:
        write_report(report, NAME, read_checkpoint(read_config(out / "pipeline.toml")))
    if wrong:
        console.print(f"[bold red]different from a broker in one process:[/] {escape(', '.join(wrong))}")
    elif checked:
        console.print(
            f"[green]Checked:[/] {checked:,} messages went to exactly those subscriptions that a broker in"
            " one process finds, with what was made for each.",
            highlight=False,
        )
    if checked:
        _tell_speed(console, out, outcomes[0].version)
    _what_next(console, out, report)
    return len(wrong)


def _tell_speed(console: Console, out: Path, version: int) -> None:
    with (
        SubscriptionStore(str(out / "subscriptions.db")) as store,
        console.status("measuring the matcher alone, in one process"),
    ):
        speed = measure_matcher(store, version, out / "inbox")
    console.print(f"[green]Without Spark:[/] {escape(str(speed))}.", highlight=False)


def _check(console: Console, out: Path, outcomes: list[Outcome], sample: int) -> tuple[int, list[str]]:
    with (
        SubscriptionStore(str(out / "subscriptions.db")) as store,
        console.status(f"comparing the deliveries of {sample} messages with those of one process"),
    ):
        return find_differences(out, store, sample, outcomes[0].version, outcomes[-1].version)


def _what_next(console: Console, out: Path, report: Path) -> None:
    first = next(iter(sorted((out / "inbox").iterdir())))
    lines = {
        "charts": str(report),
        "deliveries": f"{out / 'deliveries'}, in Parquet: message_id, subscription, body, version",
        "refused": f"{out / 'rejects'}, with reason, line and column",
        "the pipeline": f"{out / 'pipeline.toml'}",
        "again, with news": f"cp {first} {out / 'inbox' / 'more.xmll'}"
        f" && sapwood run {out / 'pipeline.toml'}",
    }
    console.print("\n[bold]What to look at next[/]")
    for what, where in lines.items():
        console.print(f"  [dim]{what:18}[/]{escape(where)}", highlight=False, soft_wrap=True)
