"""Requests to the JetStream API of a domain.

nats-py has them, too, but not for all that a mesh needs of domains: its key-value store publishes to `$KV.…`,
which does not leave the domain of a leaf node, and its ordered consumer does not know acknowledgement
subjects that name a domain.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client

from sapwood.mesh.nats.errors import MeshUnavailable

NOT_FOUND = 404
WRONG_REVISION = (10071, 10164)
STREAM_DIFFERS = 10058

_TIMEOUT = 3.0


class JetStreamError(Exception):
    """An error that JetStream answered with; `code` is as in HTTP, `number` the one of JetStream."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.code = int(error.get("code", 0))
        self.number = int(error.get("err_code", 0))
        super().__init__(str(error.get("description", "JetStream gave no reason")))


class JetStream:
    """The API of a domain's JetStream, or of the connected server's own with None."""

    def __init__(self, client: Client, domain: str | None) -> None:
        self._client = client
        self._domain = domain
        self.prefix = "$JS.API." if domain is None else f"$JS.{domain}.API."

    async def request(self, operation: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to an operation such as `STREAM.INFO.name`.

        Raises `JetStreamError` for a refusal and `MeshUnavailable` without an answer.
        """
        payload = b"" if body is None else json.dumps(body).encode()
        return await self._ask(self.prefix + operation, payload, {})

    async def publish_value(self, subject: str, payload: bytes, headers: dict[str, str]) -> int:
        """Publish to a `$KV.…` subject of the domain, and return the revision.

        With a domain the subject has the prefix of its API, by which it reaches that domain and no other: a
        plain `$KV.…` stays in the domain of the server that the client is connected to.
        """
        target = subject if self._domain is None else self.prefix + subject
        answer = await self._ask(target, payload, headers)
        return int(answer["seq"])

    async def _ask(self, subject: str, payload: bytes, headers: dict[str, str]) -> dict[str, Any]:
        try:
            message = await self._client.request(subject, payload, timeout=_TIMEOUT, headers=headers or None)
        except nats.errors.NoRespondersError:
            raise MeshUnavailable(f"JetStream{self._place()} does not answer: no connection to it") from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            reason = str(error).removeprefix("nats: ") or "no answer in time"
            raise MeshUnavailable(f"JetStream{self._place()} does not answer: {reason}") from None
        answer: dict[str, Any] = json.loads(message.data)
        if "error" in answer:
            raise JetStreamError(answer["error"])
        return answer

    def _place(self) -> str:
        return "" if self._domain is None else f" of the domain {self._domain!r}"


class Delivery(NamedTuple):
    """What the acknowledgement subject of a delivered message tells."""

    attempt: int
    stream_sequence: int
    consumer_sequence: int
    pending: int


def parse_delivery(reply: str) -> Delivery:
    """Read `$JS.ACK.<stream>.<consumer>.…`, or the longer form in which the domain and account come first."""
    fields = reply.split(".")
    first = 4 if len(fields) == 9 else 6
    return Delivery(
        int(fields[first]), int(fields[first + 1]), int(fields[first + 2]), int(fields[first + 4])
    )
