"""A broker's part in the move of a subscription: as the host that has it, or the one that gets it.

    new host   hold    stores a copy for nobody: all brokers learn of its routes, and nothing is delivered
    old host   yield   has all that was published before, pauses the subscription, and tells its positions
    new host   adopt   has all that was published before, delivers what is behind the positions, and goes on
    old host   drop    deletes the paused subscription

Each state is in a store: a broker that ends in the middle goes on with it, and the move can be finished.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from sapwood.errors import SapwoodError
from sapwood.serve.engine.frames import ChangeStore
from sapwood.serve.engine.subscription_changes import Changed
from sapwood.serve.log import log_schema
from sapwood.serve.mesh.mesh_frames import AdoptSubscription
from sapwood.serve.mesh.node import mesh_schema
from sapwood.store import NewSubscription

if TYPE_CHECKING:
    from sapwood.serve.mesh.mesh_service import MeshService
    from sapwood.serve.service import Service

_log = logging.getLogger(__name__)


class MoveRefused(SapwoodError):
    """Raised by a host that cannot do its part of a move."""


class SubscriptionHost:
    """Does what a move asks of this broker."""

    def __init__(self, service: Service, mesh: MeshService) -> None:
        self._service = service
        self._mesh = mesh

    def register(self) -> None:
        """Take part in moves from now on."""
        self._mesh.queries.answer_all(
            {"hold": self._hold, "yield": self._yield, "adopt": self._adopt, "drop": self._drop}
        )

    async def _change(self, tenant: str, operation: str, **arguments: Any) -> Any:
        return await self._service.engine.request(lambda n: ChangeStore(n, tenant, operation, arguments))

    # -- the new host ----------------------------------------------------------------------------------

    async def _hold(
        self,
        tenant: str,
        id: str,
        query: str,
        language: str,
        active: bool,
        streams: list[str],
        namespaces: dict[str, str],
    ) -> bool:
        """Store a copy that delivers to nobody; return whether all brokers know of it in time."""
        await self._declare(tenant, namespaces)
        found = await asyncio.to_thread(self._service.store(tenant).get, id)
        if found is not None and not found.subscriber and found.query == query:  # of an attempt before
            return await self._mesh.wait_confirmed(found.since)
        row = NewSubscription(id, query, "", language, active, tuple(streams))
        try:
            changed: Changed = await self._change(tenant, "put", row=row, only_new=True)
        except SapwoodError as error:
            raise MoveRefused(f"{self._mesh.config.broker} refuses {id!r}: {error}") from None
        return await self._mesh.wait_confirmed(changed.version)

    async def _declare(self, tenant: str, namespaces: dict[str, str]) -> None:
        known = await asyncio.to_thread(lambda: self._service.store(tenant).namespaces)
        for prefix, uri in namespaces.items():
            if known.get(prefix, uri) != uri:
                raise MoveRefused(
                    f"the prefix {prefix!r} means {known[prefix]!r} at {self._mesh.config.broker}, and "
                    f"{uri!r} at the other broker: change the query to another prefix"
                )
        new = {prefix: uri for prefix, uri in namespaces.items() if prefix not in known}
        if new:
            await self._change(tenant, "declare", namespaces=new)

    async def _adopt(self, tenant: str, id: str, subscriber: str, positions: dict[str, int] | None) -> int:
        """Deliver what is behind the positions, and go on; return how many deliveries that were.

        Without positions, it is a subscription that is paused, and stays so.
        """
        if positions is None:
            try:
                await self._change(tenant, "patch", id=id, fields={"subscriber": subscriber})
            except KeyError:
                raise self._gone(id) from None
            return 0
        await self._wait_barrier()
        try:
            changed, count = await self._service.engine.request(
                lambda n: AdoptSubscription(n, tenant, id, subscriber, positions)
            )
        except KeyError:
            raise self._gone(id) from None
        text = "the subscription %r goes on here, with %d deliveries of its move"
        _log.info(text, id, count, extra={"tenant": tenant})
        await self._mesh.wait_confirmed(changed.version)
        adopted: int = count
        return adopted

    def _gone(self, id: str) -> MoveRefused:
        return MoveRefused(f"somebody has removed {id!r} at {self._mesh.config.broker} meanwhile")

    async def _wait_barrier(self) -> None:
        _, passed = await self._mesh.request_all("barrier")
        if not passed:
            raise MoveRefused(
                f"not all messages that were published have arrived at {self._mesh.config.broker} within "
                f"{self._mesh.config.confirm_wait} (mesh.confirm_wait): see that all brokers are linked"
            )

    # -- the old host ----------------------------------------------------------------------------------

    async def _yield(self, tenant: str, id: str, expected: int, is_paused: bool = False) -> dict[str, int]:
        """Pause a subscription, unless a former attempt has; return the positions up to which it was
        matched with all messages."""
        before: dict[str, int] = {}
        if not is_paused:
            await self._wait_barrier()
            before = await self._mesh.request("positions")
            fields = {"active": False}
            try:
                changed: Changed = await self._change(
                    tenant, "patch", id=id, fields=fields, expected=expected
                )
            except KeyError:
                raise self._gone(id) from None
            expected = changed.version
        sources = {*before, *await self._mesh.request("positions")}
        found = await asyncio.to_thread(self._read_positions, sources, expected)
        return {source: max(found.get(source, 0), before.get(source, 0)) for source in sources}

    def _read_positions(self, sources: Iterable[str], before: int) -> dict[str, int]:
        """Return, by source, the last message that was matched before a version of the store."""
        columns, log = mesh_schema.messages.c, log_schema.messages.c
        query = select(columns.number)
        query = query.join_from(mesh_schema.messages, log_schema.messages, columns.seq == log.seq)
        found: dict[str, int] = {}
        for source in sources:
            last = query.where(columns.source == source, log.version < before)
            for row in self._service.reader.read_rows(last.order_by(columns.number.desc()).limit(1)):
                found[source] = row["number"]
        return found

    async def _drop(self, tenant: str, id: str) -> None:
        """Delete a subscription that is hosted elsewhere now."""
        try:
            await self._change(tenant, "remove", id=id)
        except KeyError:
            _log.info("the subscription %r was deleted before", id, extra={"tenant": tenant})
