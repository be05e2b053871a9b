"""The `sapwood` command: a thin layer that reads arguments and writes JSON lines."""

from __future__ import annotations

import os
import sys

import typer

from sapwood import SapwoodError
from sapwood.cli.benchmarks import bench, demo
from sapwood.cli.console import fail
from sapwood.cli.generating import generate
from sapwood.cli.joining import join
from sapwood.cli.matching import explain, match
from sapwood.cli.relational import relational
from sapwood.cli.reporting import report
from sapwood.cli.running import run
from sapwood.cli.subscriptions import subscriptions
from sapwood.cli.transforming import transform
from sapwood.files import FileError

app = typer.Typer(
    help="Match, reshape and join XML messages for very many standing queries at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(match)
app.command()(transform)
app.command()(join)
app.command()(explain)
app.command()(run)
app.command()(report)
app.add_typer(subscriptions, name="subscriptions")
app.add_typer(relational, name="relational")
app.add_typer(generate, name="generate")
app.add_typer(bench, name="bench")
app.command()(demo)


def main() -> None:
    """Runs the command; what goes wrong on purpose is told in one line, without a traceback."""
    try:
        app()
    except (SapwoodError, FileError, ValueError) as error:
        fail(str(error))
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
