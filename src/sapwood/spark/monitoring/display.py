"""Displays of a running pipeline's progress, behind one interface.

LiveDisplay   on a terminal: a panel that is redrawn in place, and a table at the end
JsonLines     in a pipe: a JSON line for each batch, and one with the totals at the end
PlainLines    in a log: a line of text for each batch, and a table at the end
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sapwood.spark.monitoring.totals import Totals, format_duration, per_second
from sapwood.spark.pipeline.batch import Outcome

_BARS = "▁▂▃▄▅▆▇█"
_SPARKLINE_BATCHES = 40
"""The batches whose throughput is drawn."""


class PipelineStatus(Protocol):
    """The state of a pipeline that a display shows."""

    current_batch: int | None


class Display(ABC):
    """Shows the progress of a pipeline. `batch` and `tick` may be called from different threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027  # most have nothing to restore
        """Restore the terminal; calling it twice is harmless."""

    def tick(self, pipeline: PipelineStatus) -> None:  # noqa: B027  # most show batches only
        """Update the state of the pipeline; called some times a second."""

    @abstractmethod
    def batch(self, outcome: Outcome) -> None:
        """Show the outcome of a batch, after its commit."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Show a message to the user."""

    @abstractmethod
    def summary(self, outcomes: Iterable[Outcome]) -> None:
        """Show the totals, at the end."""


class JsonLines(Display):
    """JSON lines on the standard output, notes on the standard error."""

    def __init__(self, out: TextIO | None = None, notes: Console | None = None) -> None:
        self._out = out or sys.stdout
        self._notes = notes or Console(stderr=True, highlight=False)

    def batch(self, outcome: Outcome) -> None:
        rates = {
            "messages_per_second": round(per_second(outcome.messages, outcome.seconds), 1),
            "deliveries_per_second": round(per_second(outcome.deliveries, outcome.seconds), 1),
        }
        record = outcome.as_record()
        for name in ("by_subscription", "by_subscriber"):  # long lists, which the report has
            del record[name]
        self._write({**record, **rates})

    def note(self, text: str) -> None:
        self._notes.print(escape(text), soft_wrap=True)

    def summary(self, outcomes: Iterable[Outcome]) -> None:
        self._write({"summary": Totals(outcomes).as_record()})

    def _write(self, record: dict[str, object]) -> None:
        self._out.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._out.flush()


