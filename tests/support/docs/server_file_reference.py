"""The reference of the service's file of settings in Markdown, generated from its model.

The meaning of a key is the text below it in the source.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ByteSize

from sapwood.serve.config import ServerConfig

_OF_EACH = {
    "streams": "A table for each stream that needs one, such as `[streams.orders]`.",
    "tenants": "A table for each tenant with a quota of its own, such as `[tenants.acme]`, with the keys of "
    "[`quota`](#quota), which do not apply to it.",
    "limits": "Bounds on one message and on one query, such as `depth = 100`: the keys and defaults are in "
    "[messages, limits and failures](messages.md#limits).",
}

_UNITS = (("MiB", 2**20), ("GB", 10**9), ("MB", 10**6), ("B", 1))


def server_file_reference() -> str:
    """Return a section for each table, with its keys, their defaults and meanings."""
    return "\n".join(_sections())


def _sections() -> Iterator[str]:
    for name, field in ServerConfig.model_fields.items():
        yield f"## `{name}`\n"
        model = find_table(field.annotation)
        if name in _OF_EACH:
            yield f"{_OF_EACH[name]}\n"
        if model is None or name == "tenants":
            continue
        if name not in _OF_EACH:
            yield f"{inspect.cleandoc(model.__doc__ or '')}\n"
        yield from _table(model)


def find_table(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a table: of one that may be absent, or of each of several, too."""
    for type_ in (annotation, *get_args(annotation)):
        if isinstance(type_, type) and issubclass(type_, BaseModel):
            return type_
    return None


def _table(model: type[BaseModel]) -> Iterator[str]:
    meanings = read_meanings(model)
    yield "| key | default | |"
    yield "|---|---|---|"
    for key, field in model.model_fields.items():
        has_default = field.default is not None and not field.is_required()
        default = f"`{format_default(field.default)}`" if has_default else ""
        notes = [meanings.get(key, ""), _choices(field.annotation)]
        yield f"| `{key}` | {default} | {'; '.join(note for note in notes if note)} |"
    yield ""


def format_default(value: Any) -> str:
    """Return a default as TOML."""
    if isinstance(value, ByteSize):
        unit, size = next(each for each in _UNITS if value % each[1] == 0)
        return f'"{value // size}{unit}"'
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _choices(annotation: Any) -> str:
    values = [value for value in get_args(annotation) if isinstance(value, str)]
    return f"one of {', '.join(f'`{json.dumps(value)}`' for value in values)}" if values else ""


def read_meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the texts below the keys of a class."""
    module = ast.parse(inspect.getsource(sys.modules[model.__module__]))
    [found] = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == model.__name__]
    meanings: dict[str, str] = {}
    for key, text in zip(found.body, found.body[1:], strict=False):
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name) and isinstance(text, ast.Expr):
            value = ast.literal_eval(text.value)
            meanings[key.target.id] = " ".join(str(value).split())
    return meanings
