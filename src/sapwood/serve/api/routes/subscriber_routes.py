"""Subscribers: their settings, what they have missed, and their dead letters."""

from __future__ import annotations

import asyncio
import json
import logging
from bisect import bisect_right
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query
from sqlalchemy import select

from sapwood.errors import ArgumentError
from sapwood.serve.api.access import ServiceDependency, Subscriber
from sapwood.serve.api.models import (
    DeadLetterPage,
    GapList,
    ReplayAnswer,
    ReplayRequest,
    SubscriberAnswer,
    SubscriberPage,
    SubscriberSettings,
)
from sapwood.serve.api.problems import Problem, document_problems
from sapwood.serve.engine.frames import DeleteDeadLetters, DeleteInbox
from sapwood.serve.log import log_schema
from sapwood.serve.service import Service
from sapwood.serve.webhooks.dead_letters import replay_dead_letters
from sapwood.store.text_checks import check_text

router = APIRouter(tags=["subscribers"])
_log = logging.getLogger(__name__)
_PROBLEMS = document_problems(400, 401, 403, 422, 429, 503)
_FOUND = _PROBLEMS | document_problems(404)
_HIDDEN = "whsec_…"

SubscriberName = Annotated[str, Path(description="the subscriber", min_length=1, max_length=500)]
DeadLetterNumber = Annotated[int, Path(ge=0, le=2**53)]


def find_inbox(service: Service, tenant: str, name: str) -> int:
    """Return the number of a subscriber's inbox; raises Problem if there is none."""
    number = service.find_inbox(tenant, name)
    if number is None:
        raise Problem(
            404,
            "not-found",
            f"there is no subscriber {name!r}: it has neither subscriptions nor settings",
        )
    return number


def _answer(service: Service, number: int) -> SubscriberAnswer:
    inboxes = service.feed.inboxes
    status = service.webhooks.status(f"inbox {number}")
    settings = inboxes.get_settings(number)
    if settings.get("webhook"):
        settings["webhook"] |= {"secret": _HIDDEN, "previous_secrets": []}
    return SubscriberAnswer(
        name=inboxes.names[number][1],
        backlog=inboxes.backlog(number),
        last=int(inboxes.last[number]),
        acknowledged=int(inboxes.acknowledged[number]),
        dropped=int(inboxes.dropped[number]),
        suspended=number in inboxes.suspended,
        settings=settings,
        webhook=asdict(status) if status is not None else None,
    )


@router.get("/v1/subscribers", summary="List subscribers", response_model=SubscriberPage, responses=_PROBLEMS)
async def list_subscribers(
    key: Subscriber,
    service: ServiceDependency,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    after: Annotated[str | None, Query(description="`next` of the page before", max_length=500)] = None,
    text: Annotated[str | None, Query(description="part of the name", max_length=500)] = None,
) -> SubscriberPage:
    """Return subscribers by name, with their backlog."""
    found = sorted(
        (name, number)
        for number, (tenant, name) in service.feed.inboxes.names.items()
        if tenant == key.tenant and (text is None or text.lower() in name.lower())
    )
    start = bisect_right(found, after, key=lambda item: item[0]) if after is not None else 0
    page = found[start : start + limit]
    return SubscriberPage(
        subscribers=[_answer(service, number) for _, number in page],
        next=page[-1][0] if start + limit < len(found) else None,
    )


@router.post(
    "/v1/subscribers/{name:text}/resume",
    summary="Resume a suspended subscriber",
    response_model=SubscriberAnswer,
    responses=_FOUND,
)
async def resume_subscriber(
    name: SubscriberName, key: Subscriber, service: ServiceDependency
) -> SubscriberAnswer:
    """Let a subscriber get deliveries again that was suspended, or whose webhook was disabled."""
    number = find_inbox(service, key.tenant, name)
    settings = service.feed.inboxes.get_settings(number)
    settings.pop("webhook_disabled", None)
    await service.configure(key.tenant, name, settings, resume=True)
    return _answer(service, number)


@router.get(
    "/v1/subscribers/{name:text}/gaps",
    summary="List what a subscriber has missed",
    response_model=GapList,
    responses=_FOUND,
)
async def list_gaps(name: SubscriberName, key: Subscriber, service: ServiceDependency) -> GapList:
    """Return the deliveries that were dropped: where, how many, why and when."""
    number = find_inbox(service, key.tenant, name)
    columns = log_schema.gaps.c
    query = select(columns.after, columns.count, columns.reason, columns.since, columns.until)
    query = query.where(columns.inbox == number).order_by(columns.since, columns.after).limit(10_000)
    rows = await asyncio.to_thread(service.reader.read_rows, query)
    return GapList(gaps=[dict(row) for row in rows])


# -- dead letters ------------------------------------------------------------------------------------------


