"""The demo: a whole pipeline on Spark, with generated messages and subscriptions.

All its files are in one folder, to be inspected and run again:

    inbox/             news messages, one a line, some of them broken
    subscriptions.db   the store, whose subscriptions change while the pipeline runs
    pipeline.toml      the configuration of the pipeline
    deliveries/        the deliveries, in Parquet
    rejects/           the rejects with their reasons
    report.html        the report, with charts
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
from sapwood.spark.pipeline.pipeline_signals import PipelineSignals
from sapwood.spark.spark_session import session
from sapwood.store import SubscriptionStore

_CHANGES = 2
"""The number of times that the subscriptions change."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the generated workload."""

    files: int = 24
    """files in the inbox"""
    messages: int = 2_000
    """messages in each file"""
    subscriptions: int = 10_000
    """subscriptions in the store at the start"""
    sample: int = 100
    """messages whose deliveries are verified against a broker in this process"""


def run(console: Console, out: Path, size: Size | None = None) -> int:
    """Run the demo; return the exit code: 0, 130 after Ctrl-C, or 1 if a delivery is wrong."""
    size = size or Size()
    _clean(out)
    console.print(
        "A pipeline from beginning to end. This takes one to two minutes on two cores.", highlight=False
    )
    with console.status("generating messages and subscriptions"):
        messages = write_inbox(out / "inbox", size.files, size.messages)
        subscriptions = write_subscriptions(out / "subscriptions.db", size.subscriptions)
        config_file = write_config(out)
    console.print(
        f"Generated {messages:,} messages in {size.files} files and {subscriptions:,} subscriptions."
        f"\nStarting Spark on two cores; its log is {escape(str(out / 'spark.log'))}",
        highlight=False,
    )
    running = SparkSession.getActiveSession()
    spark = running or session("local[2]", name=NAME, log=out / "spark.log")
    try:
        display = LiveDisplay(console, NAME) if console.is_terminal else PlainLines(console)
        outcomes, code = _run_pipeline(spark, config_file, display)
        wrong = _finish(console, display, out, outcomes, 0 if code else size.sample)
        return code or int(wrong > 0)
    finally:
        if running is None:
            spark.stop()


def _clean(out: Path) -> None:
    """Remove the files of an earlier demo, and nothing else that may be in the folder."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("inbox", "deliveries", "rejects", "checkpoint"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in ("subscriptions.db", "pipeline.toml", "report.html", "spark.log"):
        (out / name).unlink(missing_ok=True)


def _run_pipeline(spark: SparkSession, config_file: Path, display: Display) -> tuple[list[Outcome], int]:
    """Process all messages, while the subscriptions change; return the outcomes and the exit code."""
    config = read_config(config_file)
    assert config.subscriptions.store is not None
    outcomes: list[Outcome] = []
    with SubscriptionStore(config.subscriptions.store) as store:
        churn = SubscriptionChurn(store)

        def on_batch(outcome: Outcome) -> None:
            outcomes.append(outcome)
            display.batch(outcome)
            if len(outcomes) % 2 == 0 and churn.changes < _CHANGES:  # before Spark starts the next batch
                display.note(f"after batch {outcome.batch}: {churn.apply()}")

        pipeline = Pipeline(spark, config, on_batch)
        with display, PipelineSignals(pipeline.stop, display.note, display.close) as signals:
            display.tick(pipeline)
            pipeline.run(lambda: display.tick(pipeline))
    return outcomes, signals.exit_code


def _finish(console: Console, display: Display, out: Path, outcomes: list[Outcome], sample: int) -> int:
    """Show the totals, verify a sample, write the report; return the number of messages that are wrong."""
    display.summary(outcomes)
    checked, wrong = _verify(console, out, outcomes, sample) if sample and outcomes else (0, [])
    report = out / "report.html"
    if outcomes:
        write_report(report, NAME, read_checkpoint(read_config(out / "pipeline.toml")))
    if wrong:
        console.print(f"[bold red]different from a broker in one process:[/] {escape(', '.join(wrong))}")
    elif checked:
        console.print(
            f"[green]Verified:[/] the deliveries of {checked:,} messages are exactly those of a broker in one"
            " process, with the same bodies.",
            highlight=False,
        )
    if checked:
        _print_speed(console, out, outcomes[0].version)
    _print_next_steps(console, out, report)
    return len(wrong)


def _print_speed(console: Console, out: Path, version: int) -> None:
    with (
        SubscriptionStore(str(out / "subscriptions.db")) as store,
        console.status("measuring the matcher in one process"),
    ):
        speed = measure_matcher(store, version, out / "inbox")
    console.print(f"[green]Without Spark:[/] {escape(str(speed))}.", highlight=False)


def _verify(console: Console, out: Path, outcomes: list[Outcome], sample: int) -> tuple[int, list[str]]:
    with (
        SubscriptionStore(str(out / "subscriptions.db")) as store,
        console.status(f"verifying the deliveries of {sample} messages against one process"),
    ):
        return find_differences(out, store, sample, outcomes[0].version, outcomes[-1].version)


def _print_next_steps(console: Console, out: Path, report: Path) -> None:
    first = next(iter(sorted((out / "inbox").iterdir())))
    lines = {
        "report": str(report),
        "deliveries": f"{out / 'deliveries'}, in Parquet: message_id, subscription, body, version",
        "rejects": f"{out / 'rejects'}, with reason, line and column",
        "configuration": f"{out / 'pipeline.toml'}",
        "run it again": f"cp {first} {out / 'inbox' / 'more.xmll'} && sapwood run {out / 'pipeline.toml'}",
    }
    console.print("\n[bold]Next steps[/]")
    for what, where in lines.items():
        console.print(f"  [dim]{what:18}[/]{escape(where)}", highlight=False, soft_wrap=True)
