"""The answers of a broker to others, and to its operator: its state, subscriptions and messages."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, or_, select

from sapwood.serve.log import log_schema
from sapwood.serve.mesh.node import mesh_schema
from sapwood.serve.mesh.node.mesh_store import decode_links
from sapwood.store import Subscription

if TYPE_CHECKING:
    from sapwood.serve.mesh.mesh_service import MeshService
    from sapwood.serve.service import Service

_MOST_TRACED = 100
_MOST_REJECTS = 10


class BrokerAnswers:
    """Answers questions about one broker."""

    def __init__(self, service: Service, mesh: MeshService) -> None:
        self._service = service
        self._mesh = mesh

    def register(self) -> None:
        """Answer from now on."""
        self._mesh.queries.answer_all(
            {
                "status": self._describe,
                "tables": self._describe_tables,
                "routes": self._list_routes,
                "subscription": self._find_subscription,
                "has routes": self._has_routes,
                "projection": self._explain_projection,
                "trace": self._trace,
            }
        )

    async def _describe(self) -> dict[str, Any]:
        described = await self._mesh.describe()
        described["server"] = asdict(await self._mesh.transport.server_info())
        described["subscriptions"] = self.count_subscriptions()
        return described

    def count_subscriptions(self) -> int:
        """Return how many subscriptions are evaluated here, of all tenants."""
        status = self._service.status.status
        counts = status.subscriptions.values() if status is not None else ()
        return sum(sum(languages.values()) for languages in counts)

    async def _describe_tables(self) -> Any:
        return await self._mesh.request("tables")

    async def _list_routes(self, link: str | None, after: int, limit: int) -> Any:
        return await self._mesh.request("route page", link=link, after=after, limit=limit)

    async def _has_routes(self, keys: list[str]) -> Any:
        return await self._mesh.request("has routes", keys=keys)

    async def _explain_projection(self, tenant: str) -> Any:
        return await self._mesh.request("projection", tenant=tenant)

    # -- subscriptions ---------------------------------------------------------------------------------

    async def _find_subscription(self, tenant: str, id: str) -> dict[str, Any] | None:
        store = self._service.store(tenant)
        found = await asyncio.to_thread(store.get, id)
        if found is None:
            return None
        routes = await self._mesh.request("subscription routes", tenant=tenant, place=found.place)
        namespaces = await asyncio.to_thread(lambda: store.namespaces)
        return describe_subscription(found) | {
            "routes": routes,
            "namespaces": namespaces,
            "confirmed": self._mesh.confirmed >= found.since,
        }

    # -- messages --------------------------------------------------------------------------------------

    async def _trace(self, tenant: str, id: str, keys: list[list[Any]]) -> dict[str, Any]:
        """Return what became here of the messages with an id, or with identities in the mesh."""
        hops = await asyncio.to_thread(self._read_hops, tenant, id, keys)
        for hop in hops:
            body = hop.pop("body")
            hop["reasons"] = await self._mesh.request(
                "matched routes", tenant=tenant, stream=hop["stream"], body=bytes(body)
            )
        return {"hops": hops, "refused": await asyncio.to_thread(self._read_refused, tenant, id)}

    def _read_hops(self, tenant: str, id: str, keys: list[list[Any]]) -> list[dict[str, Any]]:
        columns, log = mesh_schema.messages.c, log_schema.messages.c
        wanted: list[ColumnElement[bool]] = [
            and_(columns.source == source, columns.number == number) for source, number in keys
        ]
        query = select(mesh_schema.messages, log.stream, log.id, log.received, log.version, log.deliveries)
        query = query.add_columns(log.body)
        query = query.join_from(mesh_schema.messages, log_schema.messages, columns.seq == log.seq)
        query = query.where(log.tenant == tenant, or_(log.id == id, *wanted))
        rows = self._service.reader.read_rows(query.order_by(columns.seq).limit(_MOST_TRACED))
        return [dict(row) | {"links": _name_links(row["links"])} for row in rows]

    def _read_refused(self, tenant: str, id: str) -> list[dict[str, Any]]:
        columns = log_schema.rejects.c
        query = select(columns.stream, columns.received, columns.reason, columns.line, columns.column)
        query = query.where(columns.tenant == tenant, columns.id == id)
        rows = self._service.reader.read_rows(query.order_by(columns.number.desc()).limit(_MOST_REJECTS))
        return [dict(row) for row in rows]


def _name_links(text: str | None) -> list[str] | None:
    links = decode_links(text)
    return None if links is None else sorted(links)


def describe_subscription(found: Subscription) -> dict[str, Any]:
    """Return a subscription as fields of JSON."""
    return asdict(found) | {"streams": list(found.streams)}
