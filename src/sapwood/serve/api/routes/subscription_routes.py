"""Subscriptions: create, replace, pause, delete, list and import."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import ValidationError

from sapwood.errors import ExistingIdError
from sapwood.serve.api.access import ServiceDependency, Subscriber
from sapwood.serve.api.models import (
    ImportAnswer,
    Language,
    Namespaces,
    NewSubscriptionRequest,
    RefusedLine,
    SubscriptionAnswer,
    SubscriptionFields,
    SubscriptionPage,
    SubscriptionPatch,
    VersionAnswer,
    to_answer,
)
from sapwood.serve.api.problems import Problem, document_problems, invalid_problem, to_problem
from sapwood.serve.api.request_body import read_body
from sapwood.serve.engine.frames import ChangeStore
from sapwood.serve.engine.subscription_changes import Changed
from sapwood.serve.service import Service
from sapwood.store import NewSubscription, Subscription
from sapwood.store.subscription_search import SubscriptionFilter

router = APIRouter(tags=["subscriptions"])
_log = logging.getLogger(__name__)
_PROBLEMS = document_problems(400, 401, 403, 422, 429, 503)
_CHUNK = 500
"""subscriptions that are imported at once, between which messages are evaluated"""

SubscriptionId = Annotated[str, Path(description="the id of the subscription", max_length=500)]
IfMatch = Annotated[
    str | None, Header(description="the ETag that the subscription must have", examples=['"17"'])
]


def _find(service: Service, tenant: str, id: str) -> Subscription:
    found = service.store(tenant).get(id)
    if found is None:
        raise _not_found(id)
    return found


def _not_found(id: str) -> Problem:
    return Problem(404, "not-found", f"there is no subscription {id!r}")


async def _change(service: Service, tenant: str, operation: str, **arguments: Any) -> Any:
    return await service.engine.request(lambda n: ChangeStore(n, tenant, operation, arguments))


def _parse_etag(text: str | None) -> int | None:
    """Return the version in an If-Match header; None without one, or for `*`."""
    if text is None or text.strip() == "*":
        return None
    digits = text.strip().removeprefix("W/").strip('"')
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise Problem(
            412, "precondition-failed", f"{text!r} is no ETag of a subscription; it is a number in quotes"
        )
    return int(digits)


def _log_change(what: str, tenant: str, id: str, version: int) -> None:
    fields = {"tenant": tenant, "subscription": id, "version": version}
    _log.info("the subscription %r was %s in version %d", id, what, version, extra=fields)


def _require_version(service: Service, tenant: str, id: str) -> int:
    """Return the version of a subscription that must be there, because of `If-Match: *`."""
    found = service.store(tenant).get(id)
    if found is None:
        raise Problem(412, "precondition-failed", f"there is no subscription {id!r} to be replaced")
    return found.since


def _answer(response: Response, changed: Changed) -> SubscriptionAnswer:
    found = changed.subscription
    if found is None:
        raise Problem(404, "not-found", "the subscription was removed by somebody else")
    response.headers["ETag"] = f'"{found.since}"'
    response.headers["Sapwood-Version"] = str(changed.version)
    return to_answer(found)


# -- reading -----------------------------------------------------------------------------------------------


@router.get(
    "/v1/subscriptions",
    summary="List or search subscriptions",
    response_model=SubscriptionPage,
    responses=_PROBLEMS,
)
async def list_subscriptions(
    key: Subscriber,
    service: ServiceDependency,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    after: Annotated[
        str | None, Query(description="the cursor `next` of the page before", max_length=20)
    ] = None,
    subscriber: Annotated[str | None, Query(max_length=500)] = None,
    language: Language | None = None,
    stream: Annotated[str | None, Query(description="one that it is restricted to", max_length=200)] = None,
    active: bool | None = None,
    text: Annotated[str | None, Query(description="part of the id or the query", max_length=500)] = None,
) -> SubscriptionPage:
    """Return subscriptions in the order added, a page at a time."""
    for given in (subscriber, stream, text):
        _check_text(given)
    place = _parse_cursor(after)
    wanted = SubscriptionFilter(subscriber, language, active, stream, text)
    store = service.store(key.tenant)
    found = await asyncio.to_thread(store.search, wanted, place, limit + 1)
    page = found[:limit]
    return SubscriptionPage(
        subscriptions=[to_answer(each) for each in page],
        next=str(page[-1].place) if len(found) > limit else None,
        version=await asyncio.to_thread(lambda: store.version),
    )


def _check_text(text: str | None) -> None:
    if text is not None and "\0" in text:
        raise Problem(422, "invalid", "the character NUL is in no subscription")


def _parse_cursor(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Problem(422, "invalid", f"{text!r} is no cursor: take `next` of the page before")
    return int(text)


@router.get(
    "/v1/subscriptions/{id:text}",
    summary="Read a subscription",
    response_model=SubscriptionAnswer,
    responses=_PROBLEMS | document_problems(404),
)
async def get_subscription(
    id: SubscriptionId, response: Response, key: Subscriber, service: ServiceDependency
) -> SubscriptionAnswer:
    """Return a subscription, with its version as ETag."""
    found = await asyncio.to_thread(_find, service, key.tenant, id)
    response.headers["ETag"] = f'"{found.since}"'
    return to_answer(found)


# -- changes -----------------------------------------------------------------------------------------------


@router.post(
    "/v1/subscriptions",
    summary="Create a subscription",
    status_code=201,
    response_model=SubscriptionAnswer,
    responses=_PROBLEMS | document_problems(409),
)
async def create_subscription(
    body: NewSubscriptionRequest, response: Response, key: Subscriber, service: ServiceDependency
) -> SubscriptionAnswer:
    """Create a subscription; messages that are published after the answer are matched with it."""
    id = body.id if body.id is not None else secrets.token_hex(8)
    row = _to_row(id, body)
    changed: Changed = await _change(service, key.tenant, "put", row=row, only_new=True)
    _log_change("created", key.tenant, id, changed.version)
    response.headers["Location"] = f"/v1/subscriptions/{quote(id, safe='').replace('.', '%2E')}"
    return _answer(response, changed)


@router.put(
    "/v1/subscriptions/{id:text}",
    summary="Create or replace a subscription",
    response_model=SubscriptionAnswer,
    responses=_PROBLEMS
    | document_problems(412)
    | {201: {"description": "Created", "model": SubscriptionAnswer}},
)
async def put_subscription(
    id: SubscriptionId,
    body: SubscriptionFields,
    response: Response,
    key: Subscriber,
    service: ServiceDependency,
    if_match: IfMatch = None,
    if_none_match: Annotated[str | None, Header(description="`*`: only if there is none")] = None,
) -> SubscriptionAnswer:
    """Put a subscription under an id; one that is there is replaced, and keeps its place in the order."""
    row = _to_row(id, body)
    only_new = if_none_match is not None and if_none_match.strip() == "*"
    expected = _parse_etag(if_match)
    if if_match is not None and expected is None:
        expected = await asyncio.to_thread(_require_version, service, key.tenant, id)
    try:
        changed: Changed = await _change(
            service, key.tenant, "put", row=row, only_new=only_new, expected=expected
        )
    except ExistingIdError as error:
        raise Problem(412, "precondition-failed", f"{error}, and If-None-Match wants none") from None
    _log_change("created" if changed.created else "replaced", key.tenant, id, changed.version)
    response.status_code = 201 if changed.created else 200
    return _answer(response, changed)


@router.patch(
    "/v1/subscriptions/{id:text}",
    summary="Pause, resume or change a subscription",
    response_model=SubscriptionAnswer,
    responses=_PROBLEMS | document_problems(404, 412),
)
async def patch_subscription(
    id: SubscriptionId,
    body: SubscriptionPatch,
    response: Response,
    key: Subscriber,
    service: ServiceDependency,
    if_match: IfMatch = None,
) -> SubscriptionAnswer:
    """Change some fields of a subscription; `{"active": false}` pauses it."""
    fields = {name: value for name, value in body.model_dump().items() if value is not None}
    if "streams" in fields:
        fields["streams"] = tuple(fields["streams"])
    try:
        changed: Changed = await _change(
            service, key.tenant, "patch", id=id, fields=fields, expected=_parse_etag(if_match)
        )
    except KeyError:
        raise _not_found(id) from None
    _log_change("changed", key.tenant, id, changed.version)
    return _answer(response, changed)


@router.delete(
    "/v1/subscriptions/{id:text}",
    summary="Delete a subscription",
    response_model=VersionAnswer,
    responses=_PROBLEMS | document_problems(404, 412),
)
async def delete_subscription(
    id: SubscriptionId,
    response: Response,
    key: Subscriber,
    service: ServiceDependency,
    if_match: IfMatch = None,
) -> VersionAnswer:
    """Delete a subscription; what is in the inbox of its subscriber stays there."""
    try:
        version: int = await _change(service, key.tenant, "remove", id=id, expected=_parse_etag(if_match))
    except KeyError:
        raise _not_found(id) from None
    _log_change("deleted", key.tenant, id, version)
    response.headers["Sapwood-Version"] = str(version)
    return VersionAnswer(version=version)


def _to_row(id: str, body: SubscriptionFields) -> NewSubscription:
    return NewSubscription(id, body.query, body.subscriber, body.language, body.active, tuple(body.streams))


# -- import ------------------------------------------------------------------------------------------------


@router.post(
    "/v1/imports",
    summary="Import many subscriptions",
    response_model=ImportAnswer,
    responses=_PROBLEMS | document_problems(413, 415),
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
) -> ImportAnswer:
    """Import subscriptions, a JSON object in each line; a line that is refused does not refuse others."""
    body = await read_body(request, service)
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
                version = await _import_chunk(service, key.tenant, chunk, replace, counts, errors)
                chunk = []
        if chunk:
            version = await _import_chunk(service, key.tenant, chunk, replace, counts, errors)
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
    return ImportAnswer(**counts, version=version, errors=errors)


async def _import_chunk(
    service: Service,
    tenant: str,
    chunk: list[tuple[int, NewSubscription]],
    replace: bool,
    counts: dict[str, int],
    errors: list[RefusedLine],
) -> int:
    rows = [row for _, row in chunk]
    report, refused = await _change(service, tenant, "import", rows=rows, replace=replace)
    for name in counts:
        counts[name] += report[name]
    for position, error in refused:
        problem = to_problem(error)
        assert problem is not None
        line, row = chunk[position]
        errors.append(RefusedLine(line=line, id=row.id, error=problem.as_fields()))
    version: int = report["version"]
    return version


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
                yield number, _to_row(fields.id, fields)


# -- namespaces --------------------------------------------------------------------------------------------


@router.get(
    "/v1/namespaces", summary="List the declared prefixes", response_model=Namespaces, responses=_PROBLEMS
)
async def get_namespaces(key: Subscriber, service: ServiceDependency) -> Namespaces:
    """Return the prefixes that queries may use."""
    store = service.store(key.tenant)
    return Namespaces(namespaces=await asyncio.to_thread(lambda: store.namespaces))


@router.put("/v1/namespaces", summary="Declare prefixes", response_model=VersionAnswer, responses=_PROBLEMS)
async def put_namespaces(
    body: Namespaces, response: Response, key: Subscriber, service: ServiceDependency
) -> VersionAnswer:
    """Declare further prefixes; one that is there keeps its namespace."""
    version: int = await _change(service, key.tenant, "declare", namespaces=body.namespaces)
    response.headers["Sapwood-Version"] = str(version)
    return VersionAnswer(version=version)
