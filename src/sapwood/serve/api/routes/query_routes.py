"""Explaining queries, and trying them on messages."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query

from sapwood.serve.api.access import ServiceDependency, Subscriber
from sapwood.serve.api.models import ExplainAnswer, ExplainRequest, TryAnswer, TryRequest
from sapwood.serve.api.problems import Problem, document_problems
from sapwood.serve.engine.frames import Inspect
from sapwood.serve.playground import Trial, describe, explain_query, try_query

router = APIRouter(tags=["queries"])
_PROBLEMS = document_problems(400, 401, 403, 422, 429, 503)
_AT_ONCE = asyncio.Semaphore(2)
"""trials at the same time: they share the processors with the server"""


@router.get(
    "/v1/explain",
    summary="Explain a subscription",
    response_model=ExplainAnswer,
    responses=_PROBLEMS | document_problems(404, 409),
)
async def explain_subscription(
    subscription: Annotated[str, Query(description="the id of the subscription", max_length=500)],
    key: Subscriber,
    service: ServiceDependency,
) -> ExplainAnswer:
    """Return how a subscription is evaluated, and with how many others it shares that."""
    store = service.store(key.tenant)
    found = await asyncio.to_thread(store.get, subscription)
    if found is None:
        raise Problem(404, "not-found", f"there is no subscription {subscription!r}")
    explanation: Any = await service.engine.request(
        lambda n: Inspect(n, key.tenant, "explain", {"place": found.place})
    )
    if explanation is None:
        raise Problem(409, "conflict", f"the subscription {subscription!r} is paused: it is not evaluated")
    if isinstance(explanation, str):
        raise Problem(409, "conflict", f"the subscription cannot be evaluated: {explanation}")
    namespaces = await asyncio.to_thread(lambda: store.namespaces)
    fields = await asyncio.to_thread(describe, explanation, found.query, namespaces)
    return ExplainAnswer(**fields)


@router.post("/v1/explain", summary="Explain a query", response_model=ExplainAnswer, responses=_PROBLEMS)
async def explain(body: ExplainRequest, key: Subscriber, service: ServiceDependency) -> ExplainAnswer:
    """Return how a query would be evaluated: natively, or which parts by lxml, and at what cost."""
    store = service.store(key.tenant)
    async with _AT_ONCE:
        namespaces = await asyncio.to_thread(lambda: store.namespaces)
        fields = await asyncio.to_thread(explain_query, body.query, namespaces)
    return ExplainAnswer(**fields)


@router.post("/v1/try", summary="Try a query on messages", response_model=TryAnswer, responses=_PROBLEMS)
async def try_on_messages(body: TryRequest, key: Subscriber, service: ServiceDependency) -> TryAnswer:
    """Return whether a query matches a message, what it selects or makes, and why or why not.

    A join is given `messages` in order, with their streams and times.
    """
    trials = [Trial(each.body.encode(), each.stream, each.time) for each in body.messages]
    if body.message is not None:
        trials.append(Trial(body.message.encode()))
    store = service.store(key.tenant)
    limits = service.config.message_limits()
    async with _AT_ONCE:
        namespaces = await asyncio.to_thread(lambda: store.namespaces)
        fields = await asyncio.to_thread(try_query, body.query, trials, namespaces, limits)
    return TryAnswer(**fields)
