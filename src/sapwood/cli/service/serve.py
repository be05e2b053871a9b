"""`sapwood serve`: the broker as a service."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sapwood.cli.common.extras import require_extra
from sapwood.cli.common.service_options import DEFAULT_URL

if TYPE_CHECKING:
    from sapwood.serve.config import ServerConfig
    from sapwood.serve.demo.demo_run import DemoSize


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
    demo: Annotated[
        bool,
        typer.Option(
            "--demo", help="Fill the broker with made-up subscriptions and messages, in a temporary folder."
        ),
    ] = False,
) -> None:
    """Serve the broker by HTTP: publish, subscribe, and listen; the API is described at /docs.

    Without a file of settings, it listens at http://127.0.0.1:8080, and keeps everything in sapwood.db.
    """
    if demo and (config is not None or log is not None):
        raise typer.BadParameter(
            "it has settings and a log of its own: leave out --config and --log", param_hint="--demo"
        )
    with require_extra("serve", "sapwood serve"):
        from sapwood.serve.launcher import run
        from sapwood.serve.server_log import configure_logging

    if demo:
        with tempfile.TemporaryDirectory(prefix="sapwood-demo-") as folder:
            _serve_demo(_read(None, host, port, str(Path(folder) / "sapwood-demo.db")))
        return
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


# -- the demo ----------------------------------------------------------------------------------------------


def _serve_demo(settings: ServerConfig) -> None:
    from sapwood.serve.demo.demo_run import run_demo
    from sapwood.serve.launcher import run
    from sapwood.serve.server_log import configure_logging

    quiet = settings.monitoring.model_copy(update={"log_level": "WARNING"})
    settings = settings.model_copy(update={"monitoring": quiet})
    configure_logging(quiet.log_level, quiet.log_format)
    console = Console(stderr=True)
    run(
        settings,
        lambda url: _announce(settings, url),
        lambda url: run_demo(url, lambda size: _announce_demo(console, url, size)),
    )


def _announce_demo(console: Console, url: str, size: DemoSize) -> None:
    from sapwood.serve.demo.demo_subscriptions import FOR_YOU, MERGED

    option = "" if url == DEFAULT_URL else f" --url {url}"
    order = '<order id="demo" express="yes"><customer>you</customer><total>999</total></order>'
    commands = {
        "listen": f"sapwood listen --subscriber {FOR_YOU} --json{option}",
        "publish": f"curl {url}/v1/streams/orders/messages -d '{order}'",
        "explain": f"curl -s '{url}/v1/explain?subscription={MERGED[0]}' | python3 -m json.tool",
    }
    console.print(
        f"{size.subscriptions:,} subscriptions and {size.messages:,} messages are there, four a second "
        "follow, and all is gone at the end. Try, in another terminal:",
        soft_wrap=True,
        highlight=False,
    )
    for what, command in commands.items():
        console.print(f"  [dim]{what:9}[/]", end="")
        console.print(command, soft_wrap=True, highlight=False, markup=False)
