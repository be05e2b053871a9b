"""What an operator can do to the JetStream of a site: look, purge, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import nats
from nats.aio.client import Client

from sapwood.mesh.nats.jetstream import JetStream
from sapwood.serve.mesh.local_mesh import LocalMesh

Value = TypeVar("Value")


class JetStreamAdmin:
    """Requests to the JetStream of the sites of a mesh; to be entered."""

    def __init__(self, mesh: LocalMesh) -> None:
        self._mesh = mesh
        self._loop = asyncio.new_event_loop()
        self._clients: dict[str, Client] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            self._run(client.close())
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return self._loop.run_until_complete(work)

    def _ask(self, site: str, operation: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            if site not in self._clients:
                self._clients[site] = await nats.connect(self._mesh.nats[site].url)
            return await JetStream(self._clients[site], None).request(operation, body)

        return self._run(ask())

    def streams(self, site: str) -> list[str]:
        """Return the names of the streams of a site."""
        return sorted(self._ask(site, "STREAM.NAMES", {}).get("streams") or [])

    def consumers(self, site: str, stream: str) -> int:
        """Return how many consumers a stream has."""
        return int(self._ask(site, f"STREAM.INFO.{stream}")["state"]["consumer_count"])

    def last_sequence(self, site: str, stream: str) -> int:
        """Return the sequence number of the last message of a stream."""
        return int(self._ask(site, f"STREAM.INFO.{stream}")["state"]["last_seq"])

    def delete(self, site: str, stream: str) -> None:
        """Delete a stream."""
        self._ask(site, f"STREAM.DELETE.{stream}")

    def purge(self, site: str, stream: str) -> int:
        """Delete what is in a stream, and return how many messages that were."""
        return int(self._ask(site, f"STREAM.PURGE.{stream}")["purged"])


def link_stream(sender: str, receiver: str) -> str:
    """Return the name of the stream of a link, which the receiver's site has."""
    return f"SAPWOOD_mesh_LINK_{sender}_{receiver}"
