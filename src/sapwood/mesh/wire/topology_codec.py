"""The tree of brokers as JSON, as it is in the directory of the mesh."""

from __future__ import annotations

import json

from sapwood.errors import SapwoodError
from sapwood.mesh.core.topology import Topology


class TopologyFormatError(SapwoodError):
    """Raised for a text that describes no tree of brokers."""


def encode_topology(topology: Topology) -> bytes:
    """Return a tree as JSON."""
    return json.dumps(
        {
            "version": topology.version,
            "reset": topology.reset,
            "parents": dict(sorted(topology.parents.items())),
            "joined": dict(sorted(topology.joined.items())),
        },
        separators=(",", ":"),
    ).encode()


def decode_topology(data: bytes | str) -> Topology:
    """Return the tree in JSON; raises TopologyFormatError."""
    try:
        fields = json.loads(data)
        version, reset = fields["version"], fields["reset"]
        parents, joined = fields["parents"], fields["joined"]
        if not (isinstance(version, int) and isinstance(reset, int)):
            raise TypeError("versions are whole numbers")
        if not all(isinstance(p, str | None) for p in parents.values()):
            raise TypeError("a parent is the name of a broker")
        if not all(isinstance(since, int) for since in joined.values()):
            raise TypeError("versions are whole numbers")
        return Topology(version, dict(parents), reset, dict(joined))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TopologyFormatError(f"the topology of the mesh cannot be read: {error}") from error
