"""The errors of a mesh that publishers and operators see; free of libraries that a mesh needs."""

from __future__ import annotations

from sapwood.errors import SapwoodError


class MeshOverloaded(SapwoodError):
    """Raised for a publisher whose messages would wait too long for a link."""

    seconds = 2.0
    """after which it may try again"""


class BrokerSilent(SapwoodError):
    """Raised for a broker that does not answer."""


class BrokerRefused(SapwoodError):
    """Raised for a broker that answers with an error."""


class UnknownBroker(SapwoodError):
    """Raised for the name of a broker that is not in the mesh, or is no neighbour."""


class UnknownSubscription(SapwoodError):
    """Raised for a subscription that no broker has."""


class MoveError(SapwoodError):
    """Raised for a subscription that cannot be moved, or is in the middle of it."""
