"""The reference of the service's file of settings in Markdown, generated from its model.

The meaning of a key is the text below it in the source.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ByteSize

from sapwood.serve import config
from sapwood.serve.config import ServerConfig

_OF_EACH = {
    "streams": "A table for each stream that needs one, such as `[streams.orders]`.",
    "tenants": "A table for each tenant with a quota of its own, such as `[tenants.acme]`, with the keys of "
    "[`quota`](#quota), which do not apply to it.",
    "limits": "Bounds on one message and on one query, such as `depth = 100`: the keys and defaults are in "
    "[messages, limits and failures](messages.md#limits).",
}


def server_file_reference() -> str:
    """Return a section for each table, with its keys, their defaults and meanings."""
    return "\n".join(_sections())


def _sections() -> Iterator[str]:
    for name, field in ServerConfig.model_fields.items():
        yield f"## `{name}`\n"
        model = (
            field.annotation if get_origin(field.annotation) is not dict else get_args(field.annotation)[1]
        )
        if name in _OF_EACH:
            yield f"{_OF_EACH[name]}\n"
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or name == "tenants":
            continue
        if name not in _OF_EACH:
            yield f"{inspect.cleandoc(model.__doc__ or '')}\n"
        yield from _table(model)


def _table(model: type[BaseModel]) -> Iterator[str]:
    meanings = read_meanings(model.__name__)
    yield "| key | default | |"
    yield "|---|---|---|"
    for key, field in model.model_fields.items():
        default = "" if field.default is None else f"`{format_default(field.default)}`"
        notes = [meanings.get(key, ""), _choices(field.annotation)]
        yield f"| `{key}` | {default} | {'; '.join(note for note in notes if note)} |"
    yield ""


def format_default(value: Any) -> str:
    """Return a default as TOML."""
    if isinstance(value, ByteSize):
        return f'"{value // 2**20}MiB"'
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _choices(annotation: Any) -> str:
    values = [value for value in get_args(annotation) if isinstance(value, str)]
    return f"one of {', '.join(f'`{json.dumps(value)}`' for value in values)}" if values else ""


def read_meanings(name: str) -> dict[str, str]:
    """Return the texts below the keys of a class."""
    module = ast.parse(inspect.getsource(config))
    [found] = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name]
    meanings: dict[str, str] = {}
    for key, text in zip(found.body, found.body[1:], strict=False):
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name) and isinstance(text, ast.Expr):
            value = ast.literal_eval(text.value)
            meanings[key.target.id] = " ".join(str(value).split())
    return meanings
