"""The HTTP API of the stub: what the client relies on, written apart from the service."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sapwood import Broker, QueryError
from tests.support.service.stub_state import Inbox, ProblemError, StubState, describe_error

Handler = Callable[["StubApi", Request], Awaitable[Response]]
_ROUTES: list[tuple[str, str, Handler]] = []


def route(method: str, path: str) -> Callable[[Handler], Handler]:
    """Register a handler."""

    def register(handler: Handler) -> Handler:
        _ROUTES.append((method, path, handler))
        return handler

    return register


class StubApi:
    """An application over a state, in which faults can be ordered."""

    def __init__(self, state: StubState) -> None:
        self.state = state
        self.faults: list[ProblemError | str] = []
        """answers to the next requests: a problem, or "lost" for an answer that is lost after the work"""
        self.requests: list[tuple[str, str]] = []
        self.epoch = 0
        """event streams end when it changes"""
        self.max_batch_bytes: int | None = None
        self.backlog: list[set[str]] = []
        """for each of the next batches, the ids of messages for which an inbox is full"""
        self.chunk: int | None = None
        """the size of the chunks of event streams; None: an event each"""
        self.app = Starlette(
            routes=[Route(path, self._wrap(handler), methods=[method]) for method, path, handler in _ROUTES]
        )

    def _wrap(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            self.requests.append((request.method, request.url.path))
            try:
                fault = self.faults.pop(0) if self.faults else None
                if isinstance(fault, ProblemError):
                    raise fault
                required = self.state.required_key
                if required is not None and request.headers.get("authorization") != f"Bearer {required}":
                    raise ProblemError(401, "unauthorized", "the key is missing or unknown")
                done = await handler(self, request)
                if fault == "lost":
                    return _Broken()
                return done
            except ProblemError as problem:
                headers = {"Retry-After": "0"} if problem.status in (429, 503) else {}
                if "retry_after" in problem.details:
                    headers["Retry-After"] = str(problem.details.pop("retry_after"))
                return Response(
                    json.dumps(problem.details), problem.status, headers, "application/problem+json"
                )

        return answer

    def inbox(self, request: Request) -> Inbox:
        name = request.path_params["name"]
        if name not in self.state.inboxes:
            raise ProblemError(404, "not-found", f"there is no subscriber {name!r}")
        return self.state.inboxes[name]


class _Broken(Response):
    """An answer that ends before it is whole."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": False})


# -- publishing --------------------------------------------------------------------------------------------


@route("POST", "/v1/streams/{stream}/messages")
async def publish(api: StubApi, request: Request) -> Response:
    stream, kind = request.path_params["stream"], request.headers.get("content-type", "")
    if api.max_batch_bytes is not None and len(await request.body()) > api.max_batch_bytes:
        raise ProblemError(413, "too-large", f"the request exceeds {api.max_batch_bytes} bytes")
    if not kind.startswith("multipart/"):
        id = request.headers.get("sapwood-message-id") or uuid.uuid4().hex
        time = _time(request.headers.get("sapwood-time"))
        status, receipt = api.state.publish(stream, id, await request.body(), time)
        if request.query_params.get("wait") == "delivered":
            receipt = receipt | {"delivered": True}
        return JSONResponse(receipt, status)
    results: list[dict[str, Any]] = []
    async with request.form(max_files=10_000) as form:
        for _, part in form.multi_items():
            assert not isinstance(part, str)
            id = part.headers.get("sapwood-message-id") or part.filename or uuid.uuid4().hex
            try:
                if api.backlog and id in api.backlog[0]:
                    raise ProblemError(429, "backlog", "the inbox of 'desk' is full", id=id)
                time = _time(part.headers.get("sapwood-time"))
                results.append(api.state.publish(stream, id, await part.read(), time)[1])
            except ProblemError as problem:
                results.append({"id": id, "error": problem.details})
    del api.backlog[:1]
    return JSONResponse({"messages": results})


def _time(text: str | None) -> float | None:
    return None if text is None else float(text)


# -- subscriptions -----------------------------------------------------------------------------------------


@route("GET", "/v1/subscriptions")
async def list_subscriptions(api: StubApi, request: Request) -> Response:
    wanted = request.query_params
    found = [
        one
        for id, one in sorted(api.state.subscriptions.items())
        if id > wanted.get("after", "")
        and wanted.get("subscriber", one["subscriber"]) == one["subscriber"]
        and wanted.get("active", str(one["active"]).lower()) == str(one["active"]).lower()
    ]
    page = found[: int(wanted.get("limit", "100"))]
    following = page[-1]["id"] if len(page) < len(found) else None
    return JSONResponse({"subscriptions": page, "next": following, "version": api.state.version})