class _ConsoleDisplay(Display):
    """A display on a console, which ends with a table of the totals."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def summary(self, outcomes: Iterable[Outcome]) -> None:
        self._console.print(summary_table(Totals(outcomes)))


class PlainLines(_ConsoleDisplay):
    """A line of text for each batch."""

    def batch(self, outcome: Outcome) -> None:
        counts = f", {outcome.rejects:,} rejects" if outcome.rejects else ""
        counts += f", {outcome.failures:,} failures" if outcome.failures else ""
        self.note(
            f"batch {outcome.batch}: {outcome.messages:,} messages, {outcome.deliveries:,} deliveries"
            f"{counts} in {outcome.seconds:.1f} s, version {outcome.version}"
        )

    def note(self, text: str) -> None:
        self._console.print(escape(text), soft_wrap=True, highlight=False)


class LiveDisplay(_ConsoleDisplay):
    """A panel on the terminal, redrawn five times a second, so that its clock runs during a long batch."""

    def __init__(self, console: Console, name: str) -> None:
        super().__init__(console)
        self._name = name
        self._totals = Totals()
        self._pipeline: PipelineStatus | None = None
        self._batch: int | None = None
        self._since = monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=5, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def close(self) -> None:
        self._live.stop()

    def tick(self, pipeline: PipelineStatus) -> None:
        self._pipeline = pipeline

    def batch(self, outcome: Outcome) -> None:
        self._totals.add(outcome)

    def note(self, text: str) -> None:
        self._console.print(f"[yellow]{escape(text)}[/]", soft_wrap=True, highlight=False)

    def _render(self) -> Panel:
        totals, last = self._totals, self._totals.last
        rows = Table.grid(padding=(0, 3))
        rows.add_column(style="dim")
        rows.add_row("now", self._now())
        if last is not None:
            speed = per_second(last.messages, last.seconds), totals.messages_per_second
            delivered = per_second(last.deliveries, last.seconds), totals.deliveries_per_second
            rows.add_row("messages", _format_count(totals.messages, *speed))
            rows.add_row("deliveries", _format_count(totals.deliveries, *delivered))
            rows.add_row("rejects", Text(f"{totals.rejects:,}", "yellow" if totals.rejects else "dim"))
            if totals.failures:
                rows.add_row("failures", Text(f"{totals.failures:,}", "yellow"))
            rows.add_row(
                "latency",
                f"{format_duration(last.seconds)} last, {format_duration(totals.latency)} on average,"
                f" {format_duration(totals.latency_95)} for 95 of 100",
            )
            rows.add_row("subscriptions", f"{last.subscriptions:,} in version {last.version}")
            if last.kept is not None:
                rows.add_row("join state", f"{last.kept:,} values after the last batch")
            if last.left_out:
                rows.add_row("excluded", Text(f"{len(last.left_out):,} subscriptions", "yellow"))
            rows.add_row("messages/s", _format_throughput(list(totals.recent)[-self._sparkline_width() :]))
        title = f"[bold green]sapwood[/] {escape(self._name)}"
        return Panel(Group(rows), title=title, title_align="left", border_style="green", padding=(0, 1))

    def _sparkline_width(self) -> int:
        return max(1, min(_SPARKLINE_BATCHES, self._console.width - 44))

    def _now(self) -> Text:
        batch = self._pipeline.current_batch if self._pipeline is not None else None
        if batch != self._batch:
            self._batch, self._since = batch, monotonic()
        since = format_duration(monotonic() - self._since)
        done = f"{self._totals.batches:,} done"
        if batch is None:
            return Text(f"waiting for {since}; {done}", "dim")
        return Text.assemble((f"batch {batch}", "bold"), f" running for {since}; {done}")


def _format_count(total: int, last: float, mean: float) -> Text:
    return Text.assemble(
        (f"{total:,}", "bold"), f"   {last:,.0f}/s in the last batch, {mean:,.0f}/s on average"
    )


def _format_throughput(outcomes: Sequence[Outcome]) -> Text:
    rates = [per_second(outcome.messages, outcome.seconds) for outcome in outcomes]
    return Text.assemble((sparkline(rates), "green"), f"  up to {max(rates, default=0):,.0f}")


def sparkline(values: Sequence[float]) -> str:
    """Draw values as small bars, of which the highest is full."""
    highest = max(values, default=0) or 1
    return "".join(_BARS[min(int(value / highest * len(_BARS)), len(_BARS) - 1)] for value in values)


def summary_table(totals: Totals) -> Table:
    """Return the totals of all batches as a table for a terminal."""
    table = Table(title="Summary", title_justify="left", show_header=False)
    table.add_column(style="dim")
    table.add_row("batches", f"{totals.batches:,}")
    table.add_row("messages", f"[bold]{totals.messages:,}[/], {totals.messages_per_second:,.0f} a second")
    table.add_row(
        "deliveries", f"[bold]{totals.deliveries:,}[/], {totals.deliveries_per_second:,.0f} a second"
    )
    if totals.joined:
        table.add_row("of joins", f"{totals.joined:,}")
    table.add_row("rejects", f"[yellow]{totals.rejects:,}[/]" if totals.rejects else "none")
    if totals.failures:
        table.add_row("failures", f"[yellow]{totals.failures:,}[/] of single queries")
    if totals.last is not None and totals.versions is not None:
        first, last = totals.versions
        which = f"version {last}" if first == last else f"versions {first} to {last}"
        table.add_row("subscriptions", f"{totals.last.subscriptions:,}, {which}")
        table.add_row(
            "latency of a batch",
            f"{format_duration(totals.latency)} on average,"
            f" {format_duration(totals.latency_95)} for 95 of 100",
        )
    if totals.last is not None and totals.last.left_out:
        table.add_row("excluded", f"[yellow]{escape(', '.join(totals.last.left_out))}[/]")
    table.add_row("time in batches", format_duration(totals.seconds))
    return table
