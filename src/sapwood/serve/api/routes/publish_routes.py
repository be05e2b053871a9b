"""Publishing messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response

from sapwood.errors import ArgumentError
from sapwood.serve.api.access import Publisher, ServiceDependency
from sapwood.serve.api.models import PublishAnswer, PublishManyAnswer
from sapwood.serve.api.problems import Problem, document_problems, message_problem
from sapwood.serve.api.request_body import BodyMessage, is_many, read_body, split_body
from sapwood.serve.auth.api_keys import ApiKey
from sapwood.serve.engine.frames import MessageProblem, Receipt
from sapwood.serve.publish_request import (
    PublishOutcome,
    check_message_id,
    check_stream,
    make_message_id,
    parse_time,
    publish,
)
from sapwood.serve.service import Service
from sapwood.serve.tenants.evaluation import Publication
from sapwood.serve.tracing import trace

router = APIRouter(tags=["publish"])
_log = logging.getLogger(__name__)
_EXAMPLE = "<order><id>17</id><total>250</total></order>"
_LONGEST_WAIT = 3_600.0


@router.post(
    "/v1/streams/{stream}/messages",
    summary="Publish one message, or many",
    status_code=201,
    response_model=PublishAnswer | PublishManyAnswer,
    responses={
        200: {
            "description": "Many messages, or one that was published before",
            "model": PublishAnswer | PublishManyAnswer,
        },
        **document_problems(400, 401, 403, 409, 413, 415, 422, 429, 503),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "One XML message; or one in each line; or one in each part.",
            "content": {
                "application/xml": {"schema": {"type": "string"}, "example": _EXAMPLE},
                "application/x-xmll": {
                    "schema": {"type": "string"},
                    "example": "<order><id>17</id></order>\n<order><id>18</id></order>\n",
                },
                "multipart/form-data": {
                    "schema": {"type": "object", "additionalProperties": {"type": "string"}}
                },
            },
        }
    },
)
async def publish_messages(
    request: Request,
    response: Response,
    key: Publisher,
    service: ServiceDependency,
    stream: Annotated[str, Path(description="the stream that the messages belong to", max_length=200)],
    wait: Annotated[
        Literal["durable", "delivered"],
        Query(description="answer when the messages are in the log, or when all deliveries are acknowledged"),
    ] = "durable",
    timeout: Annotated[
        float, Query(ge=0, le=_LONGEST_WAIT, description="seconds to wait for deliveries")
    ] = 30.0,
    time: Annotated[
        str | None, Query(description="the event time, ISO 8601 or seconds since the epoch", max_length=100)
    ] = None,
    sapwood_message_id: Annotated[
        str | None, Header(description="the id of the message: publishing it again does nothing")
    ] = None,
    idempotency_key: Annotated[
        str | None, Header(description="the same; of many messages, number n has the id `key-n`")
    ] = None,
    sapwood_time: Annotated[str | None, Header(description="the event time")] = None,
) -> Any:
    """Publish XML messages; the answer comes when they are in the log.

    A message that is refused does not refuse its neighbours. `Content-Encoding` may be gzip or zstd.
    """
    check_stream(stream)
    _check_available(service)
    content_type = request.headers.get("content-type", "")
    body = await read_body(request, service)
    try:
        given_time = time or sapwood_time
        given_id = _decode(sapwood_message_id or idempotency_key)
        if is_many(content_type):
            found = split_body(body, content_type, given_id, service.config.overload.messages)
        else:
            found = [BodyMessage(body, given_id)]
        most = service.config.quota_of(key.tenant).message_size
        messages = [_to_publication(key, stream, message, given_time, most) for message in found]
        refused = {i: each for i, each in enumerate(messages) if isinstance(each, MessageProblem)}
        accepted = [each for each in messages if isinstance(each, Publication)]
        if accepted:
            with trace(
                "publish",
                "server",
                request.headers,
                messaging__system="sapwood",
                messaging__destination__name=stream,
                messaging__message__id=accepted[0].id,
                messaging__batch__message_count=len(accepted),
            ):
                outcome = await publish(service, accepted, timeout if wait == "delivered" else None)
        else:
            outcome = PublishOutcome([])
        results = iter(outcome.results)
        merged = [refused[i] if i in refused else next(results) for i in range(len(messages))]
    finally:
        service.release(len(body))
    _log_outcome(key.tenant, stream, merged)
    if is_many(content_type):
        response.status_code = 200
        return _answer_many(stream, merged, outcome.delivered)
    result = merged[0]
    if isinstance(result, MessageProblem):
        raise message_problem(result, stream)
    if result.duplicate:
        response.status_code = 200
    return _answer(stream, result, outcome.delivered)


def _decode(header: str | None) -> str | None:
    """Return the text of a header, which was read as Latin-1, as UTF-8 if it is that."""
    if header is None or header.isascii():
        return header
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _log_outcome(tenant: str, stream: str, results: Sequence[Receipt | MessageProblem]) -> None:
    """Log what became of a request: one line however many messages it has."""
    refused = [result for result in results if isinstance(result, MessageProblem)]
    fields = {"tenant": tenant, "stream": stream}
    if refused:
        _log.info(
            "%d of %d messages for stream %r are refused: %s",
            len(refused),
            len(results),
            stream,
            refused[0].reason,
            extra=fields | {"message_id": refused[0].id},
        )
    elif results and _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "%d messages for stream %r are in the log",
            len(results),
            stream,
            extra=fields | {"message_id": results[0].id},
        )


def _check_available(service: Service) -> None:
    problem = service.problem
    if problem is not None:
        raise Problem(
            503, "unavailable", f"messages cannot be published at present: {problem}", retry_after=2
        )


def _to_publication(
    key: ApiKey, stream: str, message: BodyMessage, time: str | None, most: int | None
) -> Publication | MessageProblem:
    id = message.id if message.id is not None else make_message_id()
    text = message.time or time
    try:
        check_message_id(id)
        moment = parse_time(text) if text else None
    except ArgumentError as error:
        return MessageProblem(id[:500], str(error))
    size = len(message.body)
    if most is not None and size > most:
        return MessageProblem(id, f"the quota allows messages of {most:,} bytes, and it has {size:,}")
    return Publication(key.tenant, stream, id, message.body, moment, is_new=message.id is None)


def _answer(stream: str, receipt: Receipt, delivered: bool | None) -> PublishAnswer:
    return PublishAnswer(
        id=receipt.id,
        stream=stream,
        seq=receipt.seq,
        version=receipt.version,
        deliveries=receipt.deliveries,
        duplicate=receipt.duplicate,
        failures=receipt.failures,
        late=receipt.late,
        delivered=None if receipt.duplicate else delivered,
    )


def _answer_many(
    stream: str, results: list[Receipt | MessageProblem], delivered: bool | None
) -> PublishManyAnswer:
    receipts = [result for result in results if isinstance(result, Receipt)]
    duplicates = sum(1 for receipt in receipts if receipt.duplicate)
    return PublishManyAnswer(
        messages=[
            _answer(stream, result, delivered).model_dump()
            if isinstance(result, Receipt)
            else {"id": result.id, "error": message_problem(result, stream).as_fields()}
            for result in results
        ],
        published=len(receipts) - duplicates,
        duplicates=duplicates,
        refused=len(results) - len(receipts),
        deliveries=sum(receipt.deliveries for receipt in receipts if not receipt.duplicate),
        delivered=delivered,
    )
