"""`sapwood keys`: make, list and revoke the keys of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from sapwood.cli.common.console import fail, write_line
from sapwood.cli.common.extras import require_extra
from sapwood.cli.common.options import JsonLinesOption

if TYPE_CHECKING:
    from sapwood.serve.auth.api_keys import KeyStore

keys = typer.Typer(
    help="Manage the keys of a broker, in its log; a server that runs sees changes within a second.",
    no_args_is_help=True,
)

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The server's file of settings.")
]
LogOption = Annotated[
    str | None,
    typer.Option("--log", metavar="URL", help="The message log: an SQLite file, or postgresql://…."),
]
TenantOption = Annotated[
    str, typer.Option("--tenant", metavar="NAME", help="The tenant.", show_default=False)
]


@contextmanager
def _open(config: Path | None, log: str | None) -> Iterator[KeyStore]:
    with require_extra("serve", "sapwood keys"):
        from sapwood.serve.auth.api_keys import KeyStore
        from sapwood.serve.config import ServerConfig, read_config
        from sapwood.serve.log.log_database import open_log

    settings = read_config(config) if config is not None else ServerConfig()
    database = open_log(log if log is not None else settings.log.location)
    try:
        yield KeyStore(database)
    finally:
        database.close()


@keys.command("add")
def add(
    scope: Annotated[
        list[str], typer.Option("--scope", help="publish, subscribe or admin; may be given several times.")
    ],
    tenant: TenantOption = "",
    name: Annotated[str, typer.Option(help="What it is for, so that you know which to revoke.")] = "",
    config: ConfigOption = None,
    log: LogOption = None,
) -> None:
    """Make a key and print it; it is stored as a hash, and cannot be shown again."""
    with _open(config, log) as store:
        _, text = store.add(scope, tenant, name)
    print(text)


@keys.command("list")
def list_keys(config: ConfigOption = None, log: LogOption = None, as_json: JsonLinesOption = False) -> None:
    """List the keys of all tenants, without their secrets."""
    with _open(config, log) as store:
        found = store.list_keys()
    console = Console()
    if as_json or not console.is_terminal:
        for key in found:
            fields = {"id": key.id, "tenant": key.tenant, "name": key.name, "scopes": sorted(key.scopes)}
            write_line(fields | {"created": key.created})
        return
    table = Table("id", "tenant", "name", "scopes", "created")
    for key in found:
        created = datetime.fromtimestamp(key.created, UTC).strftime("%Y-%m-%d %H:%M")
        table.add_row(key.id, key.tenant, key.name, " ".join(sorted(key.scopes)), created)
    console.print(table)


@keys.command("revoke")
def revoke(
    id: Annotated[str, typer.Argument(help="The id of the key, its part after sw_.")],
    config: ConfigOption = None,
    log: LogOption = None,
) -> None:
    """Revoke a key: requests with it are refused."""
    with _open(config, log) as store:
        if not store.revoke(id):
            fail(f"there is no key {id!r}; 'sapwood keys list' shows them")
