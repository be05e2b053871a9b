"""The server's part of a mesh: the connection to NATS, the directory, and who waits for what.

NATS ─► LinkTransport ─► MeshInput ─► engine (the node)
     ◄─               ◄─ MeshOutput ◄─
KV   ◄► MeshMembership ─► TopologySeen ─► engine
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sapwood.mesh.core.frames import Epoch
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.nats.link_transport import LinkTransport
from sapwood.mesh.wire.topology_codec import encode_topology
from sapwood.serve.mesh.administration.link_rates import LinkRates
from sapwood.serve.mesh.mesh_config import MeshConfig
from sapwood.serve.mesh.mesh_errors import MeshOverloaded
from sapwood.serve.mesh.mesh_frames import (
    ControlArrived,
    ControlOut,
    MeshInput,
    MeshItem,
    MeshOutput,
    MeshRequest,
    MeshStatus,
    PayloadAccepted,
    PayloadArrived,
    PayloadFailed,
    PayloadOut,
    RequestDone,
    RoutesConfirmed,
    StreamDrained,
    TagReleased,
    TopologySeen,
)
from sapwood.serve.mesh.mesh_membership import MeshMembership
from sapwood.serve.mesh.mesh_queries import LINK_CONTROL, QUERY, MeshQueries

if TYPE_CHECKING:
    from sapwood.serve.engine.engine_client import EngineClient

_log = logging.getLogger(__name__)
_OUTBOX = 200_000
"""frames that a neighbour has not received, from which on publishers are asked to wait"""


class MeshService:
    """A broker's connection to its mesh."""

    def __init__(self, config: MeshConfig, engine: EngineClient, identity: str) -> None:
        self.config = config
        self._engine = engine
        self._settings = config.transport_settings()
        self.transport = LinkTransport(self._settings, self)
        self.membership = MeshMembership(
            self._settings, config.parent, identity, self._describe_lease, self._on_topology
        )
        self.queries = MeshQueries(config.broker, self.transport.send_control)
        self.status: MeshStatus | None = None
        self.rates = LinkRates()
        self.is_draining = False
        """whether publishers are sent to other brokers, because this one is to leave"""
        self._inputs: list[MeshItem] = []
        self._is_scheduled = False
        self._tags = itertools.count(1)
        self._sent: dict[str, OrderedDict[int, tuple[Epoch, int]]] = {}
        """by neighbour and tag, the frames of payloads that are on their way"""
        self._held: dict[str, OrderedDict[int, bytes]] = {}
        """by neighbour and tag, payloads that the engine has not stored: another engine gets them again"""
        self._neighbours: set[str] = set()
        self.confirmed = -1
        """the version of the store of which all brokers have the routes"""
        self._changed = asyncio.Event()
        self._done: dict[int, asyncio.Event] = {}
        self._topology: Topology | None = None
        self.is_connected = False
        self.url = ""

    # -- start and end ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect; a mesh that is not there yet is waited for in the background."""
        await self.transport.start()
        await self.membership.start()

    async def stop(self) -> None:
        """End the connections."""
        await self.membership.stop()
        await self.transport.stop()

    def _describe_lease(self) -> dict[str, Any]:
        status = self.status
        return {
            "host": socket.gethostname(),
            "process": os.getpid(),
            "url": self.url,
            "version": status.counters.get("version", 0) if status else 0,
            "incarnation": status.incarnation if status else 0,
        }

    # -- the engine ------------------------------------------------------------------------------------

    def on_started(self) -> None:
        """An engine is ready, for the first time or again: it needs the tree, and what was not stored."""
        self.confirmed = -1
        self.rates.clear()
        self._sent.clear()
        topology = self._topology
        items: list[MeshItem] = [TopologySeen(encode_topology(topology))] if topology is not None else []
        for link, payloads in self._held.items():
            items += [PayloadArrived(link, payload, tag) for tag, payload in payloads.items()]
        self._inputs = items + [item for item in self._inputs if not isinstance(item, PayloadArrived)]
        self._flush()

    def on_output(self, output: MeshOutput) -> None:
        """Send what the node wants to be sent."""
        for item in output.items:
            if isinstance(item, PayloadOut):
                self._send(item)
            elif isinstance(item, ControlOut):
                if self.transport.connected:
                    self.transport.send_control(item.link, LINK_CONTROL + item.payload)
            elif isinstance(item, TagReleased):
                self._release(item)
            elif isinstance(item, RoutesConfirmed):
                self.confirmed = max(self.confirmed, item.version)
                self._wake()
            elif isinstance(item, RequestDone) and item.request in self._done:
                self._done[item.request].set()

    def on_status(self, status: MeshStatus) -> None:
        """Keep what the node reports, and log links that have opened or broken."""
        before = self.status.links if self.status is not None else {}
        for link, state in status.links.items():
            if state["open"] != before.get(link, {}).get("open", False):
                if state["open"]:
                    _log.info("mesh: the link to %s is open", link)
                else:
                    _log.warning("mesh: the link to %s is broken; messages for it wait", link)
        for link in before.keys() - status.links.keys():
            _log.info("mesh: %s is no neighbour any more", link)
        self.status = status
        self.rates.add(time.monotonic(), status.links)

    def _send(self, item: PayloadOut) -> None:
        if item.link not in self._neighbours:
            return
        tag = next(self._tags)
        self._sent.setdefault(item.link, OrderedDict())[tag] = item.epoch, item.number
        self.transport.send(item.link, item.payload, tag)

    def _release(self, item: TagReleased) -> None:
        held = self._held.get(item.link, OrderedDict())
        while held and next(iter(held)) <= item.tag:
            held.popitem(last=False)
        if item.link in self._neighbours:
            self.transport.release(item.link, item.tag)

    def _put(self, item: MeshItem) -> None:
        """Give the engine something, together with all that comes in this turn of the event loop."""
        self._inputs.append(item)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        if not self._engine.is_ready:
            self._inputs = [item for item in self._inputs if isinstance(item, TopologySeen)]
            return
        inputs, self._inputs = self._inputs, []
        if inputs:
            self._engine.tell(MeshInput(inputs))

    # -- the transport ---------------------------------------------------------------------------------

    def on_connection(self, connected: bool, reason: str) -> None:
        """The connection to the site's server was made, or lost."""
        if connected != self.is_connected:
            _log.info("mesh: %s", "connected" if connected else f"the connection is lost: {reason}")
        self.is_connected = connected

    def on_accepted(self, neighbour: str, tag: int) -> None:
        """The neighbour's stream has a payload."""
        found = self._sent.get(neighbour, OrderedDict()).pop(tag, None)
        if found is not None:
            self._put(PayloadAccepted(neighbour, *found))

    def on_send_failed(self, neighbour: str, tag: int, reason: str) -> None:
        """A payload, and all after it, could not be sent."""
        sent = self._sent.pop(neighbour, OrderedDict())
        found = sent.get(tag)
        _log.debug("mesh: sending to %s failed: %s", neighbour, reason)
        if found is not None:
            self._put(PayloadFailed(neighbour, found[0]))

    def on_payload(self, neighbour: str, payload: bytes, tag: int) -> None:
        """A neighbour has sent frames."""
        self._held.setdefault(neighbour, OrderedDict())[tag] = payload
        self._put(PayloadArrived(neighbour, payload, tag))

    def on_control(self, neighbour: str, payload: bytes) -> None:
        """A broker has sent a control, or asks something."""
        if payload[:1] == QUERY:
            self.queries.receive(neighbour, payload[1:])
        elif neighbour in self._neighbours:
            self._put(ControlArrived(neighbour, payload[1:]))

    def on_drained(self, neighbour: str) -> None:
        """Nothing of a neighbour waits in its stream."""
        self._put(StreamDrained(neighbour))

    def _on_topology(self, topology: Topology) -> None:
        self._topology = topology
        self._neighbours = set(topology.neighbours(self.config.broker))
        self.transport.set_neighbours(self._neighbours)
        for link in [link for link in self._held if link not in self._neighbours]:
            del self._held[link]
        self._put(TopologySeen(encode_topology(topology)))

    # -- waiting ---------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_confirmed(self, version: int, wait: float | None = None) -> bool:
        """Wait until all brokers have the subscriptions of a version; return whether they have in time."""
        deadline = time.monotonic() + (self.config.confirm_seconds if wait is None else wait)
        while self.confirmed < version:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return True

    async def request(self, operation: str, **arguments: Any) -> Any:
        """Return the result of an operation of the node."""
        return await self._engine.request(lambda n: MeshRequest(n, operation, arguments))

    async def request_all(
        self, operation: str, wait: float | None = None, **arguments: Any
    ) -> tuple[int, bool]:
        """Do an operation that is done when all brokers have passed it; return its number, and whether that
        was in time."""
        done = asyncio.Event()

        def build(number: int) -> MeshRequest:
            self._done[number] = done
            return MeshRequest(number, operation, arguments)

        number: int = await self._engine.request(build)
        try:
            async with asyncio.timeout(self.config.confirm_seconds if wait is None else wait):
                await done.wait()
            return number, True
        except TimeoutError:
            return number, False
        finally:
            self._done.pop(number, None)

    # -- publishers ------------------------------------------------------------------------------------

    def check_load(self) -> None:
        """Raise MeshOverloaded if messages wait for a link that is far behind."""
        status = self.status
        if status is None:
            return
        for link, state in status.links.items():
            if state["open"] and state["outbox"] > _OUTBOX:
                raise MeshOverloaded(
                    f"{state['outbox']:,} messages wait for the link to {link}; try again in a moment"
                )

    # -- what it tells ---------------------------------------------------------------------------------

    def read_metrics(self) -> tuple[MeshStatus | None, bool, int]:
        """Return the last report of the node, whether there is a connection, and the version of the tree."""
        return self.status, self.is_connected, self.membership.topology.version

    async def describe(self) -> dict[str, Any]:
        """Return the state of this broker."""
        status = self.status
        described: dict[str, Any] = {
            "mesh": self.config.name,
            "broker": self.config.broker,
            "parent": self.membership.topology.parents.get(self.config.broker),
            "connected": self.is_connected,
            "directory": self.membership.is_visible,
            "problem": self.membership.problem,
            "topology": self.membership.topology.version,
            "confirmed": self.confirmed,
            "draining": self.is_draining,
        }
        if status is not None:
            described |= {k: v for k, v in asdict(status).items() if k != "topology"}
            described["version"] = status.counters.get("version", 0)
            for link, state in described["links"].items():
                state["rates"] = self.rates.get(link)
        if self.is_connected:
            states = await self.transport.link_state()
            for link, state in states.items():
                described.setdefault("links", {}).setdefault(link, {})["transport"] = asdict(state)
        return described


Listener = Callable[[MeshOutput | MeshStatus], None]
