"""Who of the brokers lives, and what is done about those that do not: leases that everybody watches.

Each broker renews a lease in the directory of the mesh. One that was not renewed for some time is that of a
dead broker, as seen from here, if the directory itself can be seen. The first living broker then proposes a
tree in which messages need not pass the dead one; if it does not, another one does. A proposal names the
version that it changes, so of several at a time the directory takes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sapwood.mesh.core.topology import Topology, repair

HEARTBEAT = 1.0
"""seconds between renewals"""
SUSPECT, DEAD = 3.0, 10.0
"""seconds without a renewal after which a broker is suspected, and taken for dead"""
_PATIENCE = 1.5
"""seconds that each broker waits longer than the one before it to propose a tree"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A tree to be put in place of the one before, unless that was changed meanwhile."""

    before: int
    """the version that it changes"""
    topology: Topology
    reason: str


class Membership:
    """The view of one broker on the leases of all."""

    def __init__(self, name: str, topology: Topology) -> None:
        self.name = name
        self.topology = topology
        self._seen: dict[str, float] = {}
        self._now = 0.0
        self._visible_at = 0.0
        self._proposed_at = -DEAD
        self._next_check = 0.0

    def renewed(self, name: str) -> None:
        """Note that a lease was renewed, now."""
        self._seen[name] = self._now

    def renew(self, names: Iterable[str]) -> None:
        """Note that leases were renewed, now."""
        self._seen.update(dict.fromkeys(names, self._now))

    def change_topology(self, topology: Topology) -> None:
        """Note that the tree is another one."""
        if topology.version > self.topology.version:
            self.topology = topology

    def age(self, name: str) -> float | None:
        """Return the seconds since a lease was renewed; None if it was never seen."""
        seen = self._seen.get(name)
        return None if seen is None else self._now - seen

    def is_alive(self, name: str) -> bool:
        """Return whether a broker is not dead, as far as it can be seen."""
        return name == self.name or self._now - self._seen.get(name, self._visible_at) < DEAD

    def tick(self, now: float, is_visible: bool = True) -> Proposal | None:
        """Return a tree to propose, if one is due; `is_visible` tells whether the directory can be read."""
        if not is_visible or now - self._now > DEAD / 2:
            self._visible_at = now  # what was not renewed meanwhile may only not have been seen
            self._seen = {}
        self._now = now
        if self.name not in self.topology or now - self._visible_at < DEAD or now < self._next_check:
            return None
        self._next_check = now + HEARTBEAT / 4
        return self._propose(now)

    def _propose(self, now: float) -> Proposal | None:
        topology = self.topology
        dead = [name for name in topology.parents if not self.is_alive(name)]
        if not any(len(topology.neighbours(name)) > 1 for name in dead):
            return None
        living = sorted(name for name in topology.parents if name not in dead)
        died = min(now - self._seen.get(name, self._visible_at) for name in dead)
        if died < DEAD + _PATIENCE * living.index(self.name) or now - self._proposed_at < HEARTBEAT:
            return None
        changed = repair(topology, dead)
        if changed is None:
            return None
        self._proposed_at = now
        return Proposal(topology.version, changed, f"{', '.join(sorted(dead))} did not renew the lease")
