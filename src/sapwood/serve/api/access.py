"""Who sends a request, and whether they may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from sapwood.serve.api.problems import Problem
from sapwood.serve.auth.api_keys import ApiKey, Scope
from sapwood.serve.config import is_loopback
from sapwood.serve.service import Service

_ANYBODY = ApiKey("", "", "", frozenset([Scope.ADMIN]), 0.0)
"""who may do everything, where there are no keys"""
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="sapwood"'}

_bearer = HTTPBearer(auto_error=False, scheme_name="API key", description="A key made by `sapwood keys add`")


def get_service(connection: HTTPConnection) -> Service:
    """Return the service of the application that serves a request."""
    service: Service = connection.app.state.service
    return service


def require(scope: Scope, in_query: bool = False) -> Callable[..., Awaitable[ApiKey]]:
    """Return a dependency that demands a key with a scope.

    `in_query` allows it as the parameter `access_token`, where browsers cannot set headers.
    """

    async def check(
        connection: HTTPConnection,
        _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],  # for OpenAPI
    ) -> ApiKey:
        return await authorize(connection, scope, in_query)

    return check


async def authorize(connection: HTTPConnection, scope: Scope, in_query: bool = False) -> ApiKey:
    """Return the key of a request; raises Problem if there is none, or it does not allow that."""
    service = get_service(connection)
    ring = service.key_ring
    if not ring.is_fresh:
        await asyncio.to_thread(ring.refresh)
    if not len(ring):
        check_local(connection)
        return _ANYBODY
    text = _read_key(connection, in_query)
    if text is None:
        raise Problem(
            401,
            "unauthorized",
            "a key is needed: Authorization: Bearer sw_…, made by 'sapwood keys add'",
            headers=_CHALLENGE,
        )
    key = ring.find(text)
    if key is None:
        raise Problem(401, "unauthorized", "the key is unknown, or was revoked", headers=_CHALLENGE)
    if not key.allows(scope):
        scopes = ", ".join(sorted(key.scopes))
        raise Problem(403, "forbidden", f"this needs a key for {scope}; the key {key.id} is for {scopes}")
    return key


def _read_key(connection: HTTPConnection, in_query: bool) -> str | None:
    kind, _, text = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and text:
        return text.strip()
    return connection.query_params.get("access_token") if in_query else None


def check_local(connection: HTTPConnection) -> None:
    """Refuse a request that a web page of another site makes, where no keys protect the server."""
    host = connection.headers.get("host", "")
    name = _split(f"//{host}").hostname or ""
    if host and not is_loopback(name):
        raise Problem(
            403,
            "forbidden",
            f"without keys, the server answers only requests to this machine, not to {host!r}",
        )
    origin = connection.headers.get("origin")
    if origin is not None and _split(origin).netloc != host:
        raise Problem(403, "forbidden", f"without keys, no requests of pages of {origin!r} are answered")


def _split(address: str) -> SplitResult:
    """Return the parts of an address, which are empty if it is malformed."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


Publisher = Annotated[ApiKey, Depends(require(Scope.PUBLISH))]
Subscriber = Annotated[ApiKey, Depends(require(Scope.SUBSCRIBE))]
Administrator = Annotated[ApiKey, Depends(require(Scope.ADMIN))]
Listener = Annotated[ApiKey, Depends(require(Scope.SUBSCRIBE, in_query=True))]
ServiceDependency = Annotated[Service, Depends(get_service)]
