"""What all commands share: the terminal, errors, progress, JSON lines and common options."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
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

from sapwood.lang.namespaces import ANY, ANY_PREFIX

errors = Console(stderr=True, highlight=False)

NamespacesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="PREFIX=URI",
        help="Declare a prefix for the queries; 'any' lets names without a prefix match in any namespace.",
    ),
]


def fail(text: str) -> NoReturn:
    """Ends the command with one line that says what is wrong."""
    errors.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
    sys.exit(2)


def report(place: str, reason: str) -> None:
    """Tells of one line or message that was refused, and where it is."""
    errors.print(f"[bold red]{escape(place)}:[/] {escape(reason)}", soft_wrap=True)


def namespaces_of(declared: list[str] | None) -> dict[str, str]:
    """What `--namespace PREFIX=URI` and `--namespace any` declare."""
    pairs = [(f"{ANY_PREFIX}={ANY}" if entry == ANY else entry).partition("=") for entry in declared or []]
    for prefix, equals, uri in pairs:
        if not (prefix and equals and uri):
            fail(f"--namespace takes PREFIX=URI, not {prefix + equals + uri!r}")
    return {prefix: uri for prefix, _, uri in pairs}


class _Rate(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


def counting(rate: bool = False) -> Progress:
    """Progress on the terminal, if asked with how many a second; nothing where there is no terminal."""
    what = TextColumn("{task.description}")
    speed = [_Rate()] if rate else []
    columns = what, BarColumn(), MofNCompleteColumn(), *speed, TimeElapsedColumn()
    return Progress(*columns, console=errors, transient=True, disable=not sys.stderr.isatty())


def write_line(record: dict[str, Any]) -> None:
    """Writes a JSON line to the standard output."""
    sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