@route("POST", "/v1/subscriptions")
async def create(api: StubApi, request: Request) -> Response:
    given = await request.json()
    if not given.get("query"):
        errors = [{"where": ["body", "query"], "what": "must not be empty"}]
        raise ProblemError(422, "invalid", "the request is not valid", errors=errors)
    if given["id"] in api.state.subscriptions:
        raise ProblemError(409, "conflict", f"there is a subscription {given['id']!r} already")
    return JSONResponse(api.state.subscribe(given), 201)


@route("GET", "/v1/explain")
async def explain_subscription(api: StubApi, request: Request) -> Response:
    return _explain(api.state.find(request.query_params["subscription"])["query"])


@route("GET", "/v1/subscriptions/{id:path}")
async def read(api: StubApi, request: Request) -> Response:
    return JSONResponse(api.state.find(request.path_params["id"]))


@route("PUT", "/v1/subscriptions/{id:path}")
async def put(api: StubApi, request: Request) -> Response:
    id = request.path_params["id"]
    status = 200 if id in api.state.subscriptions else 201
    return JSONResponse(api.state.subscribe({"id": id, **await request.json()}), status)


@route("PATCH", "/v1/subscriptions/{id:path}")
async def patch(api: StubApi, request: Request) -> Response:
    found = api.state.find(request.path_params["id"])
    _check_version(found, request)
    return JSONResponse(api.state.subscribe({**found, **await request.json()}))


@route("DELETE", "/v1/subscriptions/{id:path}")
async def delete(api: StubApi, request: Request) -> Response:
    id = request.path_params["id"]
    _check_version(api.state.find(id), request)
    return JSONResponse({"version": api.state.unsubscribe(id)})


def _check_version(found: dict[str, Any], request: Request) -> None:
    wanted = request.headers.get("if-match")
    if wanted is not None and wanted != f'"{found["version"]}"':
        raise ProblemError(412, "precondition-failed", f"it has version {found['version']}, not {wanted}")


@route("POST", "/v1/imports")
async def import_many(api: StubApi, request: Request) -> Response:
    replace = request.query_params.get("replace") == "true"
    report: dict[str, Any] = {"added": 0, "replaced": 0, "unchanged": 0, "refused": 0, "errors": []}
    for number, line in enumerate((await request.body()).splitlines(), 1):
        given = json.loads(line)
        try:
            known = api.state.subscriptions.get(given["id"])
            if known is not None and not replace:
                raise ProblemError(409, "conflict", "the id is taken")
            api.state.subscribe(given)
            report["replaced" if known else "added"] += 1
        except ProblemError as problem:
            report["refused"] += 1
            report["errors"].append({"line": number, "id": given["id"], "error": problem.details})
    return JSONResponse(report | {"version": api.state.version})


@route("POST", "/v1/explain")
async def explain(api: StubApi, request: Request) -> Response:
    return _explain((await request.json())["query"])


def _explain(query: str) -> Response:
    broker = Broker()
    try:
        broker.subscribe("q", query)
    except QueryError as error:
        raise describe_error(error) from None
    return JSONResponse({"language": "xpath", "text": str(broker.explain("q")), "native": True, "cost": 1})


@route("POST", "/v1/try")
async def try_query(api: StubApi, request: Request) -> Response:
    given = await request.json()
    samples = given.get("messages") or [{"body": given["message"]}]
    broker = Broker()
    broker.subscribe("q", given["query"])
    found: list[Any] = []
    for sample in samples:
        stream, time = sample.get("stream") or "", sample.get("time")
        found += broker.publish(sample["body"], stream=stream, time=time)
    answer = {"language": "xpath", "matches": bool(found), "nodes": [], "why": "because"}
    return JSONResponse(answer | {"results": [one.body.decode() for one in found]})


@route("GET", "/v1/namespaces")
async def namespaces(api: StubApi, request: Request) -> Response:
    return JSONResponse({"namespaces": api.state.namespaces})


@route("PUT", "/v1/namespaces")
async def declare(api: StubApi, request: Request) -> Response:
    api.state.namespaces |= (await request.json())["namespaces"]
    api.state.version += 1
    return JSONResponse({"version": api.state.version})


# -- subscribers -------------------------------------------------------------------------------------------


@route("GET", "/v1/subscribers")
async def subscribers(api: StubApi, request: Request) -> Response:
    found = [inbox.describe(name) for name, inbox in api.state.inboxes.items()]
    start = int(request.query_params.get("after", "0"))
    following = start + 2 if start + 2 < len(found) else None  # pages of two, whatever is asked for
    return JSONResponse({"subscribers": found[start : start + 2], "next": following})


@route("GET", "/v1/subscribers/{name}")
async def subscriber(api: StubApi, request: Request) -> Response:
    return JSONResponse(api.inbox(request).describe(request.path_params["name"]))


@route("PUT", "/v1/subscribers/{name}")
async def configure(api: StubApi, request: Request) -> Response:
    inbox = api.state.inboxes[request.path_params["name"]]
    inbox.settings = await request.json()
    return JSONResponse(inbox.describe(request.path_params["name"]))