@router.get(
    "/v1/subscribers/{name:text}/dead-letters",
    summary="List dead letters",
    response_model=DeadLetterPage,
    responses=_FOUND,
)
async def list_dead_letters(
    name: SubscriberName,
    key: Subscriber,
    service: ServiceDependency,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> DeadLetterPage:
    """Return deliveries that the webhook's target refused for good, with the reason."""
    inbox = find_inbox(service, key.tenant, name)
    found = await _read_dead_letters(service, inbox, after, limit + 1)
    page = found[:limit]
    return DeadLetterPage(dead_letters=page, next=page[-1]["number"] if len(found) > limit else None)


async def _read_dead_letters(
    service: Service, inbox: int, after: int, limit: int, numbers: list[int] | None = None
) -> list[dict[str, Any]]:
    columns = log_schema.dead_letters.c
    query = select(columns.number, columns.record, columns.attempts, columns.reason, columns.since)
    query = query.where(columns.inbox == inbox, columns.number > after)
    if numbers is not None:
        query = query.where(columns.number.in_(numbers))
    rows = await asyncio.to_thread(service.reader.read_rows, query.order_by(columns.number).limit(limit))
    return [
        {
            "number": row["number"],
            "delivery": json.loads(row["record"]),
            "attempts": row["attempts"],
            "reason": row["reason"],
            "since": row["since"],
        }
        for row in rows
    ]


@router.post(
    "/v1/subscribers/{name:text}/dead-letters/replay",
    summary="Send dead letters again",
    response_model=ReplayAnswer,
    responses=_FOUND | document_problems(409),
)
async def replay_many(
    name: SubscriberName,
    key: Subscriber,
    service: ServiceDependency,
    body: Annotated[ReplayRequest | None, Body()] = None,
) -> ReplayAnswer:
    """Send dead letters to the webhook again, now; those that it accepts are deleted."""
    numbers = body.numbers if body is not None else None
    return await _replay(service, key.tenant, name, numbers)


@router.post(
    "/v1/subscribers/{name:text}/dead-letters/{number}/replay",
    summary="Send a dead letter again",
    response_model=ReplayAnswer,
    responses=_FOUND | document_problems(409),
)
async def replay_one(
    name: SubscriberName, number: DeadLetterNumber, key: Subscriber, service: ServiceDependency
) -> ReplayAnswer:
    """Send a dead letter to the webhook again, now; if it accepts it, it is deleted."""
    return await _replay(service, key.tenant, name, [number])


async def _replay(service: Service, tenant: str, name: str, numbers: list[int] | None) -> ReplayAnswer:
    inbox = find_inbox(service, tenant, name)
    found = await _read_dead_letters(service, inbox, 0, 1_000, numbers)
    missing = sorted(set(numbers or ()) - {letter["number"] for letter in found})
    if missing:
        raise Problem(404, "not-found", f"there is no dead letter {missing[0]}")
    replayed, failed = await replay_dead_letters(service, inbox, found)
    return ReplayAnswer(replayed=replayed, failed=failed)


@router.delete(
    "/v1/subscribers/{name:text}/dead-letters/{number}",
    summary="Delete a dead letter",
    status_code=204,
    responses=_FOUND,
)
async def delete_dead_letter(
    name: SubscriberName, number: DeadLetterNumber, key: Subscriber, service: ServiceDependency
) -> None:
    """Delete a dead letter."""
    inbox = find_inbox(service, key.tenant, name)
    if not await _read_dead_letters(service, inbox, 0, 1, [number]):
        raise Problem(404, "not-found", f"there is no dead letter {number}")
    await service.engine.request(lambda n: DeleteDeadLetters(n, [number]))


# -- the subscriber itself, after all that is below it, since names may hold slashes ------------------------


@router.get(
    "/v1/subscribers/{name:text}",
    summary="Read a subscriber",
    response_model=SubscriberAnswer,
    responses=_FOUND,
)
async def get_subscriber(
    name: SubscriberName, key: Subscriber, service: ServiceDependency
) -> SubscriberAnswer:
    """Return a subscriber, its backlog and its settings."""
    return _answer(service, find_inbox(service, key.tenant, name))


@router.put(
    "/v1/subscribers/{name:text}",
    summary="Set how a subscriber gets its deliveries",
    response_model=SubscriberAnswer,
    responses=_PROBLEMS,
)
async def put_subscriber(
    name: SubscriberName, body: SubscriberSettings, key: Subscriber, service: ServiceDependency
) -> SubscriberAnswer:
    """Set the limit of an inbox and what happens there, merging, and the webhook.

    The answer of a request that sets a webhook without a secret is the only one that shows the new secret.
    """
    check_text(name, "a subscriber")
    most = service.config.quota_of(key.tenant).backlog
    if most is not None and (body.limit or service.config.inboxes.limit) > most:
        raise Problem(403, "quota", f"the quota allows a limit of {most:,} deliveries")
    settings = body.model_dump(mode="json", exclude_none=True)
    secret_was_made = body.webhook is not None and "secret" not in body.webhook.model_fields_set
    if body.webhook is not None:
        settings["webhook"] = _keep_secret(service, key.tenant, name, body, secret_was_made)
        try:
            await service.webhooks.check(body.webhook)
        except ArgumentError as error:
            raise Problem(422, "invalid", f"webhook.url: {error}") from None
    number = await service.configure(key.tenant, name, settings)
    _log.info("the subscriber %r was set", name, extra={"tenant": key.tenant, "subscriber": name})
    answer = _answer(service, number)
    if body.webhook is not None and secret_was_made:
        answer.settings["webhook"]["secret"] = settings["webhook"]["secret"]
    return answer


def _keep_secret(
    service: Service, tenant: str, name: str, body: SubscriberSettings, secret_was_made: bool
) -> dict[str, Any]:
    """Return the settings of a webhook; one that gives no secret keeps that of the webhook before."""
    assert body.webhook is not None
    new = body.webhook.model_dump(mode="json")
    number = service.find_inbox(tenant, name)
    old = service.feed.inboxes.get_setting(number, "webhook") if number is not None else None
    if secret_was_made and old:
        new["secret"] = old["secret"]
    return new


@router.delete(
    "/v1/subscribers/{name:text}",
    summary="Delete a subscriber",
    status_code=204,
    responses=_FOUND | document_problems(409),
)
async def delete_subscriber(name: SubscriberName, key: Subscriber, service: ServiceDependency) -> None:
    """Delete a subscriber without subscriptions, with its inbox and its settings."""
    deleted = await service.engine.request(lambda n: DeleteInbox(n, key.tenant, name))
    if not deleted:
        find_inbox(service, key.tenant, name)
