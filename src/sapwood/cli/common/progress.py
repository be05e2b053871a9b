"""Progress bars, apart from `console` because Rich is slow to import."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    """A column with the number of items per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


def make_bar(console: Console, rate: bool) -> Progress:
    """Return a transient progress bar that counts items, optionally with a rate."""
    speed = [_Rate()] if rate else []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *speed, TimeElapsedColumn()
    # Rich would send the standard output to the terminal, although it may be a file.
    return Progress(*columns, console=console, transient=True, redirect_stdout=False)
