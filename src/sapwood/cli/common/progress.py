"""Progress bars on a terminal, apart from the console because Rich takes long to load."""

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
    """How many a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


def progress(console: Console, rate: bool) -> Progress:
    """A bar that counts, if asked with how many a second, and that goes when the work is done."""
    speed = [_Rate()] if rate else []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *speed, TimeElapsedColumn()
    return Progress(*columns, console=console, transient=True)
