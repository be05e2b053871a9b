"""The reference of the `sapwood` command in Markdown, generated from the typer application.

It reads only what all versions of typer have, so that it does not differ from one to the next.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

from typer.main import get_command

from sapwood.cli import app

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")


def command_reference() -> str:
    """Return the sections of all commands, with their arguments and options."""
    root: Any = get_command(app)
    context = root.make_context("sapwood", [], resilient_parsing=True)
    return "\n".join(_sections(root, context, "sapwood", 2))


def _sections(command: Any, context: Any, path: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{path}`\n"
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    shown = [option for option in options if option.name != "help" and not option.hidden]
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    yield "    " + " ".join([path, *_usage(arguments, bool(shown), bool(names))]) + "\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield escape(" ".join(paragraph.split())) + "\n"
    if arguments:
        yield from _table("argument", [(f"`{_metavar(argument)}`", argument) for argument in arguments])
    if shown:
        yield from _table("option", [(_flags(option), option) for option in shown])
    for name in names:
        yield from _sections(command.get_command(context, name), context, f"{path} {name}", min(level + 1, 3))


def _usage(arguments: list[Any], has_options: bool, has_commands: bool) -> Iterator[str]:
    if has_options:
        yield "[OPTIONS]"
    for argument in arguments:
        name = _metavar(argument)
        yield name if argument.required else f"[{name}]"
    if has_commands:
        yield "COMMAND"


def _metavar(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return f"{name}..." if parameter.nargs == -1 and not name.endswith("...") else name


def _table(kind: str, rows: list[tuple[str, Any]]) -> Iterator[str]:
    yield f"| {kind} | |"
    yield "|---|---|"
    for name, parameter in rows:
        notes = [escape(" ".join((parameter.help or "").split())), *_notes(parameter)]
        yield f"| {name} | {' '.join(note for note in notes if note)} |"
    yield ""


def _notes(parameter: Any) -> Iterator[str]:
    if choices := _choices(parameter):
        yield f"One of {', '.join(f'`{choice}`' for choice in choices)}."
    default = parameter.default
    if parameter.show_default and default not in (None, False, True, (), []) and not callable(default):
        yield f"Default: `{default.value if isinstance(default, Enum) else default}`."
    if parameter.envvar:
        yield f"Environment variable: `{parameter.envvar}`."


def _choices(parameter: Any) -> list[str]:
    described = getattr(parameter, "type_descriptor", None)
    found = described.annotation if described is not None else getattr(parameter.type, "choices", ())
    if isinstance(found, type) and issubclass(found, Enum):
        return [choice.value for choice in found]
    return [str(choice) for choice in found] if isinstance(found, list | tuple) else []


def _flags(option: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in [*option.opts, *option.secondary_opts])
    return flags if option.is_flag or _choices(option) else f"{flags} `{_metavar(option)}`"


def escape(text: str) -> str:
    """Return text in which no character is Markdown."""
    return _SPECIAL.sub(r"\\\1", text)
