"""The files of settings that `sapwood mesh init` writes: of brokers, and of their NATS servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sapwood.errors import ArgumentError

HUB = "hub"
_HERE = "127.0.0.1"


def read_tree(brokers: Sequence[str], file: Path | None) -> dict[str, str | None]:
    """Return, by broker, its parent, from arguments or the lines of a file; raises ArgumentError."""
    from sapwood.mesh.core.topology import TopologyError, build_tree

    lines = list(brokers)
    if file is not None:
        try:
            lines += file.read_text().splitlines()
        except OSError as error:
            raise ArgumentError(f"the tree cannot be read: {error}") from None
    parents: dict[str, str | None] = {}
    for line in lines:
        text = line.partition("#")[0].strip()
        if text:
            name, _, parent = (part.strip() for part in text.partition(":"))
            _check_name(name, parents)
            parents[name] = parent or None
    if not parents:
        raise ArgumentError("a mesh needs brokers: name them as BROKER[:PARENT], the root without a parent")
    try:
        build_tree(parents)
    except TopologyError as error:
        raise ArgumentError(str(error)) from None
    return parents


def _check_name(name: str, known: Mapping[str, str | None]) -> None:
    if name in known:
        raise ArgumentError(f"the broker {name!r} is there twice")
    if name == HUB:
        raise ArgumentError(f"{HUB!r} is the name of the hub's NATS server: give the broker another one")
    if not (name and name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
        raise ArgumentError(f"{name!r} cannot be a broker's name: letters, digits, '-' and '_' make one")


@dataclass(frozen=True, slots=True)
class MeshPlan:
    """A mesh that is to be set up."""

    name: str
    parents: Mapping[str, str | None]
    servers: Sequence[str]
    """NATS servers that are there already"""
    hosts: Mapping[str, str]
    port: int
    nats_port: int
    leaf_port: int

    def __post_init__(self) -> None:
        for broker in self.hosts:
            if broker not in self.parents and broker != HUB:
                raise ArgumentError(f"--host names {broker!r}, which is no broker of the mesh")

    def host(self, name: str) -> str:
        """Return the machine of a broker, or of the hub."""
        return self.hosts.get(name, _HERE)

    def number_ports(self, first: int, names: Sequence[str]) -> dict[str, int]:
        """Return ports, counted on from the first on each machine."""
        used: Counter[str] = Counter()
        ports: dict[str, int] = {}
        for name in names:
            ports[name] = first + used[self.host(name)]
            used[self.host(name)] += 1
        return ports


class ConfigFiles:
    """Writes the files of a mesh: a folder for each broker, and one for the hub."""

    def __init__(self, plan: MeshPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._ports = plan.number_ports(plan.port, list(plan.parents))
        self._nats_ports = plan.number_ports(plan.nats_port, [HUB, *plan.parents])

    def write(self) -> Iterator[str]:
        """Write all files, none of which may be there; yield what is to be started where."""
        texts = dict(self._make_files())
        present = [path for path in texts if path.exists()]
        if present:
            raise ArgumentError(f"{present[0]} is there already: remove it, or give another --out")
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        yield f"wrote {len(texts)} files to {self._folder}; start, in this order:"
        yield from self._list_commands()

    def _make_files(self) -> Iterator[tuple[Path, str]]:
        if not self._plan.servers:
            yield self._folder / HUB / "nats.conf", self._make_hub()
        for broker in self._plan.parents:
            if not self._plan.servers:
                yield self._folder / broker / "nats.conf", self._make_site(broker)
            yield self._folder / broker / "server.toml", self._make_server(broker)

    def _list_commands(self) -> Iterator[str]:
        plan = self._plan
        if not plan.servers:
            yield f"  {plan.host(HUB):16}  cd {self._folder / HUB} && nats-server -c nats.conf"
            for broker in plan.parents:
                yield f"  {plan.host(broker):16}  cd {self._folder / broker} && nats-server -c nats.conf"
        for broker in plan.parents:
            path = self._folder / broker / "server.toml"
            yield f"  {plan.host(broker):16}  sapwood serve --config {path}"
        first = next(iter(plan.parents))
        yield f"then: sapwood mesh status --url http://{plan.host(first)}:{self._ports[first]}"

    # -- NATS ------------------------------------------------------------------------------------------

    def _make_hub(self) -> str:
        plan = self._plan
        return "\n".join(
            [
                f"# The NATS server of the hub of the mesh {plan.name}: sites connect to it, and it keeps",
                "# the directory of brokers. So that it may fail, make it a cluster of three, and set",
                "# hub_replicas = 3 in the files of all brokers.",
                *self._make_head(HUB),
                "",
                "# where the servers of sites connect; over an open network, add tls { … } and authorization",
                f"leafnodes {{ listen: {_listen(plan.host(HUB))}:{plan.leaf_port} }}",
                "",
            ]
        )

    def _make_site(self, broker: str) -> str:
        plan = self._plan
        url = f"nats://{plan.host(HUB)}:{plan.leaf_port}"
        return "\n".join(
            [
                f"# The NATS server of the site {broker} in the mesh {plan.name}: it keeps what others send",
                "# while the broker is away, and goes on alone while the hub cannot be reached.",
                *self._make_head(broker),
                "",
                "# the way to the hub; with a password: nats://user:password@…",
                f'leafnodes {{ reconnect: 1, remotes: [ {{ urls: ["{url}"] }} ] }}',
                "",
            ]
        )

    def _make_head(self, name: str) -> list[str]:
        host = "127.0.0.1" if name != HUB else _listen(self._plan.host(HUB))
        return [
            f'server_name: "{name}"',
            f"# brokers of the site connect here{'' if name == HUB else ', from this machine only'}",
            f"listen: {host}:{self._nats_ports[name]}",
            "jetstream {",
            '  store_dir: "store"',
            "  max_file_store: 64GB",
            f'  domain: "{name}"',
            "  # sync_interval: always   # nats-server 2.10 or newer: acknowledge only what is on disk",
            "}",
        ]

    # -- brokers ---------------------------------------------------------------------------------------

    def _make_server(self, broker: str) -> str:
        plan = self._plan
        parent = plan.parents[broker]
        if plan.servers:
            servers = ", ".join(f'"{url}"' for url in plan.servers)
            nats = [f"servers = [{servers}]"]
        else:
            nats = [
                f'servers = ["nats://127.0.0.1:{self._nats_ports[broker]}"]',
                f'domain = "{broker}"  # the JetStream domains of this site and of the hub, as in nats.conf',
                f'hub_domain = "{HUB}"',
            ]
        return "\n".join(
            [
                f"# The broker {broker} of the mesh {plan.name}.",
                "",
                "[listen]",
                "# on another address than this machine's own, keys are needed:",
                "#   sapwood keys add --scope admin --config server.toml",
                f'host = "{_listen(plan.host(broker))}"',
                f"port = {self._ports[broker]}",
                "",
                "[log]",
                'location = "sapwood.db"',
                "",
                "[mesh]",
                f'name = "{plan.name}"',
                f'broker = "{broker}"  # stays the name of this log',
                f'parent = "{parent}"'
                if parent
                else "# no parent: it is the first one of the mesh, its root",
                *nats,
                '# user = "…"\n# password = "…"',
                '# confirm_wait = "10 s"  # how long a change of a subscription waits for all brokers',
                "",
            ]
        )


def _listen(host: str) -> str:
    return _HERE if host in (_HERE, "localhost") else "0.0.0.0"
