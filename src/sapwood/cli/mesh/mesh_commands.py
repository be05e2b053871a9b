"""The commands of `sapwood mesh`: a thin layer over the HTTP API of any broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from sapwood.cli.common.console import write_line
from sapwood.cli.common.service_options import DEFAULT_URL, KeyOption, UrlOption, connect
from sapwood.cli.mesh.mesh_files import ConfigFiles, MeshPlan, read_tree

mesh = typer.Typer(
    help="Set up, watch and change a mesh: brokers on several sites that forward what others want.",
    no_args_is_help=True,
)
tree = typer.Typer(help="Change the tree of brokers.", no_args_is_help=True)
mesh.add_typer(tree, name="tree")

JsonOption = Annotated[bool, typer.Option("--json", help="Write the answer as JSON.")]
TenantOption = Annotated[
    str, typer.Option("--tenant", metavar="NAME", help="Whose it is.", show_default=False)
]
BrokerArgument = Annotated[str, typer.Argument(help="The name of a broker.")]
_MOVE_PATIENCE = 120.0


def _read(url: str, key: str | None, *names: str, **filters: object) -> dict[str, Any]:
    with connect(url, key, "sapwood mesh") as client:
        return client.read_mesh(*names, **filters)


def _change(url: str, key: str | None, *names: str, body: dict[str, Any], patience: float) -> dict[str, Any]:
    with connect(url, key, "sapwood mesh") as client:
        return client.change_mesh(*names, body=body, patience=patience)


def _show(found: dict[str, Any], as_json: bool, draw: Callable[[], Iterable[Any]]) -> None:
    """Print an answer, as it is or for people."""
    if as_json:
        write_line(found)
        sys.stdout.flush()
        return
    from rich.console import Console

    console = Console(highlight=False)
    for part in draw():
        console.print(part, soft_wrap=isinstance(part, str))


# -- what there is -----------------------------------------------------------------------------------------


@mesh.command("status")
def status(url: UrlOption = DEFAULT_URL, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Show all brokers: their leases, versions, traffic, queues, and what went wrong."""
    from sapwood.cli.mesh.mesh_views import show_status

    found = _read(url, key, "brokers")
    _show(found, as_json, lambda: [show_status(found["brokers"])])


