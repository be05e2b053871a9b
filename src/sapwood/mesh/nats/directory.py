"""The directory of a mesh: a key-value bucket at the hub, with compare-and-set and a watch."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Callable
from typing import Any

from sapwood.errors import ArgumentError
from sapwood.mesh.nats.connection import Connection, NatsClient
from sapwood.mesh.nats.directory_watch import DirectoryWatch
from sapwood.mesh.nats.errors import MeshUnavailable, RevisionConflict
from sapwood.mesh.nats.jetstream import NOT_FOUND, STREAM_DIFFERS, WRONG_REVISION, JetStream, JetStreamError
from sapwood.mesh.nats.settings import TransportSettings

__all__ = ["MeshDirectory", "RevisionConflict"]

_log = logging.getLogger(__name__)

_KEY = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")
_EXPECTED_REVISION = "Nats-Expected-Last-Subject-Sequence"
_OPERATION = "KV-Operation"
_TOMBSTONES = (b"KV-Operation: DEL", b"KV-Operation: PURGE", b"Nats-Marker-Reason:")
_PARALLEL_READS = 32


class MeshDirectory:
    """Small values under keys such as `topology`, `brokers.<name>` and `sources.<name>`, at the mesh's hub.

    It has a connection of its own, so that leases do not wait behind the payloads of links. The calls raise
    `MeshUnavailable` while the hub cannot be reached; watches go on by themselves as soon as it can.
    """

    def __init__(self, settings: TransportSettings) -> None:
        self.settings = settings
        self.stream = f"KV_{settings.bucket}"
        self._prefix = f"$KV.{settings.bucket}."
        self._connection = Connection(
            settings, f"sapwood directory {settings.broker}", self._prepare, self._on_change
        )
        self._watches: list[DirectoryWatch] = []
        self._reason = "it has not been started"
        self._made = False

    async def start(self) -> None:
        """Begin to connect; returns at once, whether a server is there or not."""
        self._reason = "the connection is being made"
        self._connection.start()
        for watch in self._watches:
            watch.start()

    async def stop(self) -> None:
        """End the watches and the connection."""
        for watch in list(self._watches):
            await watch.stop()
        await self._connection.stop()

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the site's server; that the hub is reachable is another matter."""
        return self._connection.client is not None

    async def wait_reachable(self, timeout: float) -> None:
        """Wait until the hub answers; raise `MeshUnavailable` if it does not within so many seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            try:
                await self._bucket()
                return
            except MeshUnavailable:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(0.05)

    async def hub_reachable(self) -> bool:
        """Tell whether the hub answers at present, within seconds."""
        try:
            jetstream = await self._bucket()
            await jetstream.request(f"STREAM.INFO.{self.stream}")
        except MeshUnavailable:
            return False
        except JetStreamError as error:  # it answers, but something is wrong with the bucket
            self._made = False
            _log.warning("the bucket of the mesh %s: %s", self.settings.mesh, error)
        return True

    async def read(self, key: str) -> tuple[bytes, int] | None:
        """Return the value of a key and its revision, or None if there is none."""
        found = await self._get(key)
        return None if found is None or found[0] is None else (found[0], found[1])

    async def put(self, key: str, value: bytes) -> int:
        """Set the value of a key, whatever it was, and return its revision."""
        return await self._publish(key, value, {})

    async def create(self, key: str, value: bytes) -> int:
        """Set the value of a key that has none, and return its revision; else raise `RevisionConflict`."""
        try:
            return await self._publish(key, value, {_EXPECTED_REVISION: "0"}, 0)
        except RevisionConflict:
            found = await self._get(key)
            if found is None or found[0] is not None:
                raise
        # It was deleted: what follows the mark of that is new, too.
        return await self._publish(key, value, {_EXPECTED_REVISION: str(found[1])}, 0)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Set the value of a key that is at the revision, and return the new one; else `RevisionConflict`.

        Revision 0 creates.
        """
        if not revision:
            return await self.create(key, value)
        return await self._publish(key, value, {_EXPECTED_REVISION: str(revision)}, revision)

    async def delete(self, key: str, revision: int | None = None) -> None:
        """Delete a key; with a revision, only if it is still at that one."""
        headers = {_OPERATION: "DEL"}
        if revision is not None:
            headers[_EXPECTED_REVISION] = str(revision)
        await self._publish(key, b"", headers, revision or 0)

    async def list(self, prefix: str = "") -> dict[str, tuple[bytes, int]]:
        """Return the values and revisions of all keys that begin with the prefix, in the order of keys."""
        jetstream = await self._bucket()
        info = await self._ask(
            jetstream, f"STREAM.INFO.{self.stream}", {"subjects_filter": f"{self._prefix}>"}
        )
        subjects = info["state"].get("subjects") or {}
        keys = sorted(subject.removeprefix(self._prefix) for subject in subjects)
        wanted = [key for key in keys if key.startswith(prefix)]
        entries: dict[str, tuple[bytes, int]] = {}
        for start in range(0, len(wanted), _PARALLEL_READS):
            some = wanted[start : start + _PARALLEL_READS]
            values = await asyncio.gather(*map(self.read, some))
            entries.update((key, value) for key, value in zip(some, values, strict=True) if value is not None)
        return entries

    def watch(
        self,
        listener: Callable[[str, bytes | None, int], None],
        on_complete: Callable[[], None] | None = None,
    ) -> DirectoryWatch:
        """Report all present values, and then changes: key, value or None if deleted, and revision.

        After a break all is read again, and what differs from before is reported, keys that vanished with it.
        `on_complete` is called whenever all has been read. The watch ends with `stop` of what is returned, or
        with the directory.
        """
        watch = DirectoryWatch(self, self._connection, listener, on_complete, self._watches.remove)
        self._watches.append(watch)
        watch.start()
        return watch

    async def _get(self, key: str) -> tuple[bytes | None, int] | None:
        """Return the last entry of a key: its value, None if deleted, and its revision."""
        check_key(key)
        jetstream = await self._bucket()
        try:
            answer = await self._ask(
                jetstream, f"STREAM.MSG.GET.{self.stream}", {"last_by_subj": self._prefix + key}
            )
        except _NoEntry:
            return None
        message = answer["message"]
        headers = base64.b64decode(message.get("hdrs", ""))
        deleted = any(mark in headers for mark in _TOMBSTONES)
        value = None if deleted else base64.b64decode(message.get("data", ""))
        return value, int(message["seq"])

    async def _publish(self, key: str, value: bytes, headers: dict[str, str], revision: int = 0) -> int:
        check_key(key)
        jetstream = await self._bucket()
        try:
            return await jetstream.publish_value(self._prefix + key, value, headers)
        except JetStreamError as error:
            if error.number in WRONG_REVISION:
                raise RevisionConflict(key, revision) from None
            raise MeshUnavailable(f"the hub refuses {key!r}: {error}") from None
        except MeshUnavailable:
            self._made = False  # the bucket may have been deleted; it is looked for at the next call
            raise

    async def _ask(self, jetstream: JetStream, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return await jetstream.request(operation, body)
        except JetStreamError as error:
            if error.code == NOT_FOUND and error.number == _NO_MESSAGE:
                raise _NoEntry from None
            self._made = False
            raise MeshUnavailable(f"the hub cannot read the mesh {self.settings.mesh!r}: {error}") from None

    async def _bucket(self) -> JetStream:
        """Return the hub's JetStream, with the bucket made if it was absent."""
        client = self._connection.client
        if client is None:
            raise MeshUnavailable(f"there is no connection to a NATS server: {self._reason}")
        jetstream = JetStream(client, self.settings.hub_domain)
        if not self._made:
            await self.make_bucket(jetstream)
        return jetstream

    async def make_bucket(self, jetstream: JetStream) -> None:
        """Make the bucket unless it is there; another configuration that somebody gave it is left alone."""
        config: dict[str, Any] = {
            "name": self.stream,
            "subjects": [f"{self._prefix}>"],
            "retention": "limits",
            "discard": "new",
            "storage": "file",
            "max_msgs_per_subject": 1,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "num_replicas": self.settings.hub_replicas,
        }
        try:
            await jetstream.request(f"STREAM.CREATE.{self.stream}", config)
        except JetStreamError as error:
            if error.number != STREAM_DIFFERS:
                raise MeshUnavailable(f"the hub does not make the bucket of the mesh: {error}") from None
        self._made = True

    async def _prepare(self, client: NatsClient) -> None:
        self._made = False

    def _on_change(self, connected: bool, reason: str) -> None:
        self._reason = reason
        for watch in self._watches:
            watch.interrupt()


class _NoEntry(Exception):
    """A key that never had a value."""


_NO_MESSAGE = 10037


def check_key(key: str) -> None:
    """Raise `ArgumentError` for a key that a bucket cannot have."""
    if not _KEY.fullmatch(key):
        raise ArgumentError(
            f"{key!r} cannot be a key of a mesh: names of ASCII letters and digits with '.' between"
        )