@route("DELETE", "/v1/subscribers/{name}")
async def delete_subscriber(api: StubApi, request: Request) -> Response:
    api.inbox(request)
    del api.state.inboxes[request.path_params["name"]]
    return Response(status_code=204)


@route("POST", "/v1/subscribers/{name}/resume")
async def resume(api: StubApi, request: Request) -> Response:
    inbox = api.inbox(request)
    inbox.suspended = False
    return JSONResponse(inbox.describe(request.path_params["name"]))


@route("GET", "/v1/subscribers/{name}/deliveries")
async def deliveries(api: StubApi, request: Request) -> Response:
    inbox, wanted = api.inbox(request), request.query_params
    start = int(wanted.get("after", inbox.acknowledged))
    for _ in range(int(float(wanted.get("wait", "0")) / 0.01)):
        if len(inbox.deliveries) > start:
            break
        await asyncio.sleep(0.01)
    page = inbox.deliveries[start : start + int(wanted.get("limit", "100"))]
    backlog = len(inbox.deliveries) - inbox.acknowledged
    answer = {"deliveries": page, "cursor": start + len(page), "backlog": backlog, "gaps": inbox.gaps}
    return JSONResponse(answer)


@route("POST", "/v1/subscribers/{name}/ack")
async def ack(api: StubApi, request: Request) -> Response:
    inbox = api.inbox(request)
    upto = (await request.json())["upto"]
    number = int(str(upto).rpartition("-")[2])
    inbox.acks.append(number)
    inbox.acknowledged = max(inbox.acknowledged, number)
    backlog = len(inbox.deliveries) - inbox.acknowledged
    return JSONResponse({"acknowledged": inbox.acknowledged, "backlog": backlog})


@route("GET", "/v1/subscribers/{name}/events")
async def events(api: StubApi, request: Request) -> Response:
    inbox, epoch = api.inbox(request), api.epoch
    assert "last-event-id" not in request.headers  # which would acknowledge

    async def stream() -> AsyncIterator[bytes]:
        position = int(request.query_params.get("after", inbox.acknowledged))
        told: list[Any] = []
        yield b": welcome\n\n"
        while epoch == api.epoch:
            for gap in inbox.gaps:
                if gap["after"] == position and gap not in told:
                    told.append(gap)
                    yield b"event: gap\ndata: " + json.dumps(gap).encode() + b"\n\n"
            if position >= len(inbox.deliveries):
                await asyncio.sleep(0.005)
                continue
            delivery = inbox.deliveries[position]
            position += 1
            event = f"id: {position}\nevent: delivery\ndata: {json.dumps(delivery)}\n\n".encode()
            size = api.chunk or len(event)
            for start in range(0, len(event), size):
                yield event[start : start + size]

    return StreamingResponse(stream(), media_type="text/event-stream")


@route("GET", "/v1/subscribers/{name}/gaps")
async def gaps(api: StubApi, request: Request) -> Response:
    return JSONResponse({"gaps": api.inbox(request).gaps})


@route("GET", "/v1/subscribers/{name}/dead-letters")
async def dead_letters(api: StubApi, request: Request) -> Response:
    return JSONResponse({"dead_letters": api.inbox(request).dead, "next": None})


@route("POST", "/v1/subscribers/{name}/dead-letters/replay")
async def replay(api: StubApi, request: Request) -> Response:
    inbox, given = api.inbox(request), await request.json()
    numbers = given.get("numbers", [letter["number"] for letter in inbox.dead])
    inbox.dead = [letter for letter in inbox.dead if letter["number"] not in numbers]
    return JSONResponse({"replayed": numbers, "failed": []})


@route("DELETE", "/v1/subscribers/{name}/dead-letters/{number:int}")
async def delete_dead_letter(api: StubApi, request: Request) -> Response:
    inbox = api.inbox(request)
    inbox.dead = [letter for letter in inbox.dead if letter["number"] != request.path_params["number"]]
    return Response(status_code=204)


# -- operations --------------------------------------------------------------------------------------------


@route("GET", "/v1/keys")
async def keys(api: StubApi, request: Request) -> Response:
    return JSONResponse({"keys": list(api.state.keys.values())})


@route("POST", "/v1/keys")
async def create_key(api: StubApi, request: Request) -> Response:
    id = base64.b32encode(uuid.uuid4().bytes)[:8].decode().lower()
    api.state.keys[id] = {"id": id, "tenant": "", "created": 1.0, **await request.json()}
    return JSONResponse(api.state.keys[id] | {"key": f"sw_{id}_secret"}, 201)


@route("DELETE", "/v1/keys/{id}")
async def delete_key(api: StubApi, request: Request) -> Response:
    del api.state.keys[request.path_params["id"]]
    return Response(status_code=204)


@route("GET", "/v1/stats")
async def stats(api: StubApi, request: Request) -> Response:
    return JSONResponse({"messages": len(api.state.messages)})
