"""The `sapwood` command: a thin layer that reads arguments and writes JSON lines."""

from __future__ import annotations

import errno
import os
import sys
from contextvars import copy_context
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sapwood.cli.common.console import fail
from sapwood.errors import SapwoodError

# The module of each command, which is imported when the command is called: a `match` loads no SQL, no charts
# and no Spark. A command is a function or an application of the same name there.
_COMMANDS = {
    "match": "match",
    "transform": "transform",
    "join": "join",
    "explain": "explain",
    "run": "pipeline.run",
    "report": "pipeline.report",
    "serve": "service.serve",
    "mesh": "mesh",
    "keys": "service.keys",
    "publish": "service.publish",
    "listen": "service.listen",
    "subscriptions": "subscriptions",
    "relational": "tables.relational",
    "generate": "generate",
    "bench": "benchmarks",
    "demo": "benchmarks",
}


class _LazyGroup(TyperGroup):
    """A group whose commands are imported when they are called, or listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # Load all commands for a misspelt name, to suggest one.
        for name in [cmd_name] if cmd_name in _COMMANDS else _COMMANDS:
            if name not in self.commands:
                self.commands[name] = _command(name)
        return self.commands.get(cmd_name)


def _command(name: str) -> Any:
    found = getattr(import_module(f"sapwood.cli.{_COMMANDS[name]}"), name)
    holder = typer.Typer(add_completion=False)
    holder.callback()(_nothing)  # which makes a group of it, however few its commands
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    group: Any = get_command(holder)
    return group.commands[name]


def _nothing() -> None:
    pass


def _show_version(wanted: bool) -> None:
    if wanted:
        from sapwood import __version__
        from sapwood.engine.kernel import KERNEL, REASON

        engine = "compiled kernel" if KERNEL is not None else f"pure Python: {REASON}"
        print(f"sapwood {__version__} ({engine})")
        raise typer.Exit


app = typer.Typer(
    help="Match, reshape and join XML messages for very many standing queries at once.",
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and the engine."
        ),
    ] = False,
) -> None:
    """Match, reshape and join XML messages for very many standing queries at once."""


def main() -> None:
    """Run the command; an expected error is printed as one line, without a traceback."""
    # NumPy's linear algebra, which nothing here uses, would start a busy thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        copy_context().run(app)  # context variables that a command sets are local to it
    except SapwoodError as error:
        fail(str(error))
    except BrokenPipeError:  # the reader of stdout has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries to flush it again
        fail(f"the output cannot be written: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(130)
