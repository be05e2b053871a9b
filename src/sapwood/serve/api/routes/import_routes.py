"""The import of many subscriptions."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from sapwood.serve.api.access import ServiceDependency, Subscriber
from sapwood.serve.api.models import ImportAnswer, NewSubscriptionRequest, RefusedLine
from sapwood.serve.api.problems import Problem, document_problems, invalid_problem, to_problem
from sapwood.serve.api.request_body import read_body
from sapwood.serve.api.routes.subscription_routes import (
    WaitForMesh,
    change_store,
    confirm_in_header,
    document_confirmation,
    to_row,
)
from sapwood.serve.mesh.administration.confirmed_changes import ConfirmedChange, list_changed
from sapwood.serve.service import Service
from sapwood.store import NewSubscription

if TYPE_CHECKING:
    from sapwood.serve.mesh.node.mesh_operations import QueryOfStreams

router = APIRouter(tags=["subscriptions"])
_log = logging.getLogger(__name__)
_PROBLEMS = document_problems(400, 401, 403, 413, 415, 422, 429, 503)
_CHUNK = 500
"""subscriptions that are imported at once, between which messages are evaluated"""


@router.post(
    "/v1/imports",
    summary="Import many subscriptions",
    response_model=ImportAnswer,
    responses=_PROBLEMS | document_confirmation(),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/x-ndjson": {
                    "schema": {"type": "string"},
                    "example": '{"id": "a", "query": "/order", "subscriber": "desk"}\n'
                    '{"id": "b", "query": "/invoice"}\n',
                }
            },
        }
    },
)
async def import_subscriptions(
    request: Request,
    response: Response,
    key: Subscriber,
    service: ServiceDependency,
    replace: Annotated[bool, Query(description="replace those that are there, instead of refusing")] = False,
    wait: WaitForMesh = True,
) -> ImportAnswer:
    """Import subscriptions, a JSON object in each line; a line that is refused does not refuse others."""
    body = await read_body(request, service)
    change = ConfirmedChange(service, wait)
    counts = dict.fromkeys(("added", "replaced", "unchanged", "refused"), 0)
    version = service.store(key.tenant).version
    errors: list[RefusedLine] = []
    try:
        chunk: list[tuple[int, NewSubscription]] = []
        for line, row in _parse_lines(body):
            if isinstance(row, RefusedLine):
                errors.append(row)
                counts["refused"] += 1
                continue
            chunk.append((line, row))
            if len(chunk) >= _CHUNK:
                version = await _import_chunk(service, key.tenant, chunk, replace, change, counts, errors)
                chunk = []
        if chunk:
            version = await _import_chunk(service, key.tenant, chunk, replace, change, counts, errors)
    finally:
        service.release(len(body))
    response.headers["Sapwood-Version"] = str(version)
    errors.sort(key=lambda refused: refused.line)
    _log.info(
        "subscriptions were imported up to version %d: %d added, %d replaced, %d refused",
        version,
        counts["added"],
        counts["replaced"],
        counts["refused"],
        extra={"tenant": key.tenant, "version": version},
    )
    confirmed = await change.confirm(version)
    confirm_in_header(response, confirmed)
    return ImportAnswer(**counts, version=version, errors=errors, confirmed=confirmed)


async def _import_chunk(
    service: Service,
    tenant: str,
    chunk: list[tuple[int, NewSubscription]],
    replace: bool,
    change: ConfirmedChange,
    counts: dict[str, int],
    errors: list[RefusedLine],
) -> int:
    rows = [row for _, row in chunk]
    queries = await asyncio.to_thread(_list_replaced, service, tenant, rows) if replace else []
    async with change.prepared(tenant, queries):
        report, refused = await change_store(service, tenant, "import", rows=rows, replace=replace)
    for name in counts:
        counts[name] += report[name]
    for position, error in refused:
        problem = to_problem(error)
        assert problem is not None
        line, row = chunk[position]
        errors.append(RefusedLine(line=line, id=row.id, error=problem.as_fields()))
    version: int = report["version"]
    return version


def _list_replaced(service: Service, tenant: str, rows: list[NewSubscription]) -> list[QueryOfStreams]:
    """Return the queries that take the place of others."""
    if service.mesh is None:
        return []
    store = service.store(tenant)
    found: list[QueryOfStreams] = []
    for row in rows:
        old = store.get(row.id)
        if old is not None:
            streams = old.streams if row.streams is None else row.streams
            active = old.active if row.active is None else row.active
            found += list_changed(old, row.query, streams, row.language, active)
    return found


def _parse_lines(body: bytes) -> Iterator[tuple[int, NewSubscription | RefusedLine]]:
    """Yield the lines of a body by number, each as a subscription or what is wrong with it."""
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            fields = NewSubscriptionRequest.model_validate(json.loads(line))
        except ValidationError as error:
            problem = invalid_problem(error.errors(include_url=False))
            yield number, RefusedLine(line=number, id=None, error=problem.as_fields())
        except (ValueError, RecursionError) as error:
            problem = Problem(422, "invalid", f"the line is no JSON object: {error}")
            yield number, RefusedLine(line=number, id=None, error=problem.as_fields())
        else:
            if fields.id is None:
                problem = Problem(422, "invalid", "id: is missing")
                yield number, RefusedLine(line=number, id=None, error=problem.as_fields())
            else:
                yield number, to_row(fields.id, fields)
