"""Subscriptions: create, replace, pause, delete, list and import."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Query, Response

from sapwood.errors import ExistingIdError
from sapwood.serve.api.access import ServiceDependency, Subscriber
from sapwood.serve.api.models import (
    Language,
    Namespaces,
    NewSubscriptionRequest,
    SubscriptionAnswer,
    SubscriptionFields,
    SubscriptionPage,
    SubscriptionPatch,
    VersionAnswer,
    to_answer,
)
from sapwood.serve.api.problems import Problem, document_problems
from sapwood.serve.engine.frames import ChangeStore
from sapwood.serve.engine.subscription_changes import Changed
from sapwood.serve.mesh.administration.confirmed_changes import ConfirmedChange, list_changed
from sapwood.serve.service import Service
from sapwood.store import NewSubscription, Subscription
from sapwood.store.subscription_search import SubscriptionFilter

if TYPE_CHECKING:
    from sapwood.serve.mesh.node.mesh_operations import QueryOfStreams

router = APIRouter(tags=["subscriptions"])
_log = logging.getLogger(__name__)
_PROBLEMS = document_problems(400, 401, 403, 422, 429, 503)
_CONFIRMED = {
    "Sapwood-Confirmed": {
        "description": "in a mesh, whether all brokers have the change: from then on, no message that is "
        "published anywhere is missed",
        "schema": {"type": "string", "enum": ["true", "false"]},
    }
}

SubscriptionId = Annotated[str, Path(description="the id of the subscription", max_length=500)]
IfMatch = Annotated[
    str | None, Header(description="the ETag that the subscription must have", examples=['"17"'])
]
WaitForMesh = Annotated[
    bool,
    Query(
        description="in a mesh, answer when all brokers have the change, or after `mesh.confirm_wait`; "
        "false: answer at once"
    ),
]


def document_confirmation(status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer that tells whether all brokers have a change, for OpenAPI."""
    return {status: {"headers": _CONFIRMED}}


def _find(service: Service, tenant: str, id: str) -> Subscription:
    found = service.store(tenant).get(id)
    if found is None:
        raise _not_found(id)
    return found


def _not_found(id: str) -> Problem:
    return Problem(404, "not-found", f"there is no subscription {id!r}")


async def change_store(service: Service, tenant: str, operation: str, **arguments: Any) -> Any:
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


def confirm_in_header(response: Response, confirmed: bool | None) -> None:
    """Tell in a header whether all brokers have a change, if there is a mesh."""
    if confirmed is not None:
        response.headers["Sapwood-Confirmed"] = "true" if confirmed else "false"


async def _answer(response: Response, changed: Changed, change: ConfirmedChange) -> SubscriptionAnswer:
    found = changed.subscription
    if found is None:
        raise Problem(404, "not-found", "the subscription was removed by somebody else")
    response.headers["ETag"] = f'"{found.since}"'
    response.headers["Sapwood-Version"] = str(changed.version)
    confirmed = await change.confirm(changed.version)
    confirm_in_header(response, confirmed)
    return to_answer(found, confirmed)


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
    responses=_PROBLEMS | document_problems(409) | document_confirmation(201),
)
async def create_subscription(
    body: NewSubscriptionRequest,
    response: Response,
    key: Subscriber,
    service: ServiceDependency,
    wait: WaitForMesh = True,
) -> SubscriptionAnswer:
    """Create a subscription; messages that are published after the answer are matched with it.

    In a mesh that holds for messages that are published at any broker, if the answer is `confirmed`.
    """
    change = ConfirmedChange(service, wait)
    id = body.id if body.id is not None else secrets.token_hex(8)
    row = to_row(id, body)
    changed: Changed = await change_store(service, key.tenant, "put", row=row, only_new=True)
    _log_change("created", key.tenant, id, changed.version)
    response.headers["Location"] = f"/v1/subscriptions/{quote(id, safe='').replace('.', '%2E')}"
    return await _answer(response, changed, change)


