"""The orderly leave of a broker: no more publishers, no children, nothing unsettled, then no link."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from sapwood.errors import SapwoodError
from sapwood.mesh.core.membership import Proposal
from sapwood.mesh.core.topology import Topology
from sapwood.serve.mesh.administration.broker_answers import BrokerAnswers

if TYPE_CHECKING:
    from sapwood.serve.mesh.mesh_service import MeshService

_log = logging.getLogger(__name__)
_LOOK = 0.2
_STATUS = 2.5
"""seconds after which the node's report is one of the state that it has now"""


class BrokerDrain:
    """Lets this broker leave the mesh."""

    def __init__(self, mesh: MeshService, answers: BrokerAnswers) -> None:
        self._mesh = mesh
        self._answers = answers

    def register(self) -> None:
        """Leave when somebody asks for it."""
        self._mesh.queries.answer_all({"drain": self.drain})

    @property
    def _topology(self) -> Topology:
        return self._mesh.membership.topology

    async def drain(self, force: bool, seconds: float) -> dict[str, Any]:
        """Leave the tree; return whether that was possible, and why not.

        A broker that stays refuses publishers until its server is started again.
        """
        name = self._mesh.config.broker
        deadline = time.monotonic() + seconds
        _log.warning("mesh: %s is drained: publishers are refused from now on", name)
        self._mesh.is_draining = True
        if len(self._topology) > 1 and self._topology.children(name):
            await self._propose(self._topology.bypass(name), f"{name} is drained")
        if not await self._wait_settled(deadline):
            problem = (
                f"not all that was published at {name} has arrived where it is wanted within {seconds:g} s"
            )
            return {"removed": False, "settled": False, "reason": f"{problem}; repeat to wait longer"}
        count = self._answers.count_subscriptions()
        if count and not force:
            reason = f"{name} hosts {count:,} subscriptions: move them, or remove it with force"
            return {"removed": False, "settled": True, "reason": reason}
        self._mesh.membership.is_leaving = True
        try:
            await self._propose(self._topology.leave(name), f"{name} leaves")
        except SapwoodError:
            self._mesh.membership.is_leaving = False
            raise
        _log.warning("mesh: %s has left; its server can be stopped", name)
        return {"removed": True, "settled": True, "reason": None}

    async def _propose(self, changed: Topology, reason: str) -> None:
        await self._mesh.membership.propose(Proposal(self._topology.version, changed, reason))

    async def _wait_settled(self, deadline: float) -> bool:
        """Wait until own messages are settled everywhere, and no link has anything to send."""
        await asyncio.sleep(min(_STATUS, max(0.0, deadline - time.monotonic())))
        while not self._is_settled():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LOOK)
        return True

    def _is_settled(self) -> bool:
        status, name = self._mesh.status, self._mesh.config.broker
        if status is None:
            return False
        own = status.positions.get(name, 0) <= status.floors.get(name, 0)
        return own and not any(state["outbox"] for state in status.links.values())
