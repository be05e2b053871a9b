"""`sapwood mesh demo`: three sites on this machine, and a view of them."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sapwood.cli.common.extras import require_extra
from sapwood.cli.mesh.mesh_views import draw_tree
from sapwood.errors import SapwoodError

if TYPE_CHECKING:
    from sapwood.client import Client

_REFRESH = 1.0
_CONFIG = '[monitoring]\nlog_level = "WARNING"\n'


def run_demo(seconds: float | None) -> None:
    """Start the sites, and show them until Ctrl-C, or for some seconds."""
    with require_extra("mesh", "sapwood mesh demo"):
        from sapwood.serve.demo.mesh_demo import SITES, fill, publish_until
        from sapwood.serve.mesh.local_mesh import LocalMesh

    console = Console(highlight=False)
    with _end_on_signals(), tempfile.TemporaryDirectory(prefix="sapwood-mesh-") as folder:
        started = time.monotonic()
        mesh = LocalMesh(Path(folder), SITES, config=_CONFIG)  # which tells what is not installed
        console.print(f"starting {len(SITES)} sites, each with a NATS server and a broker …")
        with mesh:
            urls = {name: mesh.url(name) for name in SITES}
            count = fill(urls)
            console.print(f"ready after {time.monotonic() - started:.0f} s, with {count} subscriptions")
            _show_commands(console, urls)
            stopped = threading.Event()
            publisher = threading.Thread(target=publish_until, args=(stopped, urls), daemon=True)
            publisher.start()
            try:
                _watch(console, next(iter(urls.values())), seconds)
            finally:
                stopped.set()
                publisher.join()
                console.print("ending all brokers and NATS servers …")


@contextmanager
def _end_on_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the demo in order."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_commands(console: Console, urls: Mapping[str, str]) -> None:
    from sapwood.serve.demo.mesh_demo import READER

    first, *_, last = urls
    url, other = urls[first], urls[last]
    order = "<order><customer>you</customer><total>999</total></order>"
    commands = {
        "listen": f"sapwood listen --subscriber {READER} --json --url {url}",
        "publish": f"curl -H 'Sapwood-Message-Id: hello' -d '{order}' {other}/v1/streams/orders/messages",
        "trace": f"sapwood mesh trace hello --url {url}",
        "explain": f"sapwood mesh explain {first}-orders --url {url}",
        "move": f"sapwood mesh move {first}-orders --to {last} --url {url}",
        "drain": f"sapwood mesh drain {last} --force --url {url}",
    }
    for site, address in urls.items():
        console.print(f"  {site:8} {address}/docs", soft_wrap=True)
    console.print("Messages are published at all sites; Ctrl-C ends it. Try, in another terminal:")
    for what, command in commands.items():
        console.print(f"  [dim]{what:8}[/]", end="")
        console.print(command, soft_wrap=True, markup=False)


def _watch(console: Console, url: str, seconds: float | None) -> None:
    from sapwood.client import Client

    deadline = None if seconds is None else time.monotonic() + seconds
    with Client(url, retries=0) as client, Live(console=console, auto_refresh=False) as live:
        while deadline is None or time.monotonic() < deadline:
            live.update(_draw(client), refresh=True)
            time.sleep(_REFRESH)


def _draw(client: Client) -> Group:
    try:
        return Group(Text(""), draw_tree(client.read_mesh("topology")))
    except SapwoodError as error:
        return Group(Text(""), Text(str(error), style="red"))
