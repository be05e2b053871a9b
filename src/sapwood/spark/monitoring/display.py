"""A running pipeline, for people and for programs.

    LiveDisplay   on a terminal: a panel that changes in place, and a table at the end
    JsonLines     elsewhere: a JSON line a batch, and one for all of them at the end
    PlainLines    a line of prose a batch, for people who read a log

All are displays, so that whoever runs a pipeline picks one and need not know which.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from time import monotonic
from types import TracebackType
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
_SHOWN = 40
"""batches whose throughput is drawn"""


class PipelineStatus(Protocol):
    """What a display wants to know of a pipeline."""

    serving: int | None


class Display(ABC):
    """Shows what a pipeline does. `batch` and `tick` may be called from different threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def leave(self) -> None:  # noqa: B027  # most have nothing to put in order
        """Puts the terminal in order; called twice, it does nothing more."""

    def tick(self, pipeline: PipelineStatus) -> None:  # noqa: B027  # most show batches only
        """Looks at the pipeline, some times a second."""

    @abstractmethod
    def batch(self, outcome: Outcome) -> None:
        """A batch is done."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Something that people should know now."""

    @abstractmethod
    def summary(self, outcomes: Iterable[Outcome]) -> None:
        """What it all came to, after the end."""


class JsonLines(Display):
    """JSON on the standard output, notes on the standard error."""

    def __init__(self, out: TextIO | None = None, notes: Console | None = None) -> None:
        self._out = out or sys.stdout
        self._notes = notes or Console(stderr=True, highlight=False)

    def batch(self, outcome: Outcome) -> None:
        rates = {
            "messages_per_second": round(per_second(outcome.messages, outcome.seconds), 1),
            "deliveries_per_second": round(per_second(outcome.deliveries, outcome.seconds), 1),
        }
        record = outcome.as_record()
        for name in ("by_subscription", "by_subscriber"):  # which the report has
            del record[name]
        self._write({**record, **rates})

    def note(self, text: str) -> None:
        self._notes.print(escape(text), soft_wrap=True)

    def summary(self, outcomes: Iterable[Outcome]) -> None:
        self._write({"summary": Totals(outcomes).as_record()})

    def _write(self, record: dict[str, object]) -> None:
        self._out.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._out.flush()


