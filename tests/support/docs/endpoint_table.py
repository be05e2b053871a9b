"""The endpoints of the service in Markdown, generated from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from sapwood.serve.api.app import create_app
from sapwood.serve.config import ServerConfig


def endpoint_table() -> str:
    """Return a table of all endpoints, in the order of their tags."""
    return "\n".join(["| | | |", "|---|---|---|", *_rows(read_openapi())])


def read_openapi() -> dict[str, Any]:
    """Return the OpenAPI document, for which no service need run."""
    service: Any = SimpleNamespace(config=ServerConfig())
    return create_app(service).openapi()


def _rows(document: dict[str, Any]) -> Iterator[str]:
    for tag in document["tags"]:
        name = f"**{tag['name']}**"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield f"| {name} | `{method.upper()} {path}` | {operation['summary']} |"
                    name = ""
