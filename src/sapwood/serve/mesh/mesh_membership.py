"""The place of a broker in the directory of its mesh: lease, identity, and the tree."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from sapwood.errors import SapwoodError
from sapwood.mesh.core.membership import HEARTBEAT, SUSPECT, Membership, Proposal
from sapwood.mesh.core.topology import Topology, TopologyError
from sapwood.mesh.nats.connection import cancel, spawn
from sapwood.mesh.nats.directory import MeshDirectory, RevisionConflict
from sapwood.mesh.nats.errors import MeshUnavailable
from sapwood.mesh.nats.settings import TransportSettings
from sapwood.mesh.wire.topology_codec import TopologyFormatError, decode_topology, encode_topology

_log = logging.getLogger(__name__)
_TICK = 0.25
_RETRY = 1.0
TOPOLOGY = "topology"
OnTopology = Callable[[Topology], None]


class BrokerNameTaken(SapwoodError):
    """Raised if the mesh knows a broker's name with another log."""


class TopologyChangedMeanwhile(SapwoodError):
    """Raised for a change of a tree that is another one now."""


class MeshMembership:
    """Keeps the lease of a broker, watches those of others, and lets dead ones be passed by."""

    def __init__(
        self,
        settings: TransportSettings,
        parent: str | None,
        identity: str,
        describe: Callable[[], dict[str, Any]],
        on_topology: OnTopology,
    ) -> None:
        self._settings = settings
        self._broker = settings.broker
        self._parent = parent
        self._identity = identity
        self._describe = describe
        self._on_topology = on_topology
        self.directory = MeshDirectory(settings)
        self.membership = Membership(settings.broker, Topology())
        self._revision = 0
        self._renewed_at = -SUSPECT
        self.problem: str | None = "the directory of the mesh was not reached yet"
        """why the broker is not in the mesh at present"""
        self.leases: dict[str, dict[str, Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_complete = False
        self.is_leaving = False
        """whether the broker was drained, and must not join again by itself"""

    # -- start and end ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect, and to keep the lease."""
        await self.directory.start()
        self.directory.watch(self._on_change, self._on_complete)
        self._tasks = [
            spawn(self._forever(self._renew, HEARTBEAT), "lease in the mesh"),
            spawn(self._forever(self._tick, _TICK), "membership of the mesh"),
            spawn(self._forever(self._join, _RETRY), "join of the mesh"),
        ]

    async def stop(self) -> None:
        """End; the lease runs out by itself."""
        await cancel(*self._tasks)
        await self.directory.stop()

    async def _forever(self, work: Callable[[], Any], interval: float) -> None:
        while True:
            try:
                await work()
            except (MeshUnavailable, RevisionConflict, TopologyChangedMeanwhile) as error:
                _log.debug("mesh: %s", error)
            except SapwoodError as error:
                if self.problem != str(error):
                    _log.error("mesh: %s", error)
                self.problem = str(error)
            except Exception:
                _log.exception("mesh: a defect in %s", work.__name__)
            await asyncio.sleep(interval)

    # -- the directory ---------------------------------------------------------------------------------

    @property
    def topology(self) -> Topology:
        """The tree that the directory had last."""
        return self.membership.topology

    @property
    def is_visible(self) -> bool:
        """Whether the directory can be reached."""
        return time.monotonic() - self._renewed_at < SUSPECT

    def _on_complete(self) -> None:
        self._is_complete = True

    def _on_change(self, key: str, value: bytes | None, revision: int) -> None:
        if key == TOPOLOGY and value is not None:
            self._see_topology(value, revision)
        elif key.startswith("brokers.") and value is not None:
            name = key.removeprefix("brokers.")
            try:
                self.leases[name] = json.loads(value)
            except ValueError:
                _log.warning("the lease of %s cannot be read", name)
            self.membership.renewed(name)

    def _see_topology(self, value: bytes, revision: int) -> None:
        try:
            topology = decode_topology(value)
        except (TopologyFormatError, TopologyError) as error:
            _log.error("mesh: %s", error)
            return
        self._revision = revision
        if topology.version > self.topology.version:
            self.membership.change_topology(topology)
            self._on_topology(topology)

    async def _renew(self) -> None:
        lease = self._describe() | {"identity": self._identity, "time": time.time()}
        await self.directory.put(f"brokers.{self._broker}", json.dumps(lease).encode())
        self._renewed_at = time.monotonic()

    async def _tick(self) -> None:
        proposal = self.membership.tick(time.monotonic(), self.is_visible and self._is_complete)
        if proposal is not None:
            _log.warning("mesh: a new tree is proposed, because %s", proposal.reason)
            await self.propose(proposal)

    async def propose(self, proposal: Proposal) -> None:
        """Put a tree into the directory, unless another one is there now."""
        if proposal.before != self.topology.version:
            raise TopologyChangedMeanwhile("the tree of the mesh has changed meanwhile; look, and try again")
        revision = await self.directory.update(TOPOLOGY, encode_topology(proposal.topology), self._revision)
        self._see_topology(encode_topology(proposal.topology), revision)

    # -- joining ---------------------------------------------------------------------------------------

    async def _join(self) -> None:
        """Enter the tree, if the broker is not there; claim the name for its log."""
        if not self.is_visible or not self._is_complete or self.is_leaving:
            return
        await self._claim()
        if self._broker in self.topology:
            self.problem = None
            return
        if not len(self.topology):
            if self._parent is not None:
                self.problem = f"the parent {self._parent!r} has not joined the mesh yet"
                return
            first = Topology().join(self._broker, None)
            try:
                revision = await self.directory.create(TOPOLOGY, encode_topology(first))
            except RevisionConflict:
                revision = await self.directory.update(TOPOLOGY, encode_topology(first), self._revision)
            self._see_topology(encode_topology(first), revision)
        elif self._parent is None:
            raise TopologyError(
                f"the mesh {self._settings.mesh!r} has a root, {self.topology.root!r}: "
                "set mesh.parent to the broker that this one is to be linked with"
            )
        elif self._parent not in self.topology:
            self.problem = f"the parent {self._parent!r} has not joined the mesh yet"
            return
        else:
            joined = self.topology.join(self._broker, self._parent)
            await self.propose(Proposal(self.topology.version, joined, f"{self._broker} joins"))
        _log.info("the broker %s has joined the mesh %s", self._broker, self._settings.mesh)
        self.problem = None

    async def _claim(self) -> None:
        """Check that no other log has this broker's name: its messages would be taken for duplicates."""
        key = f"sources.{self._broker}"
        found = await self.directory.read(key)
        if found is None:
            await self.directory.create(key, json.dumps({"identity": self._identity}).encode())
        elif json.loads(found[0]).get("identity") != self._identity:
            raise BrokerNameTaken(
                f"the mesh knows the broker {self._broker!r} with another log: give this one another name "
                "(mesh.broker), or serve the log that it had"
            )
