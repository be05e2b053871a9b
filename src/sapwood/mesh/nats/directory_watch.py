"""A watch of the mesh's directory that survives broken connections and restarts of the hub.

It is a push consumer of the bucket's stream without acknowledgements. Heartbeats of the server tell that it
is still there, and consumer sequence numbers that nothing is missing; if either fails, the consumer is made
anew and begins with the last value of every key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from sapwood.mesh.nats.connection import Connection, cancel, describe, guard, spawn
from sapwood.mesh.nats.errors import MeshUnavailable
from sapwood.mesh.nats.jetstream import JetStream, JetStreamError, parse_delivery

if TYPE_CHECKING:
    from sapwood.mesh.nats.directory import MeshDirectory

_log = logging.getLogger(__name__)

_HEARTBEAT = 1.0
_SILENCE = 4.0
_STALL = 2.0
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 2.0
_SECOND = 1_000_000_000


class DirectoryWatch:
    """Reports the values of a directory and their changes, until stopped."""

    def __init__(
        self,
        directory: MeshDirectory,
        connection: Connection,
        listener: Callable[[str, bytes | None, int], None],
        on_complete: Callable[[], None] | None,
        on_stop: Callable[[DirectoryWatch], None],
    ) -> None:
        self._directory = directory
        self._connection = connection
        self._listener = guard(listener)
        self._on_complete = None if on_complete is None else guard(on_complete)
        self._on_stop = on_stop
        self._task: asyncio.Task[None] | None = None
        self._reported: dict[str, tuple[int, bytes | None]] = {}
        """Of each key what was reported; a bucket that was made anew repeats revisions with other values."""
        self._seen: set[str] = set()
        self._complete = False
        self._generation = 0
        self._next_delivery = 1
        self._active_at = 0.0
        self._trouble: str | None = None
        self._wake = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Whether all values have been read since the last break."""
        return self._complete

    def start(self) -> None:
        if self._task is None:
            self._task = spawn(self._run(), f"watch of the mesh {self._directory.settings.mesh}")

    async def stop(self) -> None:
        await cancel(self._task)
        if self._task is not None:
            self._task = None
            self._on_stop(self)

    def interrupt(self) -> None:
        """Look at once whether the connection is still there."""
        self._wake.set()

    async def _run(self) -> None:
        delay, logged = _FIRST_DELAY, ""
        while True:
            client = await self._connection.wait()
            began = asyncio.get_running_loop().time()
            trouble = await self._read(client)
            self._complete = False
            if asyncio.get_running_loop().time() - began > _SILENCE:
                delay, logged = _FIRST_DELAY, ""
            if self._connection.client is client:
                level = logging.WARNING if trouble != logged else logging.DEBUG
                _log.log(level, "the directory of the mesh is read again: %s", trouble)
                logged = trouble
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)

    async def _read(self, client: Client) -> str:
        """Watch by one consumer; return why that ended."""
        self._generation += 1
        self._trouble, self._next_delivery, self._complete = None, 1, False
        self._seen = set()
        inbox = client.new_inbox()
        receive = partial(self._receive, self._generation)
        subscription = None
        try:
            subscription = await client.subscribe(
                inbox, cb=receive, pending_msgs_limit=0, pending_bytes_limit=0
            )
            await self._make_consumer(JetStream(client, self._directory.settings.hub_domain), inbox)
            await self._wait_for_trouble(client)
            return self._trouble or "the connection was lost"
        except (JetStreamError, MeshUnavailable, nats.errors.Error, OSError, TimeoutError) as error:
            return describe(error)
        except Exception as error:
            _log.exception("the directory of the mesh cannot be watched")
            return describe(error)
        finally:
            self._generation += 1
            if subscription is not None:
                with suppress(nats.errors.Error):  # the connection, and with it the subscription, has ended
                    await subscription.unsubscribe()

    async def _make_consumer(self, jetstream: JetStream, inbox: str) -> None:
        await self._directory.make_bucket(jetstream)
        stream = self._directory.stream
        config = {
            "deliver_subject": inbox,
            "deliver_policy": "last_per_subject",
            "filter_subject": f"$KV.{self._directory.settings.bucket}.>",
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_deliver": 1,
            "idle_heartbeat": int(_HEARTBEAT * _SECOND),
            "inactive_threshold": int(30 * _SECOND),
            "num_replicas": 1,
            "mem_storage": True,
        }
        self._active_at = asyncio.get_running_loop().time()
        info = await jetstream.request(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
        delivered = int(info.get("delivered", {}).get("consumer_seq", 0))
        if not info.get("num_pending") and not delivered and self._next_delivery == 1:
            self._finish_reading()

    async def _wait_for_trouble(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        while self._trouble is None and client.is_connected:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT):
                    await self._wake.wait()
            self._wake.clear()
            now = loop.time()
            if now - checked_at > _STALL:  # this process stood still: heartbeats may wait in the socket
                self._active_at = now
            checked_at = now
            if now - self._active_at > _SILENCE:
                self._trouble = f"the hub has been silent for {_SILENCE:g} s"

    async def _receive(self, generation: int, message: Msg) -> None:
        if generation != self._generation:
            return
        self._active_at = asyncio.get_running_loop().time()
        headers = message.headers or {}
        if not message.reply.startswith("$JS.ACK."):
            self._receive_status(headers)
            return
        delivery = parse_delivery(message.reply)
        if delivery.consumer_sequence != self._next_delivery:
            self._fail(f"change {self._next_delivery} is missing")
            return
        self._next_delivery += 1
        deleted = "KV-Operation" in headers or "Nats-Marker-Reason" in headers
        key = message.subject.removeprefix(f"$KV.{self._directory.settings.bucket}.")
        self._report(key, None if deleted else message.data, delivery.stream_sequence)
        if not delivery.pending and not self._complete:
            self._finish_reading()

    def _receive_status(self, headers: dict[str, str]) -> None:
        """A heartbeat tells the last delivery, so that a change that was lost shows before the next one."""
        status = headers.get("Status", "")
        if status != "100":
            self._fail(
                f"JetStream ended the watch ({status} {headers.get('Description', '')})".replace(" )", ")")
            )
            return
        last = headers.get("Nats-Last-Consumer", "")
        if last.isdigit() and int(last) >= self._next_delivery:
            self._fail(f"change {self._next_delivery} is missing")
        elif not self._complete:  # heartbeats come when nothing else is left
            self._finish_reading()

    def _fail(self, trouble: str) -> None:
        self._trouble = trouble
        self._wake.set()

    def _report(self, key: str, value: bytes | None, revision: int) -> None:
        """Report an entry, unless it was the last report of its key."""
        self._seen.add(key)
        entry = (revision, value)
        before = self._reported.get(key)
        if before == entry or (before is None and value is None):
            return
        self._reported[key] = entry
        self._listener(key, value, revision)

    def _finish_reading(self) -> None:
        """All present values were reported; keys that are missing among them vanished with the bucket."""
        for key in self._reported.keys() - self._seen:
            if self._reported.pop(key)[1] is not None:
                self._listener(key, None, 0)
        self._complete = True
        if self._on_complete is not None:
            self._on_complete()
