"""The ids of messages that were published, by which a retry is recognised."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from cachetools import LRUCache
from sqlalchemy import select

from sapwood.serve.log import log_schema
from sapwood.serve.tenants.evaluation import Publication
from sapwood.store.database import Database

_REMEMBERED = 50_000
"""ids in memory: more than the messages that wait for their commit, which are a few batches"""
_AT_ONCE = 500
Key = tuple[str, str, str]


class KnownMessage(NamedTuple):
    """A message that was published before."""

    seq: int
    version: int
    deliveries: int
    digest: bytes


def digest(body: bytes) -> bytes:
    """Return a digest of a message's body."""
    return blake2b(body, digest_size=16).digest()


def digest_of(message: Publication) -> bytes:
    """Return the digest of a message's body as it was published."""
    return digest(message.body) if message.projection is None else message.projection.original


class MessageIds:
    """The ids that are in the log, and those that are about to be."""

    def __init__(self, log: Database) -> None:
        self._log = log
        self._recent: LRUCache[Key, KnownMessage] = LRUCache(_REMEMBERED)

    def find(self, messages: Iterable[Publication]) -> dict[Key, KnownMessage]:
        """Return which of these messages were published before, by tenant, stream and id."""
        found: dict[Key, KnownMessage] = {}
        unknown: dict[tuple[str, str], list[str]] = {}
        for message in messages:
            key = message.tenant, message.stream, message.id
            known = self._recent.get(key)
            if known is not None:
                found[key] = known
            elif not message.is_new:
                unknown.setdefault((message.tenant, message.stream), []).append(message.id)
        for (tenant, stream), ids in unknown.items():
            found |= self._read(tenant, stream, ids)
        return found

    def _read(self, tenant: str, stream: str, ids: list[str]) -> dict[Key, KnownMessage]:
        columns = log_schema.message_ids.c
        query = select(columns.id, columns.seq, columns.version, columns.deliveries, columns.digest)
        query = query.where(columns.tenant == tenant, columns.stream == stream)
        with self._log.reading() as connection:
            return {
                (tenant, stream, row[0]): KnownMessage(*row[1:])
                for start in range(0, len(ids), _AT_ONCE)
                for row in connection.execute(query.where(columns.id.in_(ids[start : start + _AT_ONCE])))
            }

    def add(self, key: Key, known: KnownMessage) -> None:
        """Remember a message."""
        self._recent[key] = known
