"""The metrics of a mesh, as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from sapwood.serve.mesh.administration.mesh_metrics import MeshCollector
from sapwood.serve.mesh.mesh_frames import MeshStatus

LINK = {"open": True, "outbox": 3, "unsettled": 4, "routes in": 5, "version": 9, "confirmed": 8}


def read(status: MeshStatus | None) -> str:
    registry = CollectorRegistry()
    registry.register(MeshCollector(lambda: (status, True, 6)))
    return generate_latest(registry).decode()


def test_a_node_that_has_not_reported() -> None:
    text = read(None)
    assert "sapwood_mesh_connected 1.0" in text and "sapwood_mesh_topology_version 6.0" in text
    assert "unsettled" not in text


def test_counters_and_links() -> None:
    traffic = {"messages in": 10, "messages out": 11, "bytes in": 12, "bytes out": 13}
    traffic["cut bytes out"] = 14
    counters = {"late": 0, "lost": 1, "duplicates": 2, "decided by hits": 3}
    status = MeshStatus(b"", 1, {"b": LINK | traffic}, counters, 7, 2, 0, 5, 1, {}, {})
    lines = read(status).splitlines()
    for line in (
        "sapwood_mesh_unsettled 7.0",
        "sapwood_mesh_unconfirmed 2.0",
        "sapwood_mesh_lost_total 1.0",
        "sapwood_mesh_late_total 0.0",
        "sapwood_mesh_duplicates_total 2.0",
        'sapwood_mesh_link_open{link="b"} 1.0',
        'sapwood_mesh_link_outbox{link="b"} 3.0',
        'sapwood_mesh_link_table_version{link="b"} 9.0',
        'sapwood_mesh_link_table_confirmed{link="b"} 8.0',
        'sapwood_mesh_link_messages_out_total{link="b"} 11.0',
        'sapwood_mesh_link_cut_bytes_out_total{link="b"} 14.0',
        "sapwood_mesh_decided_by_hits_total 3.0",
    ):
        assert line in lines