class PlainLines(Display):
    """A line a batch."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def batch(self, outcome: Outcome) -> None:
        refused = f", {outcome.rejects:,} refused" if outcome.rejects else ""
        refused += f", {outcome.failures:,} answers missing" if outcome.failures else ""
        self.note(
            f"batch {outcome.batch}: {outcome.messages:,} messages, {outcome.deliveries:,} deliveries"
            f"{refused} in {outcome.seconds:.1f} s, version {outcome.version}"
        )

    def note(self, text: str) -> None:
        self._console.print(escape(text), soft_wrap=True, highlight=False)

    def summary(self, outcomes: Iterable[Outcome]) -> None:
        self._console.print(summary_table(Totals(outcomes)))


class LiveDisplay(Display):
    """A panel on the terminal, drawn anew five times a second, also while no batch is done for long."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._tally = Totals()
        self._pipeline: PipelineStatus | None = None
        self._serving: int | None = None
        self._since = monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=5, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def leave(self) -> None:
        self._live.stop()

    def tick(self, pipeline: PipelineStatus) -> None:
        self._pipeline = pipeline

    def batch(self, outcome: Outcome) -> None:
        self._tally.add(outcome)

    def note(self, text: str) -> None:
        self._console.print(f"[yellow]{escape(text)}[/]", soft_wrap=True, highlight=False)

    def summary(self, outcomes: Iterable[Outcome]) -> None:
        self._console.print(summary_table(Totals(outcomes)))

    def _render(self) -> Panel:
        tally, last = self._tally, self._tally.last
        rows = Table.grid(padding=(0, 3))
        rows.add_column(style="dim")
        rows.add_row("now", self._now())
        if last is not None:
            speed = per_second(last.messages, last.seconds), tally.messages_per_second
            delivered = per_second(last.deliveries, last.seconds), tally.deliveries_per_second
            rows.add_row("messages", _counted(tally.messages, *speed))
            rows.add_row("deliveries", _counted(tally.deliveries, *delivered))
            rows.add_row("rejects", Text(f"{tally.rejects:,}", "yellow" if tally.rejects else "dim"))
            if tally.failures:
                rows.add_row("failures", Text(f"{tally.failures:,}", "yellow"))
            rows.add_row(
                "latency",
                f"{format_duration(last.seconds)} last, {format_duration(tally.latency)} on average,"
                f" {format_duration(tally.latency_95)} for 95 of 100",
            )
            rows.add_row("subscriptions", f"{last.subscriptions:,} in version {last.version}")
            if last.kept is not None:
                rows.add_row("kept for joins", f"{last.kept:,} rows before the last batch")
            if last.left_out:
                rows.add_row("left out", Text(f"{len(last.left_out):,} subscriptions", "yellow"))
            rows.add_row("messages/s", _throughput(list(tally.recent)[-self._room() :]))
        title = f"[bold green]sapwood[/] {escape(self._name)}"
        return Panel(Group(rows), title=title, title_align="left", border_style="green", padding=(0, 1))

    def _room(self) -> int:
        return max(1, min(_SHOWN, self._console.width - 44))

    def _now(self) -> Text:
        serving = self._pipeline.serving if self._pipeline is not None else None
        if serving != self._serving:
            self._serving, self._since = serving, monotonic()
        since = format_duration(monotonic() - self._since)
        done = f"{self._tally.batches:,} done"
        if serving is None:
            return Text(f"waiting for {since}; {done}", "dim")
        return Text.assemble((f"batch {serving}", "bold"), f" being served for {since}; {done}")


def _counted(total: int, last: float, mean: float) -> Text:
    return Text.assemble(
        (f"{total:,}", "bold"), f"   {last:,.0f}/s in the last batch, {mean:,.0f}/s on average"
    )


def _throughput(outcomes: Sequence[Outcome]) -> Text:
    rates = [per_second(outcome.messages, outcome.seconds) for outcome in outcomes]
    return Text.assemble((sparkline(rates), "green"), f"  up to {max(rates, default=0):,.0f}")


def sparkline(values: Sequence[float]) -> str:
    """Values as small bars, the highest one full."""
    highest = max(values, default=0) or 1
    return "".join(_BARS[min(int(value / highest * len(_BARS)), len(_BARS) - 1)] for value in values)


def summary_table(tally: Totals) -> Table:
    """What all batches came to, for a terminal."""
    table = Table(title="What it came to", title_justify="left", show_header=False)
    table.add_column(style="dim")
    table.add_row("batches", f"{tally.batches:,}")
    table.add_row("messages", f"[bold]{tally.messages:,}[/], {tally.messages_per_second:,.0f} a second")
    table.add_row("deliveries", f"[bold]{tally.deliveries:,}[/], {tally.deliveries_per_second:,.0f} a second")
    if tally.joined:
        table.add_row("of joins", f"{tally.joined:,}")
    table.add_row("rejects", f"[yellow]{tally.rejects:,}[/]" if tally.rejects else "none")
    if tally.failures:
        table.add_row("failures", f"[yellow]{tally.failures:,}[/] answers of single queries are missing")
    if tally.last is not None and tally.versions is not None:
        first, last = tally.versions
        which = f"version {last}" if first == last else f"versions {first} to {last}"
        table.add_row("subscriptions", f"{tally.last.subscriptions:,}, {which}")
        table.add_row(
            "latency of a batch",
            f"{format_duration(tally.latency)} on average, {format_duration(tally.latency_95)} for 95 of 100",
        )
    if tally.last is not None and tally.last.left_out:
        table.add_row("left out", f"[yellow]{escape(', '.join(tally.last.left_out))}[/]")
    table.add_row("time in batches", format_duration(tally.seconds))
    return table
