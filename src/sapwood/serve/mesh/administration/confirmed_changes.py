"""Changes of subscriptions that all brokers of a mesh have to know.

A new query is told to all brokers before it takes the place of another: they forward what either one wants
while the subscription changes at a message boundary, so that none is missed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sapwood.errors import SapwoodError

if TYPE_CHECKING:
    from sapwood.serve.mesh.node.mesh_operations import QueryOfStreams
    from sapwood.serve.service import Service
    from sapwood.store import Subscription

_log = logging.getLogger(__name__)


class ConfirmedChange:
    """A change whose maker may wait until all brokers have it; without a mesh there is no wait."""

    def __init__(self, service: Service, wait: bool) -> None:
        self._mesh = service.mesh
        self._wait = wait
        self._deadline = time.monotonic()
        if self._mesh is not None:
            self._deadline += self._mesh.config.confirm_seconds

    @asynccontextmanager
    async def prepared(self, tenant: str, queries: Sequence[QueryOfStreams]) -> AsyncIterator[None]:
        """Let all brokers know of queries while subscriptions get them; wait for it as long as there is
        time."""
        mesh = self._mesh
        if mesh is None or not self._wait or not queries:
            yield
            return
        left = max(0.0, self._deadline - time.monotonic())
        number, done = await mesh.request_all("prepare all", left, tenant=tenant, queries=list(queries))
        if not done:
            _log.warning("not all brokers know of a changed query in time; it is changed all the same")
        try:
            yield
        finally:
            try:
                await mesh.request("release", prepared=number)
            except SapwoodError as error:  # with the engine, what was prepared is gone, too
                _log.info("a prepared query could not be taken back: %s", error)

    async def confirm(self, version: int) -> bool | None:
        """Return whether all brokers have a version in time; None without a mesh."""
        if self._mesh is None:
            return None
        left = max(0.0, self._deadline - time.monotonic()) if self._wait else 0.0
        return await self._mesh.wait_confirmed(version, left)


def list_changed(
    old: Subscription | None, query: str, streams: Sequence[str], language: str | None, active: bool
) -> list[QueryOfStreams]:
    """Return the query that a subscription is about to have in place of another one; none, if it is new, or
    paused, or stays as it is."""
    if old is None or not old.active or not active:
        return []
    if old.query == query and set(old.streams) == set(streams):
        return []
    return [(query, tuple(streams), language)]
