"""A site that the network is cut off from for some time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.mesh.mesh_clients import MeshClients, publish_all
from tests.support.mesh.mesh_load import HostedRow, SourcedMessage
from tests.support.mesh.network_namespaces import CutMesh, NetworkNamespace
from tests.support.mesh.trees import need_nats
from tests.support.service.broker_oracle import Row
from tests.support.service.random_load import EPOCH, RandomMessage

pytestmark = [pytest.mark.long, pytest.mark.server]
_TREE = {"root": None, "inner": "root", "host": "inner"}


def _messages(sources: list[str], first: int, end: int) -> list[SourcedMessage]:
    return [_message(source, number) for number in range(first, end) for source in sources]


def _message(source: str, number: int) -> SourcedMessage:
    body = f"<m>{source} {number}</m>".encode()
    return SourcedMessage(source, RandomMessage(f"{source}-{number}", "s", EPOCH + number, body))


@pytest.mark.parametrize(
    ("site", "seconds"),
    [("host", 5), ("host", 30), ("inner", 30), ("host", 150)],
)
def test_a_site_that_is_cut_off_serves_its_own_and_drains_afterwards(
    tmp_path: Path, site: str, seconds: float
) -> None:
    """B.9: publishers and subscribers of the site, and those of the others, go on; when the network is back,
    all have everything, once and in order."""
    need_nats()
    each = 60
    sources = list(_TREE)
    with (
        NetworkNamespace("sapwood-cut") as namespace,
        CutMesh(tmp_path, _TREE, site, namespace) as mesh,
        MeshClients(mesh) as clients,
    ):
        for host in _TREE:
            clients.put(HostedRow(host, Row(host, "/m", host)))
        for publisher in publish_all(mesh, _messages(sources, 0, each)):
            publisher.finish()
        namespace.cut()
        healed = False
        try:
            started = time.monotonic()
            for publisher in publish_all(mesh, _messages(sources, each, 2 * each)):
                publisher.finish()
                assert publisher.slowest < 3, "a publisher waits for the network"
            clients.wait_for_message(site, site, {f"{site}-{2 * each - 1}"}, 5)
            time.sleep(max(0.0, started + seconds - time.monotonic()))
            others = [source for source in sources if source != site]
            missing = {f"{source}-{2 * each - 1}" for source in others}
            assert not missing & {got.message for got in clients.read(site, site)}, "the site is not cut off"
            namespace.heal()
            healed = True
            began = time.monotonic()
            for publisher in publish_all(mesh, _messages(sources, 2 * each, 3 * each)):
                publisher.finish()
            for host in _TREE:
                clients.wait_for(host, host, 3 * each * len(sources), 60)
            print(f"cut off for {seconds} s, all is there {time.monotonic() - began:.1f} s after")
            clients.wait_quiet()
            for host in _TREE:
                received = [got.message for got in clients.read(host, host)]
                assert len(received) == 3 * each * len(sources), host
                for source in sources:
                    found = [id for id in received if id.startswith(f"{source}-")]
                    assert found == [f"{source}-{n}" for n in range(3 * each)], f"of {source} at {host}"
        finally:
            if not healed:
                namespace.heal()