@router.put(
    "/v1/subscriptions/{id:text}",
    summary="Create or replace a subscription",
    response_model=SubscriptionAnswer,
    responses=_PROBLEMS
    | document_problems(412)
    | document_confirmation()
    | {201: {"description": "Created", "model": SubscriptionAnswer, "headers": _CONFIRMED}},
)
async def put_subscription(
    id: SubscriptionId,
    body: SubscriptionFields,
    response: Response,
    key: Subscriber,
    service: ServiceDependency,
    if_match: IfMatch = None,
    if_none_match: Annotated[str | None, Header(description="`*`: only if there is none")] = None,
    wait: WaitForMesh = True,
) -> SubscriptionAnswer:
    """Put a subscription under an id; one that is there is replaced, and keeps its place in the order.

    In a mesh, all brokers know of the new query before it takes the place of the old one.
    """
    row = to_row(id, body)
    change = ConfirmedChange(service, wait)
    only_new = if_none_match is not None and if_none_match.strip() == "*"
    expected = _parse_etag(if_match)
    if if_match is not None and expected is None:
        expected = await asyncio.to_thread(_require_version, service, key.tenant, id)
    old = await _find_old(service, key.tenant, id)
    queries = list_changed(old, body.query, body.streams, body.language, body.active)
    try:
        async with change.prepared(key.tenant, queries):
            changed: Changed = await change_store(
                service, key.tenant, "put", row=row, only_new=only_new, expected=expected
            )
    except ExistingIdError as error:
        raise Problem(412, "precondition-failed", f"{error}, and If-None-Match wants none") from None
    _log_change("created" if changed.created else "replaced", key.tenant, id, changed.version)
    response.status_code = 201 if changed.created else 200
    return await _answer(response, changed, change)


async def _find_old(service: Service, tenant: str, id: str) -> Subscription | None:
    """Return a subscription before it changes, if that matters: only a mesh has to know."""
    if service.mesh is None or "\0" in id:
        return None
    return await asyncio.to_thread(service.store(tenant).get, id)


@router.patch(
    "/v1/subscriptions/{id:text}",
    summary="Pause, resume or change a subscription",
    response_model=SubscriptionAnswer,
    responses=_PROBLEMS | document_problems(404, 412) | document_confirmation(),
)
async def patch_subscription(
    id: SubscriptionId,
    body: SubscriptionPatch,
    response: Response,
    key: Subscriber,
    service: ServiceDependency,
    if_match: IfMatch = None,
    wait: WaitForMesh = True,
) -> SubscriptionAnswer:
    """Change some fields of a subscription; `{"active": false}` pauses it."""
    change = ConfirmedChange(service, wait)
    fields = {name: value for name, value in body.model_dump().items() if value is not None}
    if "streams" in fields:
        fields["streams"] = tuple(fields["streams"])
    old = await _find_old(service, key.tenant, id)
    try:
        async with change.prepared(key.tenant, _list_patched(old, fields)):
            changed: Changed = await change_store(
                service, key.tenant, "patch", id=id, fields=fields, expected=_parse_etag(if_match)
            )
    except KeyError:
        raise _not_found(id) from None
    _log_change("changed", key.tenant, id, changed.version)
    return await _answer(response, changed, change)


def _list_patched(old: Subscription | None, fields: dict[str, Any]) -> list[QueryOfStreams]:
    if old is None:
        return []
    query = fields.get("query", old.query)
    language = fields.get("language") or (old.language if query == old.query else None)
    streams = fields.get("streams", old.streams)
    return list_changed(old, query, streams, language, fields.get("active", old.active))


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
        version: int = await change_store(
            service, key.tenant, "remove", id=id, expected=_parse_etag(if_match)
        )
    except KeyError:
        raise _not_found(id) from None
    _log_change("deleted", key.tenant, id, version)
    response.headers["Sapwood-Version"] = str(version)
    return VersionAnswer(version=version)


def to_row(id: str, body: SubscriptionFields) -> NewSubscription:
    """Return what the store is given for a request."""
    return NewSubscription(id, body.query, body.subscriber, body.language, body.active, tuple(body.streams))


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
    version: int = await change_store(service, key.tenant, "declare", namespaces=body.namespaces)
    response.headers["Sapwood-Version"] = str(version)
    return VersionAnswer(version=version)
