"""Options of commands that speak to a broker service, and the client that they give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.cli.common.extras import require_extra

if TYPE_CHECKING:
    from sapwood.client import Client

UrlOption = Annotated[
    str, typer.Option("--url", metavar="URL", envvar="SAPWOOD_URL", help="The address of the broker.")
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        envvar="SAPWOOD_KEY",
        help="The key, if the broker demands one; others may see it on a command line.",
    ),
]
DEFAULT_URL = "http://127.0.0.1:8080"


@contextmanager
def connect(url: str, key: str | None, command: str) -> Iterator[Client]:
    """Yield a client of a broker; `command` is what needs the extra."""
    with require_extra("client", command):
        from sapwood.client import Client  # here, because other commands need no network

    with Client(url, key) as client:
        yield client
