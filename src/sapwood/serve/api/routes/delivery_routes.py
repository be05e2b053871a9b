"""Deliveries: pulled, as server-sent events, or over a WebSocket."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

from sapwood.serve.api.access import Listener, ServiceDependency, Subscriber, authorize
from sapwood.serve.api.models import AckAnswer, AckRequest, DeliveryPage
from sapwood.serve.api.problems import Problem, document_problems
from sapwood.serve.api.routes.subscriber_routes import SubscriberName, find_inbox
from sapwood.serve.auth.api_keys import Scope
from sapwood.serve.delivery.delivery_content import Delivery
from sapwood.serve.delivery.inbox_reader import GapNotice, InboxGone, InboxReader
from sapwood.serve.service import Service

router = APIRouter(tags=["deliveries"])
_log = logging.getLogger(__name__)
_PROBLEMS = document_problems(400, 401, 403, 404, 422, 429, 503)
_HEARTBEAT = 15.0
"""seconds without a delivery after which a listener is sent a comment, so that nobody ends the connection"""
_AT_ONCE = 200
_LIVE = 60.0
"""seconds: a delivery that is older was not sent live, and says nothing about latency"""
_LARGEST = 2**62

After = Annotated[
    int | None, Query(ge=0, le=_LARGEST, description="begin after this number; else, after the acknowledged")
]


# -- pull --------------------------------------------------------------------------------------------------


@router.get(
    "/v1/subscribers/{name:text}/deliveries",
    summary="Pull deliveries",
    response_model=DeliveryPage,
    responses=_PROBLEMS,
)
async def pull_deliveries(
    name: SubscriberName,
    key: Subscriber,
    service: ServiceDependency,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    wait: Annotated[float, Query(ge=0, le=300, description="seconds to wait until there are any")] = 0.0,
) -> DeliveryPage:
    """Return deliveries in order; to acknowledge them, post `cursor` to `ack`."""
    inbox = find_inbox(service, key.tenant, name)
    with service.open_reader(inbox, after) as reader:
        try:
            gaps, deliveries = await reader.next(limit, wait)
        except InboxGone:
            find_inbox(service, key.tenant, name)
            raise
        _count(service, "pull", deliveries)
        return DeliveryPage(
            deliveries=[delivery.as_fields() for delivery in deliveries],
            cursor=reader.position,
            backlog=service.feed.inboxes.backlog(inbox),
            gaps=[gap.as_fields() for gap in gaps],
        )


@router.post(
    "/v1/subscribers/{name:text}/ack",
    summary="Acknowledge deliveries",
    response_model=AckAnswer,
    responses=_PROBLEMS,
)
async def acknowledge(
    name: SubscriberName, body: AckRequest, key: Subscriber, service: ServiceDependency
) -> AckAnswer:
    """Acknowledge all deliveries up to one, which will not be sent again."""
    inbox = find_inbox(service, key.tenant, name)
    await service.acknowledge(inbox, _parse_number(body.upto, inbox))
    inboxes = service.feed.inboxes
    return AckAnswer(acknowledged=int(inboxes.acknowledged[inbox]), backlog=inboxes.backlog(inbox))


def _parse_number(given: int | str, inbox: int) -> int:
    """Return the number of a delivery that is given by number or id."""
    text = str(given)
    owner, dash, number = text.rpartition("-")
    if dash and owner != str(inbox):
        raise Problem(422, "invalid", f"{text!r} is no delivery of this subscriber")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise Problem(422, "invalid", f"{text!r} is neither the number of a delivery nor its id")
    return int(number)


def _count(service: Service, way: str, deliveries: list[Delivery]) -> None:
    if not deliveries:
        return
    service.metrics.delivered.labels(way).inc(len(deliveries))
    age = time.time() - deliveries[-1].content.published
    if 0 <= age < _LIVE:
        service.metrics.delivery_seconds.labels(way).observe(age)


@contextmanager
def _listening(service: Service, way: str, inbox: int) -> Iterator[None]:
    """Count and log a connection while it lasts."""
    tenant, name = service.feed.inboxes.names.get(inbox, ("", ""))  # it may be deleted just now
    fields = {"tenant": tenant, "subscriber": name, "way": way}
    gauge = service.metrics.connections.labels(way)
    gauge.inc()
    _log.info("a listener of %r is connected by %s", name, way, extra=fields)
    try:
        yield
    finally:
        gauge.dec()
        _log.info("a listener of %r has left", name, extra=fields)


# -- server-sent events ------------------------------------------------------------------------------------


@router.get(
    "/v1/subscribers/{name:text}/events",
    summary="Listen to deliveries as server-sent events",
    response_class=StreamingResponse,
    responses=_PROBLEMS
    | {
        200: {
            "description": "Events `delivery`, whose id is its number, and `gap`",
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'id: 1\nevent: delivery\ndata: {"id": "1-1", "number": 1}\n\n',
                }
            },
        }
    },
)
async def listen(
    name: SubscriberName,
    request: Request,
    key: Listener,
    service: ServiceDependency,
    after: After = None,
    last_event_id: Annotated[
        str | None, Header(description="begin after this event, and acknowledge what is before")
    ] = None,
) -> StreamingResponse:
    """Send deliveries as they come, beginning with those that are not acknowledged."""
    inbox = find_inbox(service, key.tenant, name)
    if last_event_id:
        number = _parse_number(last_event_id, inbox)
        await service.acknowledge(inbox, number)
        after = number if after is None else after
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    events = _events(service, inbox, after)
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(service: Service, inbox: int, after: int | None) -> AsyncIterator[str]:
    """Yield the events of an inbox until the server stops, or the inbox is deleted."""
    try:
        with _listening(service, "sse", inbox), service.open_reader(inbox, after) as reader:
            yield "retry: 1000\n\n"
            while not service.is_stopping:
                gaps, deliveries = await reader.next(_AT_ONCE, _HEARTBEAT)
                if gaps or deliveries:
                    yield _format_events(gaps, deliveries)
                    _count(service, "sse", deliveries)
                elif not service.is_stopping:
                    yield ": still here\n\n"
    except InboxGone as error:
        problem = Problem(404, "not-found", str(error))
        yield f"event: error\ndata: {json.dumps(problem.as_fields())}\n\n"


def _format_events(gaps: list[GapNotice], deliveries: list[Delivery]) -> str:
    lines = [f"event: gap\ndata: {json.dumps(gap.as_fields())}\n\n" for gap in gaps]
    lines += [
        f"id: {delivery.number}\nevent: delivery\ndata: {delivery.as_json()}\n\n" for delivery in deliveries
    ]
    return "".join(lines)


# -- WebSocket ---------------------------------------------------------------------------------------------


@router.websocket("/v1/subscribers/{name:text}/socket")
async def listen_socket(websocket: WebSocket, name: str) -> None:
    """Send deliveries as they come, no more than the client has given credit for."""
    service: Service = websocket.app.state.service
    try:
        key = await authorize(websocket, Scope.SUBSCRIBE, in_query=True)
        inbox = find_inbox(service, key.tenant, name)
        credit = _parse_count(websocket.query_params.get("credit", "0"))
        after = websocket.query_params.get("after")
        position = _parse_count(after) if after is not None else None
    except Problem as problem:
        await websocket.accept()
        await websocket.send_text(_format_error(problem))
        await websocket.close(1008, problem.slug)
        return
    await websocket.accept()
    with _listening(service, "websocket", inbox), service.open_reader(inbox, position) as reader:
        await _SocketSession(service, websocket, reader, inbox, credit).run()


def _format_error(problem: Problem) -> str:
    """Return the frame of a problem; its own type is in `problem`, since `type` is that of the frame."""
    fields = problem.as_fields()
    return json.dumps(fields | {"type": "error", "problem": fields["type"]})


def _parse_count(given: object) -> int:
    text = str(given)
    if isinstance(given, bool) or not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem(422, "invalid", f"a whole number of at most nine digits is expected, not {text[:50]!r}")
    return int(text)


class _SocketSession:
    """A WebSocket: one task sends deliveries, another receives credit and acknowledgements."""

    def __init__(
        self, service: Service, websocket: WebSocket, reader: InboxReader, inbox: int, credit: int
    ) -> None:
        self._service = service
        self._socket = websocket
        self._reader = reader
        self._inbox = inbox
        self._credit = credit
        self._credited = asyncio.Event()

    async def run(self) -> None:
        """Serve until one side ends."""
        tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]
        stop = asyncio.create_task(self._service.stopping.wait())
        try:
            await asyncio.wait({*tasks, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, stop):
                task.cancel()
            await asyncio.gather(*tasks, stop, return_exceptions=True)
        await self._close(tasks)

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        failed = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
        if any(isinstance(error, WebSocketDisconnect | RuntimeError) for error in failed):
            return  # there is nobody to tell
        try:
            if failed and isinstance(failed[0], Problem | InboxGone):
                problem = failed[0] if isinstance(failed[0], Problem) else _gone(failed[0])
                await self._socket.send_text(_format_error(problem))
                await self._socket.close(1008, problem.slug)
            elif failed:
                _log.error("a WebSocket has failed", exc_info=failed[0])
                await self._socket.close(1011)
            else:
                await self._socket.close(1001)
        except (WebSocketDisconnect, RuntimeError):
            return

    async def _send(self) -> None:
        while not self._service.is_stopping:
            while not self._credit:
                self._credited.clear()
                await self._credited.wait()
            gaps, deliveries = await self._reader.next(min(self._credit, _AT_ONCE), None)
            for gap in gaps:
                await self._socket.send_text(json.dumps({"type": "gap", **gap.as_fields()}))
            for delivery in deliveries:
                self._credit -= 1
                await self._socket.send_text(f'{{"type":"delivery",{delivery.as_json()[1:]}')
            _count(self._service, "websocket", deliveries)

    async def _receive(self) -> None:
        while True:
            received = await self._socket.receive()
            if received["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(received.get("code", 1000))
            command = self._parse(received.get("text") or received.get("bytes") or "")
            if "credit" in command:
                self._credit += _parse_count(command["credit"])
                self._credited.set()
            if "ack" in command:
                await self._service.acknowledge(self._inbox, _parse_number(command["ack"], self._inbox))

    def _parse(self, text: str | bytes) -> dict[str, Any]:
        try:
            command = json.loads(text)
        except (ValueError, RecursionError):
            command = None
        if not isinstance(command, dict) or not command.keys() & {"credit", "ack"}:
            raise Problem(422, "invalid", 'a JSON object with "credit" or "ack" is expected')
        return command


def _gone(error: InboxGone) -> Problem:
    return Problem(404, "not-found", str(error))
