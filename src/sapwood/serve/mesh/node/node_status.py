"""The state of a node, as operators see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sapwood.mesh.core.node import Node
from sapwood.mesh.wire.topology_codec import encode_topology
from sapwood.serve.mesh.mesh_frames import MeshStatus


def describe_node(
    node: Node,
    traffic: Mapping[str, Mapping[str, object]],
    counters: Counter[str],
    incarnation: int,
    subscriptions: int,
) -> MeshStatus:
    """Return the state of a node, given what was measured on its links, and counted."""
    links: dict[str, dict[str, Any]] = {}
    for name, measured in traffic.items():
        told, wanted = node.table.told[name], node.table.wanted[name]
        links[name] = {
            "open": node.is_open(name),
            "outbox": node.outbox(name),
            "unsettled": node.unsettled_for(name),
            "version": told.version,
            "confirmed": told.confirmed,
            "routes out": told.count,
            "generalised": told.generalised,
            "routes in": wanted.count,
            "knows table": not node.table.is_unknown(name),
            **measured,
        }
    counters["late"] = node.late
    counters["duplicates"] = node.duplicates
    return MeshStatus(
        encode_topology(node.topology),
        incarnation,
        links,
        dict(counters),
        node.unsettled(),
        node.unconfirmed,
        node.waiting,
        len(node.table),
        subscriptions,
        node.floors,
        node.positions,
    )
