"""What the links of a broker count, and what its server tells about itself: figures for status."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import nats.errors

from sapwood.mesh.nats.connection import NatsClient, describe
from sapwood.mesh.nats.errors import MeshUnavailable
from sapwood.mesh.nats.inbound_link import InboundLink
from sapwood.mesh.nats.jetstream import JetStream, JetStreamError
from sapwood.mesh.nats.outbound_link import OutboundLink

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backlog:
    """What a stream holds: payloads that are not acknowledged; the age is None of an empty one."""

    messages: int
    bytes: int
    oldest_age: float | None


@dataclass(frozen=True)
class LinkState:
    """The counters of the link with one neighbour since the transport was made, in both directions."""

    neighbour: str
    payloads_in: int
    bytes_in: int
    payloads_out: int
    bytes_out: int
    redelivered: int
    dropped_parts: int
    send_failures: int
    in_flight: int
    queued: int
    unreleased: int
    backlog: Backlog | None
    """Of the neighbour's payloads for this broker; None if the server does not tell."""
    error: str | None
    """Why the neighbour's stream cannot be read at present."""

    @classmethod
    def of(cls, inbound: InboundLink, outbound: OutboundLink, backlog: Backlog | None) -> LinkState:
        return cls(
            neighbour=inbound.neighbour,
            payloads_in=inbound.payloads,
            bytes_in=inbound.bytes,
            payloads_out=outbound.accepted,
            bytes_out=outbound.accepted_bytes,
            redelivered=inbound.redelivered,
            dropped_parts=inbound.dropped_parts,
            send_failures=outbound.failures,
            in_flight=outbound.in_flight,
            queued=outbound.queued,
            unreleased=inbound.unreleased,
            backlog=backlog,
            error=inbound.error,
        )


@dataclass(frozen=True)
class ServerInfo:
    """The server that a broker is connected to; without a connection all but `connected` is None."""

    connected: bool
    name: str | None = None
    version: str | None = None
    url: str | None = None
    max_payload: int | None = None
    rtt: float | None = None
    """Seconds to the server and back; None if it does not answer."""

    @classmethod
    async def read(cls, client: NatsClient | None) -> ServerInfo:
        if client is None or (url := client.connected_url) is None:
            return cls(False)
        rtt = None
        start = time.perf_counter()  # the clock of uvloop counts milliseconds
        try:
            await client.rtt(timeout=2)
            rtt = time.perf_counter() - start
        except (nats.errors.Error, OSError, TimeoutError) as error:
            _log.debug("the round trip to %s cannot be measured: %s", url.netloc, describe(error))
        address = f"{url.scheme}://{url.hostname}:{url.port}"  # without a password
        return cls(True, client.server_name, client.server_version, address, client.max_payload, rtt)


async def read_backlog(jetstream: JetStream, stream: str) -> Backlog | None:
    """Return what a stream holds, or None if that cannot be told."""
    try:
        state = (await jetstream.request(f"STREAM.INFO.{stream}"))["state"]
    except (JetStreamError, MeshUnavailable) as error:
        _log.debug("the backlog of %s is not known: %s", stream, describe(error))
        return None
    messages = int(state["messages"])
    age = None
    if messages:
        first = datetime.fromisoformat(state["first_ts"][:19]).replace(tzinfo=UTC)
        age = max((datetime.now(UTC) - first).total_seconds(), 0.0)
    return Backlog(messages, int(state["bytes"]), age)
