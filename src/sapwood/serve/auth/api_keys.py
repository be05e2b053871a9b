"""API keys: made, listed, revoked and checked; the log holds only hashes of them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import delete, insert, select

from sapwood.errors import ArgumentError
from sapwood.serve.log import log_schema
from sapwood.store.database import Database
from sapwood.store.text_checks import check_tenant, check_text

_PREFIX = "sw"
_LONGEST_NAME = 200


class Scope(StrEnum):
    """What a key allows."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"
    """everything that its tenant may do"""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key, without its secret."""

    id: str
    tenant: str
    name: str
    scopes: frozenset[Scope]
    created: float

    def allows(self, scope: Scope) -> bool:
        """Return whether the key is for a scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


class KeyStore:
    """The keys in the database of a log."""

    def __init__(self, log: Database) -> None:
        self._log = log

    def add(self, scopes: Iterable[str], tenant: str = "", name: str = "") -> tuple[ApiKey, str]:
        """Make a key; returns it with its text, which is not kept and cannot be shown again."""
        chosen = frozenset(map(_to_scope, scopes))
        if not chosen:
            raise ArgumentError(f"a key needs a scope: {', '.join(Scope)}")
        check_tenant(tenant)
        check_text(name, "the name of a key")
        if len(name) > _LONGEST_NAME:
            raise ArgumentError(f"the name of a key has at most {_LONGEST_NAME} characters")
        key = ApiKey(secrets.token_hex(6), tenant, name, chosen, time.time())
        secret = secrets.token_hex(32)
        row = {
            "id": key.id,
            "tenant": tenant,
            "name": name,
            "scopes": " ".join(sorted(chosen)),
            "hash": _hash(secret),
            "created": key.created,
        }
        with self._log.writing() as connection:
            connection.execute(insert(log_schema.keys), [row])
        return key, f"{_PREFIX}_{key.id}_{secret}"

    def list_keys(self, tenant: str | None = None) -> list[ApiKey]:
        """Return the keys of a tenant, or of all."""
        return [key for key, _ in self.read() if tenant is None or key.tenant == tenant]

    def read(self) -> list[tuple[ApiKey, bytes]]:
        """Return all keys with their hashes, in the order made."""
        columns = log_schema.keys.c
        query = select(
            columns.id, columns.tenant, columns.name, columns.scopes, columns.created, columns.hash
        ).order_by(columns.created, columns.id)
        with self._log.reading() as connection:
            rows = connection.execute(query).all()
        return [
            (ApiKey(id, tenant, name, frozenset(map(Scope, scopes.split())), created), hash)
            for id, tenant, name, scopes, created, hash in rows
        ]

    def revoke(self, id: str, tenant: str | None = None) -> bool:
        """Delete a key, of a tenant or of any; returns whether there was one."""
        columns = log_schema.keys.c
        query = delete(log_schema.keys).where(columns.id == id)
        if tenant is not None:
            query = query.where(columns.tenant == tenant)
        with self._log.writing() as connection:
            return connection.execute(query).rowcount > 0


class KeyRing:
    """The keys in memory, as they were at most a moment ago."""

    _FRESH = 1.0
    """seconds after which the keys are read again: as long may a revoked one be used"""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys
        self._known: dict[str, tuple[ApiKey, bytes]] = {}
        self._read = float("-inf")

    @property
    def is_fresh(self) -> bool:
        """Whether the keys need not be read again."""
        return time.monotonic() - self._read < self._FRESH

    def refresh(self) -> None:
        """Read the keys."""
        self._known = {key.id: (key, hash) for key, hash in self._keys.read()}
        self._read = time.monotonic()

    def expire(self) -> None:
        """Let the keys be read again, because one was made or revoked."""
        self._read = float("-inf")

    def __len__(self) -> int:
        return len(self._known)

    def find(self, text: str) -> ApiKey | None:
        """Return the key with this text, if there is one."""
        prefix, _, rest = text.partition("_")
        id, _, secret = rest.partition("_")
        known = self._known.get(id)
        if known is None or prefix != _PREFIX or not hmac.compare_digest(known[1], _hash(secret)):
            return None
        return known[0]


def _hash(secret: str) -> bytes:
    # A secret of 256 random bits needs no slow hash.
    return hashlib.sha256(secret.encode()).digest()


def _to_scope(text: str) -> Scope:
    try:
        return Scope(text)
    except ValueError:
        raise ArgumentError(f"there is no scope {text!r}; there are {', '.join(Scope)}") from None
