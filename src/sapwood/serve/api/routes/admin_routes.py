"""Administration of a tenant: keys, refused messages, failures, statistics, and backups."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from sqlalchemy import select

from sapwood.serve.api.access import Administrator, ServiceDependency
from sapwood.serve.api.models import (
    BackupAnswer,
    BackupRequest,
    FailureList,
    KeyAnswer,
    KeyList,
    MessagePage,
    NewKeyAnswer,
    NewKeyRequest,
    RejectPage,
    StatsAnswer,
)
from sapwood.serve.api.problems import Problem, document_problems
from sapwood.serve.auth.api_keys import ApiKey
from sapwood.serve.backup import back_up
from sapwood.serve.engine.frames import Inspect
from sapwood.serve.log import log_schema
from sapwood.serve.service import Service

router = APIRouter(tags=["administration"])
_log = logging.getLogger(__name__)
_PROBLEMS = document_problems(400, 401, 403, 422, 429, 503)
_FOUND = _PROBLEMS | document_problems(404)
_SHOWN_BODY = 4_096
"""bytes of a message in a list"""

Limit = Annotated[int, Query(ge=1, le=1_000)]
Before = Annotated[int | None, Query(ge=1, le=2**62, description="`next` of the page before")]


# -- keys --------------------------------------------------------------------------------------------------


def _describe(key: ApiKey) -> str:
    return f"the key {key.id}" if key.id else "somebody on this machine"


def _key_answer(key: ApiKey) -> dict[str, Any]:
    return asdict(key) | {"scopes": sorted(key.scopes)}


@router.get("/v1/keys", summary="List keys", response_model=KeyList, responses=_PROBLEMS)
async def list_keys(key: Administrator, service: ServiceDependency) -> KeyList:
    """Return the keys of the tenant, or, for a key of the first tenant, all."""
    found = await asyncio.to_thread(service.keys.list_keys, key.tenant or None)
    return KeyList(keys=[KeyAnswer(**_key_answer(each)) for each in found])


@router.post(
    "/v1/keys", summary="Make a key", status_code=201, response_model=NewKeyAnswer, responses=_PROBLEMS
)
async def add_key(body: NewKeyRequest, key: Administrator, service: ServiceDependency) -> NewKeyAnswer:
    """Make a key, which only this answer shows; the first one of all ends the time without keys."""
    tenant = key.tenant if body.tenant is None else body.tenant
    if tenant != key.tenant and key.tenant:
        raise Problem(403, "forbidden", f"a key of {key.tenant!r} makes no keys of {tenant!r}")
    made, text = await asyncio.to_thread(service.keys.add, body.scopes, tenant, body.name)
    service.key_ring.expire()
    _log.info("the key %s was made by %s", made.id, _describe(key), extra={"tenant": tenant})
    return NewKeyAnswer(**_key_answer(made), key=text)


@router.delete("/v1/keys/{id}", summary="Revoke a key", status_code=204, responses=_FOUND)
async def revoke_key(
    id: Annotated[str, Path(max_length=100)], key: Administrator, service: ServiceDependency
) -> None:
    """Revoke a key, which is refused from now on."""
    if "\0" in id or not await asyncio.to_thread(service.keys.revoke, id, key.tenant or None):
        raise Problem(404, "not-found", f"there is no key {id!r}")
    service.key_ring.expire()
    _log.info("the key %s was revoked by %s", id, _describe(key), extra={"tenant": key.tenant})


# -- what happened -----------------------------------------------------------------------------------------


@router.get("/v1/rejects", summary="List refused messages", response_model=RejectPage, responses=_PROBLEMS)
async def list_rejects(
    key: Administrator,
    service: ServiceDependency,
    limit: Limit = 100,
    before: Before = None,
    stream: Annotated[str | None, Query(max_length=200)] = None,
) -> RejectPage:
    """Return the messages that were refused last, with the reason and the place in the message."""
    columns = log_schema.rejects.c
    query = select(log_schema.rejects).where(columns.tenant == key.tenant)
    if before is not None:
        query = query.where(columns.number < before)
    if stream is not None:
        query = query.where(columns.stream == stream.replace("\0", ""))
    rows = await asyncio.to_thread(
        service.reader.read_rows, query.order_by(columns.number.desc()).limit(limit + 1)
    )
    page = [
        {name: row[name] for name in ("number", "stream", "id", "received", "reason", "line", "column")}
        | {"body": row["body"][:_SHOWN_BODY].decode("utf-8", "replace")}
        for row in rows[:limit]
    ]
    return RejectPage(rejects=page, next=page[-1]["number"] if len(rows) > limit else None)


@router.get(
    "/v1/failures", summary="List failures of queries", response_model=FailureList, responses=_PROBLEMS
)
async def list_failures(key: Administrator, service: ServiceDependency) -> FailureList:
    """Return the last failures of subscriptions on messages, and how many each subscription had."""
    found = await service.engine.request(lambda n: Inspect(n, key.tenant, "failures"))
    places = {failure["place"] for failure in found["failures"]} | {*found["counts"], *found["refused"]}
    names = await asyncio.to_thread(service.names.find, places) if places else {}
    return FailureList(
        failures=[
            {name: value for name, value in failure.items() if name not in ("tenant", "place")}
            | {"subscription": names[failure["place"]]}
            for failure in found["failures"]
        ],
        counts={names[place]: kinds for place, kinds in found["counts"].items()},
        refused={names[place]: reason for place, reason in found["refused"].items()},
    )


@router.get("/v1/messages", summary="List messages", response_model=MessagePage, responses=_PROBLEMS)
async def list_messages(
    key: Administrator,
    service: ServiceDependency,
    limit: Limit = 100,
    before: Before = None,
    stream: Annotated[str | None, Query(max_length=200)] = None,
) -> MessagePage:
    """Return the messages that the log keeps, the newest first, without their bodies."""
    columns = log_schema.messages.c
    fields = (columns.seq, columns.stream, columns.id, columns.time, columns.received)
    query = select(*fields, columns.version, columns.deliveries).where(columns.tenant == key.tenant)
    if before is not None:
        query = query.where(columns.seq < before)
    if stream is not None:
        query = query.where(columns.stream == stream.replace("\0", ""))
    rows = await asyncio.to_thread(
        service.reader.read_rows, query.order_by(columns.seq.desc()).limit(limit + 1)
    )
    page = [dict(row) for row in rows[:limit]]
    return MessagePage(messages=page, next=page[-1]["seq"] if len(rows) > limit else None)


@router.get(
    "/v1/messages/{seq}",
    summary="Read a message",
    response_class=Response,
    responses=_FOUND | {200: {"description": "The message", "content": {"application/xml": {}}}},
)
async def get_message(
    seq: Annotated[int, Path(ge=1, le=2**62)], key: Administrator, service: ServiceDependency
) -> Response:
    """Return a message as it was published."""
    found = (await asyncio.to_thread(service.reader.read_messages, [seq])).get(seq)
    if found is None or found.tenant != key.tenant:
        raise Problem(404, "not-found", f"the log has no message {seq}, or does not keep it any longer")
    return Response(found.body, media_type="application/xml")


# -- the state ---------------------------------------------------------------------------------------------


@router.get("/v1/stats", summary="Read statistics", response_model=StatsAnswer, responses=_PROBLEMS)
async def get_stats(key: Administrator, service: ServiceDependency) -> StatsAnswer:
    """Return counters and sizes of the tenant, and the state of the engine."""
    tenant, inboxes, metrics = key.tenant, service.feed.inboxes, service.metrics
    own = [number for number, (owner, _) in inboxes.names.items() if owner == tenant]
    status = service.status.status
    state = await service.engine.request(lambda n: Inspect(n, tenant, "state"))
    return StatsAnswer(
        version=status.version if status is not None else 0,
        seq=status.seq if status is not None else 0,
        subscriptions=status.subscriptions.get(tenant, {}) if status is not None else {},
        subscribers=len(own),
        backlog=sum(map(inboxes.backlog, own)),
        suspended=sum(1 for number in own if number in inboxes.suspended),
        published=_value(metrics.published, tenant),
        deliveries=_value(metrics.matched, tenant),
        rejected=_value(metrics.rejected, tenant),
        failures=_value(metrics.failures, tenant),
        engine=_engine(service),
        listeners=_listeners(service) if not tenant else {},
        join_state=asdict(state) | {"templates": len(state.templates)},
    )


def _listeners(service: Service) -> dict[str, float]:
    return {way: _value(service.metrics.connections, way) for way in ("sse", "websocket")}


def _engine(service: Service) -> dict[str, Any]:
    status = service.status.status
    return {
        "ready": service.problem is None,
        "problem": service.problem,
        "memory": status.memory if status is not None else None,
        "restarts": service.engine.restarts,
    }


def _value(metric: Any, label: str) -> float:
    value: float = metric.labels(label)._value.get()
    return value


@router.post(
    "/v1/backup",
    summary="Back up the database",
    response_model=BackupAnswer,
    responses=_PROBLEMS | document_problems(409),
)
async def make_backup(body: BackupRequest, key: Administrator, service: ServiceDependency) -> BackupAnswer:
    """Write a copy of the SQLite database beside it while the server runs; for the first tenant only."""
    if key.tenant:
        raise Problem(403, "forbidden", "backups hold the data of all tenants")
    return BackupAnswer(**asdict(await asyncio.to_thread(back_up, service.log, body.name)))
