"""Terminal output, errors, progress and JSON lines of all commands."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    errors: Console

_T = TypeVar("_T")


@cache
def _terminal() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def __getattr__(name: str) -> object:
    """Return `errors`, the console on the standard error; made on first use, because Rich is slow to
    import.
    """
    if name != "errors":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _terminal()


def fail(text: str) -> NoReturn:
    """Print an error and exit with status 2."""
    _print_error("error:", text)
    sys.exit(2)


def report(place: str, reason: str) -> None:
    """Print a refused line or message and where it is."""
    _print_error(f"{place}:", reason)


def note(text: str) -> None:
    """Print information that is not an error."""
    from rich.markup import escape

    _terminal().print(f"[yellow]{escape(text)}[/]", soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning about something that is valid but probably unintended."""
    from rich.markup import escape

    _terminal().print(f"[yellow]warning:[/] {escape(text)}", soft_wrap=True)


def _print_error(what: str, text: str) -> None:
    from rich.markup import escape

    _terminal().print(f"[bold red]{escape(what)}[/] {escape(text)}", soft_wrap=True)


def make_progress(rate: bool = False, *, writing: bool = False) -> Progress:
    """Return a progress bar, optionally with a rate; without a terminal it shows nothing.

    Nor does it while a command is `writing` output that may appear on the same terminal.
    """
    if not sys.stderr.isatty() or (writing and _may_reach_terminal()):
        return _NoProgress()  # type: ignore[return-value]  # it has what commands use of Progress
    from sapwood.cli.common.progress import make_bar

    return make_bar(_terminal(), rate)


def _may_reach_terminal() -> bool:
    """Return whether output may appear on a terminal, be it from the other end of a pipe."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):  # a stream of Python's, as in a notebook
        return True
    return sys.stdout.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _NoProgress:
    """A progress bar that shows nothing."""

    def __enter__(self) -> _NoProgress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add_task(self, description: str, total: float | None = None) -> int:
        return 0

    def advance(self, task: int, advance: float = 1) -> None:
        pass

    def track(self, items: Iterable[_T], description: str = "") -> Iterable[_T]:
        return items

    def update(self, task: int, *, completed: float | None = None) -> None:
        pass


def finish(messages: int, refused: int) -> None:
    """Print a summary at the end of a command, and exit with 1 if anything was refused."""
    sys.stdout.flush()
    if not messages:
        note("there were no messages; in folders, files are read that end in .xml, .xmll or these and .gz")
    if refused:
        what = "1 query or message" if refused == 1 else f"{refused:,} queries or messages"
        note(f"refused, or without an answer: {what}")
        raise typer.Exit(1)


def write_line(record: dict[str, Any]) -> None:
    """Write a JSON line to the standard output."""
    sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