@mesh.command("topology")
def topology(url: UrlOption = DEFAULT_URL, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Draw the tree of brokers, with rates, queues and tables of its links."""
    from sapwood.cli.mesh.mesh_views import draw_tree

    found = _read(url, key, "topology")
    _show(found, as_json, lambda: [f"tree, version {found['version']}", draw_tree(found)])


@mesh.command("tables")
def tables(
    broker: Annotated[
        str | None, typer.Argument(help="Whose tables; by default those of the broker at --url.")
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="BROKER", help="Only what is wanted on its side; by default local subscriptions, too."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Routes of each side that are shown.")] = 50,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which messages a broker sends to which neighbour, and what its own subscriptions want."""
    from sapwood.cli.mesh.mesh_views import show_routes

    with connect(url, key, "sapwood mesh tables") as client:
        whose = broker if broker is not None else client.read_mesh()["broker"]
        sides: list[str | None] = [link]
        if link is None:
            parents = client.read_mesh("topology")["parents"]
            sides += [name for name, parent in parents.items() if parent == whose]
            sides += [parents[whose]] if parents.get(whose) else []
        pages = [client.read_mesh("tables", broker=whose, link=side, limit=limit) for side in sides]
    for page in pages:
        _show(page, as_json, lambda page=page: show_routes(page))  # type: ignore[misc]


@mesh.command("explain")
def explain(
    id: Annotated[str, typer.Argument(help="The id of a subscription.")],
    tenant: TenantOption = "",
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell where a subscription is hosted, and which brokers send it what it wants."""
    from sapwood.cli.mesh.mesh_views import explain_subscription

    found = _read(url, key, "explain", id, tenant=tenant or None)
    _show(found, as_json, lambda: explain_subscription(found))


@mesh.command("trace")
def trace(
    id: Annotated[str, typer.Argument(help="The id of a message.")],
    tenant: TenantOption = "",
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell the way of a message: where it came by, which links it was sent on and why, who refused it."""
    from sapwood.cli.mesh.mesh_views import show_trace

    found = _read(url, key, "trace", id, tenant=tenant or None)
    _show(found, as_json, lambda: show_trace(found))


@mesh.command("check")
def check(url: UrlOption = DEFAULT_URL, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Check that both ends of all links agree, and nothing is lost or waits; exit with 1 if not."""
    from sapwood.cli.mesh.mesh_views import show_findings

    found = _read(url, key, "check")
    _show(found, as_json, lambda: show_findings(found))
    if not found["consistent"]:
        raise typer.Exit(1)


# -- changes -----------------------------------------------------------------------------------------------


@mesh.command("move")
def move(
    ids: Annotated[list[str], typer.Argument(help="The ids of subscriptions.")],
    to: Annotated[str, typer.Option("--to", metavar="BROKER", help="The broker that is to host them.")],
    tenant: TenantOption = "",
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move subscriptions to another broker; no delivery is lost, and none is made twice.

    What is in the inbox of a subscriber stays at the former host.
    """
    for id in ids:
        body = {"ids": [id], "to": to, "tenant": tenant}
        found = _change(url, key, "subscriptions", "move", body=body, patience=_MOVE_PATIENCE)
        _show(found, as_json, lambda found=found: map(_describe_move, found["moved"]))  # type: ignore[misc]


def _describe_move(moved: dict[str, Any]) -> str:
    if moved["source"] == moved["target"]:
        return f"{moved['id']} is at {moved['target']} already"
    return f"{moved['id']}: {moved['source']} → {moved['target']}"


@mesh.command("drain")
def drain(
    broker: BrokerArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also if it hosts subscriptions, or does not answer.")
    ] = False,
    wait: Annotated[float, typer.Option(min=0, max=3_600, help="Seconds until all has arrived.")] = 60.0,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a broker out of the mesh when all published there has arrived; exit with 1 if it stays."""
    body = {"broker": broker, "force": force, "wait": wait}
    found = _change(url, key, "drain", body=body, patience=wait + _MOVE_PATIENCE)
    told = f"{broker} has left the mesh; its server can be stopped" if found["removed"] else found["reason"]
    _show(found, as_json, lambda: [told])
    if not found["removed"]:
        raise typer.Exit(1)


@tree.command("move")
def move_broker(
    broker: BrokerArgument,
    parent: Annotated[str, typer.Option("--parent", metavar="BROKER", help="Its new parent.")],
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Link a broker, with all below it, with another parent."""
    body = {"broker": broker, "parent": parent}
    found = _change(url, key, "topology", "move", body=body, patience=_MOVE_PATIENCE)
    told = f"{broker} is linked with {parent}; the tree has version {found['version']}"
    _show(found, as_json, lambda: [told])


# -- setting up --------------------------------------------------------------------------------------------


@mesh.command("init")
def init(
    name: Annotated[str, typer.Argument(help="The name of the mesh.")],
    brokers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BROKER[:PARENT]...", help="The brokers, with their parents but for the root."
        ),
    ] = None,
    tree_file: Annotated[
        Path | None,
        typer.Option("--tree", metavar="FILE", help="A file with BROKER[:PARENT] in each line instead."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the files are written.")] = Path(
        "mesh"
    ),
    servers: Annotated[
        list[str] | None,
        typer.Option(
            "--servers",
            metavar="URL",
            help="NATS servers that are there already, for all brokers; by default each site gets one.",
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="BROKER=HOST", help="The machine of a broker, or of the hub; else this one."
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Of the first broker on a machine.", min=1, max=65_000)] = 8_080,
    nats_port: Annotated[
        int, typer.Option(help="Of the first NATS server on a machine.", min=1, max=65_000)
    ] = 4_222,
    leaf_port: Annotated[int, typer.Option(help="For sites, at the hub.", min=1, max=65_000)] = 7_422,
) -> None:
    """Write the files of settings for all brokers of a mesh and their NATS servers, and say what to start."""
    parents = read_tree(brokers or [], tree_file)
    plan = MeshPlan(
        name, parents, tuple(servers or ()), _parse_hosts(hosts or []), port, nats_port, leaf_port
    )
    for line in ConfigFiles(plan, out).write():
        print(line)


def _parse_hosts(given: list[str]) -> dict[str, str]:
    hosts: dict[str, str] = {}
    for text in given:
        broker, sign, host = text.partition("=")
        if not (sign and broker and host):
            raise typer.BadParameter(f"{text!r} is not BROKER=HOST", param_hint="--host")
        hosts[broker] = host
    return hosts


@mesh.command("demo")
def demo(
    seconds: Annotated[float | None, typer.Option(help="End by itself after so many seconds.", min=0)] = None,
) -> None:
    """Start three brokers with NATS servers on this machine, with made-up messages, and watch them.

    All is in a temporary folder, and gone at the end.
    """
    from sapwood.cli.mesh.mesh_demo import run_demo

    run_demo(seconds)
