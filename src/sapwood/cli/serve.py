"""`sapwood serve`: the broker as a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sapwood.cli.common.extras import require_extra

if TYPE_CHECKING:
    from sapwood.serve.config import ServerConfig


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A TOML file of settings.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen at.")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 for a free one.", min=0, max=65_535)] = None,
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="URL", help="The message log: an SQLite file, or postgresql://…."),
    ] = None,
) -> None:
    """Serve the broker by HTTP: publish, subscribe, and listen; the API is described at /docs.

    Without a file of settings, it listens at http://127.0.0.1:8080, and keeps everything in sapwood.db.
    """
    with require_extra("serve", "sapwood serve"):
        from sapwood.serve.server import run
        from sapwood.serve.server_log import configure_logging

    settings = _read(config, host, port, log)
    configure_logging(settings.monitoring.log_level, settings.monitoring.log_format)
    run(settings, lambda url: _announce(settings, url))


def _read(config: Path | None, host: str | None, port: int | None, log: str | None) -> ServerConfig:
    from sapwood.serve.config import ServerConfig, read_config

    settings = read_config(config) if config is not None else ServerConfig()
    listen: dict[str, Any] = {"host": host, "port": port}
    given = {name: value for name, value in listen.items() if value is not None}
    changes: dict[str, Any] = {"listen": settings.listen.model_copy(update=given)}
    if log is not None:
        changes["log"] = settings.log.model_copy(update={"location": log})
    return settings.model_copy(update=changes)


def _announce(settings: ServerConfig, url: str) -> None:
    console = Console(stderr=True)
    console.print(f"Sapwood serves at [bold]{url}[/], the API is described at {url}/docs", soft_wrap=True)
    console.print(f"messages and subscriptions are in {settings.log.location}; Ctrl-C stops", soft_wrap=True)
