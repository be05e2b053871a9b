"""The move of subscriptions between brokers, without a delivery lost or made twice.

Any broker can lead a move: the two hosts do the steps of `subscription_host`. A move that fails before the
old host has paused the subscription is undone; later ones are finished by the same request.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sapwood.errors import SapwoodError
from sapwood.lang.languages import XSCL
from sapwood.serve.mesh.mesh_errors import MoveError

if TYPE_CHECKING:
    from sapwood.serve.mesh.mesh_service import MeshService

_log = logging.getLogger(__name__)
_LONGER = 5.0
"""seconds that an answer may take beside what it waits for"""
_FIELDS = ("query", "language", "active", "streams", "namespaces")


@dataclass(frozen=True, slots=True)
class Moved:
    """A subscription that has another host."""

    id: str
    source: str
    target: str
    deliveries: int
    """of messages that its former host has not handled"""


class SubscriptionMove:
    """Leads moves of subscriptions of one tenant to a broker."""

    def __init__(self, mesh: MeshService, tenant: str, target: str) -> None:
        self._mesh = mesh
        self._tenant = tenant
        self._target = target
        self._wait = 2 * mesh.config.confirm_seconds + _LONGER

    async def move(self, id: str) -> Moved:
        """Move a subscription, or finish to; raises MoveError with what is to be done."""
        if self._target not in self._mesh.membership.topology:
            raise MoveError(f"there is no broker {self._target!r} in the mesh")
        hosts = await self._find_hosts(id)
        copy = hosts.pop(self._target, None)
        if not hosts:
            if copy is None:
                raise MoveError(f"no broker that answers has a subscription {id!r}")
            return Moved(id, self._target, self._target, 0)
        if len(hosts) > 1:
            raise MoveError(
                f"several brokers have a subscription {id!r}: {', '.join(sorted(hosts))}; remove all but one"
            )
        ((source, found),) = hosts.items()
        self._check(id, source, found)
        if copy is not None and not _is_copy(copy, found):
            raise MoveError(f"{self._target} has another subscription {id!r}: remove one of the two")
        if copy is not None and copy["subscriber"]:  # which goes on there already
            await self._ask(source, "drop", id=id)
            return Moved(id, source, self._target, 0)
        # One that is paused, and whose copy is not, was paused by an attempt before this one.
        state = found | {"active": copy["active"]} if copy is not None else found
        await self._hold(id, source, state)
        return await self._switch(id, source, state, is_paused=not found["active"])

    async def _find_hosts(self, id: str) -> dict[str, Any]:
        brokers = self._mesh.membership.topology.parents
        answers = await self._mesh.queries.ask_all(brokers, "subscription", tenant=self._tenant, id=id)
        silent = [name for name, answer in answers.items() if isinstance(answer, SapwoodError)]
        if self._target in silent:
            raise answers[self._target]
        hosts = {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
        if silent and not hosts.keys() - {self._target}:
            raise MoveError(f"{id!r} may be at a broker that does not answer: {', '.join(silent)}")
        return hosts

    def _check(self, id: str, source: str, found: dict[str, Any]) -> None:
        if found["language"] == XSCL:
            raise MoveError(
                f"{id!r} is a join, whose messages are at {source}: add it anew at {self._target} under "
                f"another id, and remove it at {source} when its windows have passed"
            )

    async def _ask(self, broker: str, what: str, **arguments: Any) -> Any:
        arguments["tenant"] = self._tenant
        return await self._mesh.queries.ask(broker, what, self._wait, **arguments)

    async def _hold(self, id: str, source: str, found: dict[str, Any]) -> None:
        """Let the new host store its copy; undone if not all brokers know of it."""
        confirmed = await self._ask(self._target, "hold", id=id, **{name: found[name] for name in _FIELDS})
        if not confirmed:
            await self._undo(id)
            raise MoveError(
                f"{id!r} stays at {source}: not all brokers know within {self._mesh.config.confirm_wait} "
                f"(mesh.confirm_wait) that {self._target} is to get its messages; see 'sapwood mesh check'"
            )

    async def _undo(self, id: str) -> None:
        try:
            await self._ask(self._target, "drop", id=id)
        except SapwoodError as error:
            _log.warning("the copy of %r at %s is to be removed: %s", id, self._target, error)

    async def _switch(self, id: str, source: str, found: dict[str, Any], is_paused: bool) -> Moved:
        try:
            positions = await self._ask(source, "yield", id=id, expected=found["since"], is_paused=is_paused)
        except SapwoodError as error:
            raise MoveError(
                f"{id!r} is still at {source}, and {self._target} has a copy that waits: {error}; "
                "move it again to finish, or remove the copy"
            ) from None
        try:
            count = await self._ask(
                self._target,
                "adopt",
                id=id,
                subscriber=found["subscriber"],
                positions=positions if found["active"] else None,
            )
            await self._ask(source, "drop", id=id)
        except SapwoodError as error:
            raise MoveError(
                f"{id!r} is paused at {source}, and {self._target} keeps its messages until it goes on: "
                f"{error}; move it again to finish"
            ) from None
        _log.info("the subscription %r was moved from %s to %s", id, source, self._target)
        return Moved(id, source, self._target, count)


def _is_copy(copy: dict[str, Any], found: dict[str, Any]) -> bool:
    """Return whether a subscription is the copy that a former attempt has left."""
    same = all(copy[name] == found[name] for name in ("query", "language", "streams"))
    has_gone_on = copy["subscriber"] == found["subscriber"] and not found["active"]
    return same and (not copy["subscriber"] or has_gone_on)
